"""Many texts at once to sets of word 5-grams: the words of `text.words`, hashed without a Python object per word.

A batch of texts is one array of bytes. A word's hash is a polynomial over its bytes, taken from one running sum over
the batch (Karp and Rabin 1987, "Efficient randomized pattern-matching algorithms", modulo 2**64 and mixed afterwards);
5-grams, sorting and removal of repeats follow on the whole batch. Elements are 56-bit hashes: the upper 8 bits carry
the place of the text in its batch while it is sorted. A text of fewer than five words has one element, all its words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ratchet.splits.text import SHINGLE, Hashes, contains, grams, words

BATCH = 256
"""Texts of a batch: as many as 8 bits can number."""
_BATCH_CHARACTERS = 4_000_000
_PIECE = 1 << 17
"""Bytes that are hashed at a time: the arrays of a piece stay in a processor's cache."""
_BITS = np.uint64(56)
_SPACE = 32
# Words as `text.words` has them: ASCII letters and digits; every byte of a character beyond ASCII.
_TABLE = bytes(code if code >= 128 or chr(code).isalnum() else _SPACE for code in bytes(range(256)).lower())
_RANDOM = np.random.Generator(np.random.PCG64(20_260_101))
_BYTES = _RANDOM.integers(0, 2**64, 256, dtype=np.uint64)
_BYTES[_SPACE] = 0
_BASE = int(_RANDOM.integers(0, 2**60)) * 8 + 3
_MIX, _END = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


class Batch(NamedTuple):
    """Sets of a batch of texts, end to end: text i has `values[ends[i - 1]:ends[i]]`, sorted and unique."""

    values: Hashes
    ends: NDArray[np.int64]


def batches(texts: Iterable[str]) -> Iterator[list[str]]:
    """Cut a stream of texts into batches of at most `BATCH` texts and about 4 million characters."""
    batch: list[str] = []
    characters = 0
    for text in texts:
        batch.append(text)
        characters += len(text)
        if len(batch) == BATCH or characters >= _BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def shingle(texts: Sequence[str], boilerplate: Hashes | None = None) -> Batch:
    """Reduce at most `BATCH` texts to their sets.

    Args:
        texts: the texts.
        boilerplate: sorted elements that are left out of every set, as `elements` gives them.
    """
    parts = [
        text.encode() if text.isascii() else " ".join(words(text)).encode("utf-8", "surrogatepass") for text in texts
    ]
    ends = np.cumsum([len(part) + 1 for part in parts])
    starts, hashed = _hash_words(b" ".join(parts) + b" ")
    owners = np.repeat(np.arange(len(parts)), np.diff(np.searchsorted(starts, ends), prepend=0))
    found = grams(hashed, SHINGLE)
    inside = owners[: len(found)] == owners[SHINGLE - 1 :] if len(found) else np.empty(0, dtype=np.bool_)
    place = owners[: len(found)][inside]
    short_values, short_places = _short(hashed, owners, len(parts))
    keys = np.concatenate([found[inside], short_values]) >> np.uint64(8)
    keys |= np.concatenate([place, short_places]).astype(np.uint64) << _BITS
    keys.sort()
    if len(keys):
        keys = keys[np.concatenate([[True], keys[1:] != keys[:-1]])]
    values = keys & ((np.uint64(1) << _BITS) - np.uint64(1))
    if boilerplate is not None and len(boilerplate):
        own = ~contains(boilerplate, values)
        keys, values = keys[own], values[own]
    limits = np.arange(1, len(parts), dtype=np.uint64) << _BITS
    return Batch(values, np.append(np.searchsorted(keys, limits), len(keys)))


def elements(texts: Iterable[str]) -> Hashes:
    """Every element of some texts, such as templates, sorted and unique."""
    found = [shingle(batch).values for batch in batches(texts)]
    return np.unique(np.concatenate([np.empty(0, dtype=np.uint64), *found]))


def _short(hashed: Hashes, owners: NDArray[np.int64], count: int) -> tuple[Hashes, NDArray[np.int64]]:
    """One element for every text that has words, but fewer than an n-gram needs, and the places of these texts."""
    sizes = np.bincount(owners, minlength=count)
    places = np.flatnonzero((sizes > 0) & (sizes < SHINGLE))
    firsts = np.cumsum(sizes) - sizes
    values = [grams(hashed[firsts[at] : firsts[at] + sizes[at]], int(sizes[at])) for at in places.tolist()]
    return np.concatenate([np.empty(0, dtype=np.uint64), *values]), places


def _powers(base: int) -> Hashes:
    powers = np.full(_PIECE + 1, np.uint64(base))
    powers[0] = 1
    return np.multiply.accumulate(powers)


_POWERS, _INVERSES = _powers(_BASE), _powers(pow(_BASE, -1, 2**64))


def _hash_words(data: bytes) -> tuple[NDArray[np.int64], Hashes]:
    """Where each word of the bytes starts, and its hash."""
    plain = data.translate(_TABLE)
    starts, hashes = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.uint64)]
    at = 0
    while at < len(plain):
        end = min(len(plain), at + _PIECE)
        if end < len(plain):
            # Between words where that is possible; a single word that fills a piece is cut.
            end = plain.rfind(b" ", at, end) + 1 or end
        start, hashed = _hash_piece(np.frombuffer(plain, dtype=np.uint8, count=end - at, offset=at))
        starts.append(start + at)
        hashes.append(hashed)
        at = end
    return np.concatenate(starts), np.concatenate(hashes)


def _hash_piece(codes: NDArray[np.uint8]) -> tuple[NDArray[np.int64], Hashes]:
    word = np.zeros(len(codes) + 2, dtype=np.bool_)
    np.not_equal(codes, _SPACE, out=word[1:-1])
    edges = np.flatnonzero(word[1:] != word[:-1])
    starts, ends = edges[::2], edges[1::2]
    sums = np.zeros(len(codes) + 1, dtype=np.uint64)
    np.cumsum(_BYTES[codes] * _POWERS[: len(codes)], out=sums[1:])
    hashed = (sums[ends] - sums[starts]) * _INVERSES[starts]
    hashed += (ends - starts).astype(np.uint64) * _END
    hashed ^= hashed >> np.uint64(32)
    hashed *= _MIX
    hashed ^= hashed >> np.uint64(29)
    return starts, hashed
