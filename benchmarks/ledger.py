"""The rights ledger at a million events: opened from nothing and from its snapshot, beside json.loads over its lines.

    python benchmarks/ledger.py [EVENTS]

Four events a grant: granted, narrowed, held, withdrawn or expired. Opening verifies everything: the chain line by line
where there is no snapshot, one hash over the folded bytes where there is one. Folding gives the right of every grant at
a time. The peer only decodes the JSON: it verifies nothing and knows no right.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from ratchet.rights import Event, Ledger
from ratchet.rights.chain import GENESIS, encode

RESULTS = Path(__file__).parent / "results" / "ledger.json"
START = datetime(2026, 1, 1, tzinfo=UTC)

STEPS: list[Callable[[int, datetime, random.Random], dict[str, Any]]] = [
    lambda number, at, shuffler: {
        "kind": "grant",
        "purposes": ("train_sft", "train_rl", "evaluate"),
        "base_models": ("*",),
        "retention_until": at + timedelta(days=shuffler.randint(1, 90)),
    },
    lambda number, at, shuffler: {"kind": "narrow", "purposes": ("train_sft", "evaluate")},
    lambda number, at, shuffler: {"kind": "legal_hold", "hold": bool(number % 2)},
    lambda number, at, shuffler: {"kind": "withdraw" if number % 3 else "expire"},
]


def write(path: Path, count: int) -> None:
    """Write a chained ledger of `count` events; a real one syncs every line, which is not what is measured here."""
    shuffler, head = random.Random(0), GENESIS
    path.parent.mkdir(parents=True)
    with open(path, "wb") as file:
        for seq in range(count):
            number, step = divmod(seq, 4)
            about = {"grant_id": f"grant-{number:07d}", "tenant": f"tenant-{number % 50}", "by": "steward"}
            at = START + timedelta(seconds=seq)
            line = encode(seq, head, Event(at=at, **about, **STEPS[step](number, at, shuffler)))
            head = json.loads(line)["digest"]
            file.write(line)


def timed(what: str, work):
    """Run, print and return (result, seconds)."""
    start = time.perf_counter()
    result = work()
    seconds = time.perf_counter() - start
    print(f"{what:60} {seconds:7.2f} s")
    return result, seconds


def main(count: int) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "rights" / "ledger.jsonl"
        timed(f"writing {count} events", lambda: write(path, count))
        lines = path.read_bytes().splitlines()
        _, bare = timed("peer: json.loads over the lines", lambda: [json.loads(line) for line in lines] and None)
        _, cold = timed("open without a snapshot, which makes one", lambda: Ledger(path))
        ledger, warm = timed("open with the snapshot", lambda: Ledger(path))
        assert len(ledger) == count
        at = START + timedelta(days=30)
        states, folded = timed("fold the right of every grant", lambda: Counter(r.state for r in ledger.rights(at)))
        history, _ = timed("the history of one grant", lambda: ledger.history("grant-0000001"))
        assert len(history) == 4
        print(dict(states), f"{path.stat().st_size / 1e6:.0f} MB")
    rows = [
        ("ledger: open and fold every right, with a snapshot", warm + folded),
        ("ledger: open, with a snapshot", warm),
        ("ledger: open, without a snapshot", cold),
    ]
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(
        json.dumps(
            [
                {
                    "name": f"{name}, {count} events",
                    "figure": round(seconds, 2),
                    "unit": "s",
                    "peer": "json.loads over the same lines, nothing verified or folded",
                    "peer_figure": round(bare, 2),
                    "ratio": round(seconds / bare, 2),
                }
                for name, seconds in rows
            ],
            indent=2,
        )
        + "\n"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
