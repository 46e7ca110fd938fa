"""Near-duplicates among many texts, streaming: MinHash candidates, then the exact Jaccard similarity of every one.

Texts are read once. Their sets of word 5-grams go to a scratch file, and so do 32 band keys each (128 permutations in
32 bands of 4, after Broder 1997 and Indyk and Motwani 1998). Pairs that share two bands are candidates: at a Jaccard
similarity of 0.8 a pair is missed with probability 1.1e-6 (0.5904**32 + 32 * 0.4096 * 0.5904**31), at more with less.
Each candidate is then counted exactly from the scratch file, so nothing below the threshold is reported. In memory are
some 30 bytes a text and one band at a time.

What very many texts share, such as a template, makes candidates of them all; give it as `boilerplate`.
"""

from __future__ import annotations

import os
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ratchet.splits.shingling import Batch, batches, elements, shingle
from ratchet.splits.text import Hashes, contains
from ratchet.splits.unions import Groups

BANDS, ROWS = 32, 4
MIN_BANDS = 2
THRESHOLD = 0.8
_PARTS = 64
"""Files that candidate pairs are spread over; one is in memory at a time."""
_CHUNK = 1_000_000
"""Pairs of a bucket that are made at a time."""
_SEED = 1
_FACTOR, _MIX = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)


class NearDuplicates(NamedTuple):
    """What was found among n texts; texts are numbered in the order in which they came."""

    first: NDArray[np.int64]
    """Shape (n,): number of the first text with the same set, the text's own where it is the first."""
    pairs: NDArray[np.int64]
    """Shape (n_pairs, 2), sorted: similar pairs of first texts, smaller number first."""
    jaccard: NDArray[np.float64]
    """Shape (n_pairs,): their exact similarity."""
    candidates: int
    """Pairs that were counted."""

    def groups(self) -> NDArray[np.int64]:
        """The smallest number in each text's chain of near-duplicates, shape (n,)."""
        joined = Groups(len(self.first))
        for number in np.flatnonzero(self.first != np.arange(len(self.first))).tolist():
            joined.join([int(self.first[number]), number])
        for left, right in self.pairs.tolist():
            joined.join([left, right])
        labels = np.array(joined.labels(), dtype=np.int64)
        smallest = np.full(len(labels), len(labels), dtype=np.int64)
        np.minimum.at(smallest, labels, np.arange(len(labels)))
        return smallest[labels]


def near_duplicates(
    texts: Iterable[str],
    *,
    threshold: float = THRESHOLD,
    boilerplate: Iterable[str] = (),
    workers: int | None = None,
    scratch: Path | None = None,
) -> NearDuplicates:
    """Find all pairs of texts whose word 5-grams have a Jaccard similarity of `threshold` or more.

    Args:
        texts: the texts, read once and not kept. A text without words resembles nothing.
        threshold: least similarity, from 0.8 to 1; below 0.8 the bands would begin to miss pairs.
        boilerplate: texts, such as templates, whose 5-grams are never compared.
        workers: threads; as many as there are processors where it is left out.
        scratch: folder for a temporary folder: 8 bytes per 5-gram and 256 bytes per text.

    Raises:
        ValueError: the threshold is not in [0.8, 1].
    """
    if not THRESHOLD <= threshold <= 1:
        raise ValueError(f"threshold is {threshold}, and must be from {THRESHOLD} to 1")
    threads = workers or len(os.sched_getaffinity(0))
    common = elements(boilerplate)
    with (
        tempfile.TemporaryDirectory(prefix="near-duplicates-", dir=scratch) as folder,
        ThreadPoolExecutor(threads) as pool,
    ):
        spill = _Spill(Path(folder))
        spill.fill(_in_order(pool, threads, texts, common))
        with spill.opened():
            first = spill.first_equal()
            for parts in pool.map(lambda band: spill.candidates(band, first, threshold), range(BANDS)):
                spill.add_pairs(parts)
            found = list(pool.map(lambda part: spill.verified(part, threshold), range(_PARTS)))
    pairs = np.concatenate([one for one, _, _ in found])
    jaccard = np.concatenate([one for _, one, _ in found])
    order = np.lexsort((pairs[:, 1], pairs[:, 0]))
    return NearDuplicates(first, pairs[order], jaccard[order], sum(count for _, _, count in found))


class _Work(NamedTuple):
    sets: Batch
    keys: Hashes
    sums: Hashes


def _work(texts: list[str], common: Hashes) -> _Work:
    """Sets, band keys of shape (BANDS, n_texts) and sums of the sets of a batch of texts."""
    from rensa import RMinHash

    sets = shingle(texts, common)
    offsets = np.concatenate([[0], sets.ends]).astype(np.uint64)
    matrix = RMinHash.digest_matrix_from_flat_token_hashes(sets.values, offsets, BANDS * ROWS, _SEED)
    rows = np.array(matrix.to_rows(), dtype=np.uint64).reshape(len(texts), BANDS, ROWS)
    keys = np.ascontiguousarray(rows[:, :, 0].T)
    for row in range(1, ROWS):
        keys *= _FACTOR
        keys += rows[:, :, row].T
    mixed = sets.values * _FACTOR
    mixed ^= mixed >> np.uint64(31)
    mixed *= _MIX
    running = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(mixed, dtype=np.uint64)])
    return _Work(sets, keys, np.diff(running[offsets.astype(np.int64)]))


def _in_order(pool: ThreadPoolExecutor, threads: int, texts: Iterable[str], common: Hashes) -> Iterator[_Work]:
    """Batches in the order of the texts, a few of them under way at a time."""
    waiting: deque[Future[_Work]] = deque()
    for batch in batches(texts):
        waiting.append(pool.submit(_work, batch, common))
        if len(waiting) > 2 * threads:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


class _Spill:
    """The scratch files: sets end to end, one file of keys per band, candidate pairs in parts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: IO[bytes]
        self.sizes = self._starts = np.empty(0, dtype=np.int64)
        self._sums: Hashes = np.empty(0, dtype=np.uint64)

    def fill(self, works: Iterable[_Work]) -> None:
        sizes, sums = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.uint64)]
        with ExitStack() as stack:
            held = stack.enter_context((self._folder / "sets").open("wb"))
            bands = [stack.enter_context((self._folder / f"band-{at}").open("wb", 1 << 17)) for at in range(BANDS)]
            for work in works:
                held.write(work.sets.values.tobytes())
                for band, keys in zip(bands, work.keys, strict=True):
                    band.write(keys.tobytes())
                sizes.append(np.diff(work.sets.ends, prepend=0))
                sums.append(work.sums)
        self.sizes, self._sums = np.concatenate(sizes), np.concatenate(sums)
        self._starts = np.cumsum(self.sizes) - self.sizes

    def opened(self) -> IO[bytes]:
        """The file of sets, to be closed by the caller."""
        self._file = (self._folder / "sets").open("rb")
        return self._file

    def elements(self, number: int) -> Hashes:
        """The set of a text. Read by position, not mapped: pages of a map would count as memory of the process."""
        data = os.pread(self._file.fileno(), 8 * int(self.sizes[number]), 8 * int(self._starts[number]))
        return np.frombuffer(data, dtype=np.uint64)

    def first_equal(self) -> NDArray[np.int64]:
        """For every text the first one with the same set."""
        numbers = np.arange(len(self.sizes))
        _, places, inverse = np.unique(self._sums, return_index=True, return_inverse=True)
        first = places[inverse]
        for number in np.flatnonzero((first != numbers) & (self.sizes > 0)).tolist():
            if not np.array_equal(self.elements(number), self.elements(int(first[number]))):
                first[number] = number
        return np.where(self.sizes > 0, first, numbers)

    def candidates(self, band: int, first: NDArray[np.int64], threshold: float) -> list[Hashes]:
        """The pairs of first texts that share a key of the band and are near enough in size, per part."""
        kept = np.flatnonzero((first == np.arange(len(first))) & (self.sizes > 0))
        keys = np.fromfile(self._folder / f"band-{band}", dtype=np.uint64)[kept]
        order = np.argsort(keys, kind="stable")
        keys, numbers = keys[order], kept[order]
        starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]])) if len(keys) else order
        lengths = np.diff(starts, append=len(keys))
        parts: list[list[Hashes]] = [[] for _ in range(_PARTS)]
        for left, right in pairs_of_runs(numbers, starts[lengths > 1], lengths[lengths > 1]):
            small, large = (
                np.minimum(self.sizes[left], self.sizes[right]),
                np.maximum(self.sizes[left], self.sizes[right]),
            )
            fit = small >= threshold * large
            left, right = left[fit], right[fit]
            pairs = np.sort((left.astype(np.uint64) << np.uint64(32)) | right.astype(np.uint64))
            part = (pairs >> np.uint64(32)) % np.uint64(_PARTS)
            for at in np.unique(part).tolist():
                parts[at].append(pairs[part == at])
        return [np.concatenate([np.empty(0, dtype=np.uint64), *part]) for part in parts]

    def add_pairs(self, parts: list[Hashes]) -> None:
        for at, pairs in enumerate(parts):
            if len(pairs):
                with (self._folder / f"pairs-{at}").open("ab") as file:
                    file.write(pairs.tobytes())

    def verified(self, part: int, threshold: float) -> tuple[NDArray[np.int64], NDArray[np.float64], int]:
        """Similar pairs among the candidates of a part, their similarity, and the number of candidates."""
        path = self._folder / f"pairs-{part}"
        keys = np.fromfile(path, dtype=np.uint64) if path.exists() else np.empty(0, dtype=np.uint64)
        unique, counts = np.unique(keys, return_counts=True)
        unique = unique[counts >= MIN_BANDS]
        pairs = np.stack([unique >> np.uint64(32), unique & np.uint64(2**32 - 1)], axis=1).astype(np.int64)
        similarity = np.empty(len(pairs))
        held, own = -1, np.empty(0, dtype=np.uint64)
        for at, (left, right) in enumerate(pairs.tolist()):
            if left != held:
                held, own = left, self.elements(left)
            other = self.elements(right)
            shared = int(np.count_nonzero(contains(own, other)))
            similarity[at] = shared / (len(own) + len(other) - shared)
        similar = similarity >= threshold
        return pairs[similar], similarity[similar], len(pairs)


def pairs_of_runs(
    numbers: NDArray[np.int64], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """All pairs inside each run of `numbers`, which ascend inside a run; at most about `_CHUNK` of them at a time."""
    for length in np.unique(lengths).tolist():
        runs = starts[lengths == length]
        for row in range(length - 1):
            # Rows of the triangle, not the triangle: a bucket of all texts must not be a square in memory.
            width = length - 1 - row
            for at in range(0, len(runs), max(1, _CHUNK // width)):
                some = runs[at : at + max(1, _CHUNK // width)]
                right = numbers[some[:, None] + np.arange(row + 1, length)]
                yield np.repeat(numbers[some + row], width), right.ravel()
