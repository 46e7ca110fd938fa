"""Locks and checks at the size of the reference experiment and beyond: time, and that it grows with the input alone.

    python benchmarks/splits.py [--slow]

Tasks are repos of ten with a prompt of 400 words and a function each; documents quote a training task and its code,
beside 400 words of their own. Locks of 1,200 and 6,000 tasks (with `--slow` 50,000), checks of 1,000 and 4,000
documents (20,000). Results go to `results/splits.json`; there is no other tool to compare with.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from near_duplicates import Corpus, fit

from ratchet.contracts.environment import Task
from ratchet.contracts.manifest import Splits
from ratchet.splits import Document, SplitLock, check, lock, select

RESULTS = Path(__file__).parent / "results" / "splits.json"
SOURCE = (
    "def work{0}(items):\n    total = {0}\n    for item in items:\n"
    "        if item > {1}:\n            total += item * {0}\n    return total\n"
)


def tasks(count: int) -> list[Task]:
    """Tasks of repos of ten; one in two hundred has a near copy of the prompt of another."""
    corpus = Corpus()
    return [
        Task(
            task_id=f"bench/{at // 10}@{at}",
            prompt=" ".join(corpus.words(at if at % 200 == 0 else 10 * at + 1)),
            repo=f"bench/{at // 10}",
            issue_id=f"bench/{at // 10}#{at}",
            segment="ab"[at % 2],
            payload={"source": SOURCE.format(at, at % 97)},
            environment="bench",
            environment_version="1",
        )
        for at in range(count)
    ]


def documents(train: tuple[Task, ...], count: int) -> Iterator[Document]:
    """Honest documents, made one at a time."""
    corpus = Corpus(seed=1)
    for at in range(count):
        one = train[at % len(train)]
        text = f"{one.prompt}\n{' '.join(corpus.words(10 * at + 1))}"
        yield Document(name=f"d{at}", source="bench", text=text, code=(one.payload["source"],), identifiers=(one.repo,))


def timed_lock(pool: list[Task]) -> tuple[float, SplitLock]:
    """Lock half of the tasks for training, an eighth and a quarter for the others."""
    rule = Splits(train=len(pool) // 2, validation=len(pool) // 8, heldout=len(pool) // 4)
    start = time.process_time()
    made = lock(pool, rule, seed=0, at=datetime(2026, 1, 1, tzinfo=UTC), manifest_digest="0" * 64)
    return time.process_time() - start, made


def result(name: str, items: int, seconds: float) -> dict[str, Any]:
    """One row, printed."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    each = 1000 * seconds / items
    print(f"{name}: {seconds:.2f} s of processor time, {each:.2f} ms each, peak {peak / 2**20:.0f} MiB")
    return {
        "name": f"splits: {name}", "figure": round(seconds, 2), "unit": "s of processor time", "peer": None,
        "peer_figure": None, "ratio": None, "peak_rss": peak,
    }  # fmt: skip


def main() -> None:
    """Measure both at growing sizes and print the fits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slow", action="store_true", help="the large sizes too")
    slow = parser.parse_args().slow
    rows, seconds = [], []
    sizes = [1_200, 6_000, *([50_000] if slow else [])]
    for count in sizes:
        spent, made = timed_lock(tasks(count))
        seconds.append(spent)
        rows.append(result(f"lock of {count:,} tasks in {made.groups['train']:,} and more groups", count, spent))
    fit(sizes, seconds)
    pool = tasks(1_200)
    made = timed_lock(pool)[1]
    train, seconds = select(made, pool, "train"), []
    sizes = [1_000, 4_000, *([20_000] if slow else [])]
    for count in sizes:
        start = time.process_time()
        found = check(made, pool, documents(train, count))
        seconds.append(time.process_time() - start)
        rows.append(result(f"check of {count:,} documents against {found.protected} tasks", count, seconds[-1]))
        if not found.passed:
            raise SystemExit(f"honest documents have findings: {found.findings[0].rule}")
    fit(sizes, seconds)
    RESULTS.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
