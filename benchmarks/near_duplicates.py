"""Near-duplicates at scale: `ratchet.splits.near_duplicates` beside datasketch, end to end, from a file of texts.

    python benchmarks/near_duplicates.py [--slow] [--documents N ...]

Documents have about 2.5 kB, one in ten is a near copy of an earlier one; 10,000 and 100,000 of them, and with `--slow`
1,000,000. Every method reads the same file and ends with verified pairs, in a process of its own whose peak memory is
taken from the kernel:

- ours: one process with a thread per processor;
- datasketch at its default setting (MinHashLSH, threshold 0.8, 128 permutations), as it is commonly used: one process,
  its candidates verified exactly. It reads at most 100,000 documents, so its rate at a million is one that it has
  with ten times less in its tables;
- datasketch at equal recall: the same with 32 bands of 4 rows.

Recall is against brute force: the 5-grams of 200 copies, as strings, counted in every document. Rates are by the wall
clock; processor seconds are given beside them, as ours uses every processor and datasketch one. Results are merged into
`results/near_duplicates.json`.
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
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results" / "near_duplicates.json"
THRESHOLD = 0.8
WORDS = 400
GRAM = 5
COPY_EVERY = 10
SAMPLE = 200
PEER_LIMIT = 100_000
PEERS = {"datasketch default": None, "datasketch 32 bands of 4": (32, 4)}
Pairs = set[tuple[int, int]]


class Corpus:
    """Texts of 400 words drawn by Zipf's law; one in ten copies an earlier one with 1-30 words replaced."""

    def __init__(self, seed: int = 0) -> None:
        shuffler = random.Random(seed)
        letters = "abcdefghijklmnopqrstuvwxyz"
        self._words = ["".join(shuffler.choices(letters, k=shuffler.randint(3, 9))) for _ in range(30_000)]
        self._array = np.array(self._words, dtype=object)
        self._seed = seed

    def words(self, number: int) -> list[str]:
        """The words of a document, the same however it is reached."""
        if not number or number % COPY_EVERY:
            ranks = np.random.default_rng([self._seed, number]).zipf(1.2, size=WORDS) % len(self._words)
            return list(self._array[ranks])
        shuffler = random.Random(f"{self._seed}/{number}")
        found = self.words(shuffler.randrange(number))
        for place in shuffler.sample(range(WORDS), shuffler.randint(1, 30)):
            found[place] = shuffler.choice(self._words)
        return found


def grams(tokens: list[str]) -> set[str]:
    """Word 5-grams as strings."""
    return {" ".join(tokens[at : at + GRAM]) for at in range(len(tokens) - GRAM + 1)}


def write(path: Path, count: int) -> Pairs:
    """Write the corpus, a line per document, and return the true pairs of a sample of its copies."""
    corpus = Corpus()
    copies = list(range(COPY_EVERY, count, COPY_EVERY))
    sample = random.Random(1).sample(copies, min(SAMPLE, len(copies)))
    sizes = {number: len(grams(corpus.words(number))) for number in sample}
    holders: dict[str, list[int]] = {}
    for number in sample:
        for gram in grams(corpus.words(number)):
            holders.setdefault(gram, []).append(number)
    truth: Pairs = set()
    with path.open("w") as file:
        for number in range(count):
            tokens = corpus.words(number)
            file.write(" ".join(tokens) + "\n")
            own = grams(tokens)
            shared: dict[int, int] = {}
            for gram in own & holders.keys():
                for other in holders[gram]:
                    shared[other] = shared.get(other, 0) + 1
            for other, common in shared.items():
                if other != number and common >= THRESHOLD * (sizes[other] + len(own) - common):
                    truth.add((min(number, other), max(number, other)))
    return truth


def lines(path: Path, limit: int) -> Iterator[str]:
    """The first texts of the file, one at a time."""
    with path.open() as file:
        for number, line in enumerate(file):
            if number == limit:
                return
            yield line


def ours(path: Path, limit: int) -> Pairs:
    """Every similar pair; of texts with equal sets, those with the first of them."""
    from ratchet.splits import near_duplicates

    found = near_duplicates(lines(path, limit))
    repeats = np.flatnonzero(found.first != np.arange(len(found.first)))
    return {*map(tuple, found.pairs.tolist()), *((int(found.first[at]), int(at)) for at in repeats)}


def datasketch(path: Path, limit: int, params: tuple[int, int] | None) -> Pairs:
    """MinHashLSH over the same 5-grams; the sets of candidates are made again to verify them, not all kept."""
    from datasketch import MinHash, MinHashLSH

    from ratchet.splits.text import words

    lookup = MinHashLSH(threshold=THRESHOLD, num_perm=128, **({"params": params} if params else {}))
    candidates: Pairs = set()
    for right, text in enumerate(lines(path, limit)):
        signature = MinHash(num_perm=128)
        signature.update_batch([one.encode() for one in grams(words(text))])
        candidates.update((left, right) for left in lookup.query(signature))
        lookup.insert(right, signature)
    wanted = {number for pair in candidates for number in pair}
    sets = {number: grams(words(text)) for number, text in enumerate(lines(path, limit)) if number in wanted}
    return {
        (left, right)
        for left, right in candidates
        if len(sets[left] & sets[right]) >= THRESHOLD * len(sets[left] | sets[right])
    }


def measure(method: str, path: Path, limit: int, out: Path) -> None:
    """Run one method in this process and write what it took and found."""
    start = time.perf_counter()
    found = ours(path, limit) if method == "ours" else datasketch(path, limit, PEERS[method])
    wall = time.perf_counter() - start
    usage = resource.getrusage(resource.RUSAGE_SELF)
    body = {
        "wall_s": wall,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "peak_rss": usage.ru_maxrss * 1024,
        "pairs": sorted(found),
    }
    out.write_text(json.dumps(body))


def run(method: str, path: Path, limit: int) -> dict[str, Any]:
    """Run one method in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out.json")
        command = [sys.executable, __file__, "--method", method, "--file", str(path), "--limit", str(limit)]
        subprocess.run([*command, "--out", str(out)], check=True)
        found: dict[str, Any] = json.loads(out.read_text())
    found["pairs"] = {tuple(pair) for pair in found["pairs"]}
    found["rate"] = limit / found["wall_s"]
    found["per_cpu"] = limit / found["cpu_s"]
    return found


def recall(found: Pairs, truth: Pairs, limit: int) -> float:
    """Share of the true pairs that were found, of those that a method could see."""
    seen = {pair for pair in truth if pair[1] < limit}
    return len(found & seen) / len(seen)


def compared(count: int) -> tuple[float, list[dict[str, Any]]]:
    """Run all methods over a corpus of `count` documents; returns our seconds and the rows of the result."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "texts")
        truth = write(path, count)
        print(
            f"{count:,} documents of {path.stat().st_size / count / 1000:.2f} kB, {len(truth)} true pairs in the sample"
        )
        mine = run("ours", path, count)
        show("ours", mine, recall(mine["pairs"], truth, count))
        rows = []
        for name in PEERS:
            limit = min(count, PEER_LIMIT)
            peer = run(name, path, limit)
            theirs = recall(peer["pairs"], truth, limit)
            show(name, peer, theirs)
            print(f"{'':26} ours is {mine['rate'] / peer['rate']:.1f} times as fast by the wall clock, "
                  f"{mine['per_cpu'] / peer['per_cpu']:.1f} per processor second")  # fmt: skip
            shape = {"documents": count, "peer_documents": limit, "peer_recall": theirs}
            rows += [
                row(f"{count:,} documents", mine, peer, name, key, unit)
                | {"recall": recall(mine["pairs"], truth, count), **shape}
                for key, unit in (("rate", "documents/s, wall clock"), ("per_cpu", "documents per processor second"))
            ]
    return mine["wall_s"], rows


def row(name: str, mine: dict[str, Any], peer: dict[str, Any], peer_name: str, key: str, unit: str) -> dict[str, Any]:
    """One row of the results."""
    return {
        "name": f"near-duplicates: {name}, {unit}",
        "figure": round(mine[key], 1),
        "unit": unit,
        "peer": f"{peer_name}, one process, verified exactly",
        "peer_figure": round(peer[key], 1),
        "ratio": round(mine[key] / peer[key], 2),
        "peak_rss": mine["peak_rss"],
        "peer_peak_rss": peer["peak_rss"],
    }


def show(name: str, one: dict[str, Any], found: float) -> None:
    """Print one measurement."""
    print(
        f"  {name:24} {one['wall_s']:7.2f} s  {one['cpu_s']:7.2f} s CPU  {one['rate']:7.0f} documents/s  "
        f"recall {found:.3f}  {len(one['pairs'])} pairs  peak {one['peak_rss'] / 2**20:.0f} MiB"
    )


def fit(sizes: list[int], seconds: list[float]) -> None:
    """Print the least-squares line through the measurements, and the exponent of a power law."""
    slope, base = np.polyfit(sizes, seconds, 1)
    power = np.polyfit(np.log(sizes), np.log(seconds), 1)[0]
    print(f"linear fit: {base:.2f} s + {slope * 1e6:.1f} us a document; power law: documents ** {power:.2f}")


def main() -> None:
    """Compare at every size, print the fit, keep the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slow", action="store_true", help="a million documents too")
    parser.add_argument("--documents", type=int, nargs="+", default=[10_000, 100_000])
    for name, kind in (("method", str), ("file", Path), ("limit", int), ("out", Path)):
        parser.add_argument(f"--{name}", type=kind, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.method:
        measure(options.method, options.file, options.limit, options.out)
        return
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    sizes = sorted({*options.documents, *([1_000_000] if options.slow else [])})
    print(f"{len(os.sched_getaffinity(0))} processors, load {os.getloadavg()[0]:.1f}")
    seconds, rows = [], []
    for count in sizes:
        wall, new = compared(count)
        seconds.append(wall)
        rows += new
    if len(sizes) > 1:
        fit(sizes, seconds)
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    new_names = {(one["name"], one["peer"]) for one in rows}
    kept = [one for one in kept if (one["name"], one["peer"]) not in new_names]
    RESULTS.write_text(json.dumps(sorted([*kept, *rows], key=lambda one: one["documents"]), indent=2) + "\n")


if __name__ == "__main__":
    main()
