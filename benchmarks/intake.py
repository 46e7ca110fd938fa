"""Intake of JSON Lines, from a file to published batches with secret scanning on, beside a bare `json.loads`.

    python benchmarks/intake.py [MB] [--workers N]        default 1000 MB, one worker per core

The input is made up: OpenAI-chat records of 2 to 60 turns (26 kB on average, up to 130 kB) with a system prompt, 4 to
12 tool schemas, parallel calls, arguments and every second result as JSON in a string, code in the others, about one
word in twelve not ASCII, and three lines in four written with escapes as `json.dumps` does. The peer decodes the same
lines one by one in one thread and keeps nothing. Both are done `ROUNDS` times in turns, and of both the best time
counts. An ingest is the whole of it: recognising, strict decoding, the search for secrets and personal data,
validation, canonical JSON, digests, Parquet, the sealed original, publication, and the start of the worker processes.
It is done over a quarter, a half and all of the input, each in a fresh process, for a linear fit and the peak of
memory.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results" / "intake.json"
TEXT = """
the a to of and in is for that with order flight ticket account customer error function value index result return please
check update cancel status number payment address reservation refund policy item shipping travel baggage passenger
membership silver gold economy business cabin date time file line test case patch commit branch request response server
client token list string integer parser module class method argument option default größer naïve café 東京 данные señor
"""
WORDS = TEXT.split()
NAMES = WORDS[12:60]
ROUNDS = 3


def sentence(rng: random.Random) -> str:
    words = rng.choices(WORDS, k=rng.randint(4, 24))
    if rng.random() < 0.2:
        words.insert(rng.randrange(len(words)), str(rng.randrange(10**6)))
    return " ".join(words).capitalize() + rng.choice((". ", ".\n", "? ", "! "))


def code(rng: random.Random) -> str:
    name, other = rng.choice(WORDS), rng.choice(WORDS)
    return (
        f'def {name}_{rng.randrange(999)}(items, {other}="x"):\n    for at, item in enumerate(items):\n'
        f"        if item[\"{other}\"] > {rng.randrange(100)}:\n            raise ValueError(f'{{at}}: {name}')\n"
        f"    return [{name}(item) for item in items]\n\n"
    )


def tool(rng: random.Random) -> dict[str, Any]:
    fields = {rng.choice(NAMES): {"type": "string", "description": sentence(rng)} for _ in range(4)}
    return {
        "type": "function",
        "function": {
            "name": f"{rng.choice(('get', 'set', 'find', 'cancel', 'book'))}_{rng.choice(NAMES)}",
            "description": sentence(rng) + sentence(rng),
            "parameters": {"type": "object", "properties": fields, "required": sorted(fields)[:2]},
        },
    }


class Maker:
    """Makes records without end."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = rng = random.Random(seed)
        self.sentences = [sentence(rng) for _ in range(4000)]
        self.codes = [code(rng) for _ in range(800)]
        self.tools = [[tool(rng) for _ in range(rng.randint(4, 12))] for _ in range(8)]
        self.prompts = [self.text(10, 60) for _ in range(8)]

    def text(self, least: int, most: int) -> str:
        return "".join(self.rng.choices(self.sentences, k=self.rng.randint(least, most)))

    def call(self, kind: int) -> dict[str, Any]:
        rng = self.rng
        arguments = {
            rng.choice(NAMES): rng.choice(self.sentences)[:60],
            "id": f"{rng.randrange(16**8):08X}",
            "limit": rng.randrange(100),
        }
        function = {"name": rng.choice(self.tools[kind])["function"]["name"], "arguments": json.dumps(arguments)}
        return {"id": f"call_{rng.randrange(16**24):024x}", "type": "function", "function": function}

    def answer(self) -> str:
        rng = self.rng
        if rng.random() < 0.5:
            return "".join(rng.choices(self.codes, k=rng.randint(1, 12)))
        rows = [
            {"name": rng.choice(self.sentences)[:30], "price": rng.randrange(90000) / 100, "ok": True, "note": None}
            for _ in range(rng.randint(1, 12))
        ]
        return json.dumps({"rows": rows, "total": len(rows)}, ensure_ascii=rng.random() < 0.5)

    def turn(self, kind: int) -> Iterator[dict[str, Any]]:
        rng = self.rng
        yield {"role": "user", "content": self.text(1, 5)}
        calls = [self.call(kind) for _ in range(rng.choice((0, 1, 1, 1, 2)))]
        text = self.text(1, 4)
        if rng.random() < 0.3:
            text += "```python\n" + "".join(rng.choices(self.codes, k=rng.randint(1, 6))) + "```"
        message: dict[str, Any] = {"role": "assistant", "content": None if calls and rng.random() < 0.5 else text}
        yield {**message, "tool_calls": calls} if calls else message
        for call in calls:
            yield {"role": "tool", "tool_call_id": call["id"], "content": self.answer()}

    def record(self, number: int) -> dict[str, Any]:
        kind = self.rng.randrange(8)
        turns = min(2 + int(self.rng.expovariate(1 / 7)), 60)
        return {
            "id": f"chatcmpl-{number:08d}",
            "model": "gpt-4o-2024-08-06",
            "messages": [
                {"role": "system", "content": self.prompts[kind]},
                *(message for _ in range(turns) for message in self.turn(kind)),
            ],
            "tools": self.tools[kind],
            "metadata": {"run": number, "ratchet": {"task_id": f"task-{number % 5000}", "segment": f"s{kind}"}},
        }


def make(path: Path, size: int) -> None:
    """Write records until the file has `size` bytes."""
    maker, written = Maker(), 0
    with path.open("wb") as file:
        number = 0
        while written < size:
            line = json.dumps(maker.record(number), ensure_ascii=number % 4 != 0).encode() + b"\n"
            written += file.write(line)
            number += 1


def bare(path: Path) -> float:
    """Seconds that json.loads takes over the lines of a file; reading the file is not counted."""
    seconds, left = 0.0, b""
    with path.open("rb") as file:
        while block := file.read(16 << 20):
            *lines, left = (left + block).split(b"\n")
            start = time.perf_counter()
            for line in lines:
                json.loads(line)
            seconds += time.perf_counter() - start
    return seconds


def ingested(path: Path, workers: int) -> dict[str, Any]:
    """Ingest a file into a new home, in a process of its own."""
    command = [sys.executable, __file__, "--ingest", str(path), "--workers", str(workers)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def ingest_once(path: Path, workers: int) -> None:
    from ratchet.intake import ingest
    from ratchet.rights import Event, Ledger
    from ratchet.store import Store

    now = datetime(2030, 1, 1, tzinfo=UTC)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        home = Path(folder)
        ledger = Ledger.at_home(home)
        ledger.append(
            Event(
                kind="grant", grant_id="g", tenant="bench", purposes=("train_sft",), base_models=("*",),
                retention_until=now + timedelta(days=90), by="owner", at=now,
            )
        )  # fmt: skip
        start = time.perf_counter()
        report = ingest(Store(home / "store"), ledger, [path], tenant="bench", grant_id="g", at=now, workers=workers)
        wall = time.perf_counter() - start
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    print(
        json.dumps(
            {
                "wall_s": wall,
                "cpu_s": sum(usage.ru_utime + usage.ru_stime for usage in (own, children)),
                "parent_mib": own.ru_maxrss / 1024,
                "worker_mib": children.ru_maxrss / 1024,
                "records": report.read,
                "stored": report.stored,
            }
        )
    )


def main(megabytes: int, workers: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for share in (4, 2, 1):
            paths.append(Path(folder) / f"{share}.jsonl")
            make(paths[-1], megabytes * 10**6 // share)
        sizes = [path.stat().st_size / 1e6 for path in paths]
        # A first ingest compiles the rules of the scanner into the user's cache, once for ever.
        ingested(paths[0], workers)
        peers, rounds = [], []
        for _ in range(ROUNDS):
            rounds.append([ingested(path, workers) for path in paths])
            peers.append(bare(paths[-1]))
    peer, runs = min(peers), [min(of, key=lambda run: float(run["wall_s"])) for of in zip(*rounds, strict=True)]
    whole = [round(of[-1]["wall_s"], 1) for of in rounds]
    for size, run in zip(sizes, runs, strict=True):
        print(
            f"{size:7.0f} MB  {run['records']:7,} records  {run['wall_s']:7.1f} s  {size / run['wall_s']:6.1f} MB/s  "
            f"CPU {run['cpu_s']:7.1f} s  peak {run['parent_mib']:4.0f} MiB and {run['worker_mib']:4.0f} MiB a worker"
        )
    slope, start = np.polyfit(sizes, [run["wall_s"] for run in runs], 1)
    ratio = runs[-1]["wall_s"] / peer
    busy = runs[-1]["cpu_s"] / runs[-1]["wall_s"]
    print(f"fit: {start:.1f} s + {slope * 1000:.1f} ms per MB")
    print(f"json.loads, one thread: {peer:.1f} s, {sizes[-1] / peer:.0f} MB/s; runs {[round(one, 1) for one in peers]}")
    print(f"intake of all: runs {whole}")
    fitted = slope * sizes[-1] / peer
    print(f"intake takes {ratio:.2f} times as long with {workers} workers, by the fit {fitted:.2f} times")
    row = {
        "name": f"intake: {sizes[-1]:.0f} MB of JSON Lines with secret scanning, published",
        "figure": round(runs[-1]["wall_s"], 1),
        "unit": "s",
        "peer": "bare json.loads over the same lines, one thread",
        "peer_figure": round(peer, 1),
        "ratio": round(ratio, 2),
        "runs": whole,
        "peer_runs": [round(one, 1) for one in peers],
        "workers": workers,
        "cores": len(os.sched_getaffinity(0)),
        "cores_busy": round(busy, 2),
        "fit_start_s": round(float(start), 1),
        "fit_ms_per_mb": round(float(slope) * 1000, 1),
        "peak_parent_mib": [round(run["parent_mib"]) for run in runs],
        "peak_worker_mib": [round(run["worker_mib"]) for run in runs],
        "sizes_mb": [round(size) for size in sizes],
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps([row], indent=2) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("megabytes", type=int, nargs="?", default=1000)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--ingest", type=Path)
    chosen = parser.parse_args()
    if chosen.ingest:
        ingest_once(chosen.ingest, chosen.workers)
    else:
        main(chosen.megabytes, chosen.workers)
