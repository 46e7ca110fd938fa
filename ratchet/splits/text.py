"""Text as contamination sees it: canonical text, words, hashed word n-grams, and the index that counts what is shared.

Words are runs of letters and digits after Unicode normalisation (NFKC), case folding and removal of zero-width
characters; an underscore separates, and every CJK character is a word. An n-gram is one 64-bit hash of n words in a
row, the same on every machine. Counting over the index is exact up to collisions of that hash (about 1e-7 for a
million n-grams): there is no sampling and no candidate step that could lose a pair.
"""

from __future__ import annotations

import hashlib
import html
import re
import unicodedata
from collections.abc import Sequence
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray

from ratchet.contracts.canonical import digest_bytes

Hashes = NDArray[np.uint64]
SHINGLE = 5
LONG_GRAM = 13

_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
_WORD = re.compile(f"[{_CJK}]|[^\\W_{_CJK}]+")
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]"
)
_ESCAPED = re.compile(r"%[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}|\\[/\"]|&(?:#\w+|amp|quot|apos|lt|gt|sol);")
_BACKSLASH = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|([nrt/\"\\]))")
_MEANS = {"n": "\n", "r": "\n", "t": "\t"}
_ESCAPED_LINES = 3
_FACTOR, _MIX = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)
_MAX_REMEMBERED = 1_000_000


class _WordHashes(dict[str, int]):
    """Hash of each word seen so far; emptied when it gets large, so that a long stream stays in bounded memory."""

    def __missing__(self, word: str) -> int:
        if len(self) >= _MAX_REMEMBERED:
            self.clear()
        data = word.encode("utf-8", "surrogatepass")
        value = int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")
        self[word] = value
        return value


_hashes = _WordHashes()


def normalise(text: str) -> str:
    """NFKC, case-folded, without zero-width characters."""
    return text.lower() if text.isascii() else unicodedata.normalize("NFKC", _INVISIBLE.sub("", text)).casefold()


def unescaped(text: str) -> str | None:
    """The text behind percent-encoding, HTML entities and JSON escapes, up to three layers deep; None without any."""
    plain = text
    for _ in range(3):
        if not _ESCAPED.search(plain) and plain.count("\\n") < _ESCAPED_LINES:
            break
        before, plain = plain, html.unescape(unquote(_BACKSLASH.sub(_unescape, plain), errors="replace"))
        if plain == before:
            break
    return None if plain == text else plain


def _unescape(match: re.Match[str]) -> str:
    code, letter = match.groups()
    return chr(int(code, 16)) if code else _MEANS.get(letter, letter)


def canonical_digest(text: str) -> str | None:
    """SHA-256 of the text without case, whitespace and Unicode variants; None where nothing is left."""
    squeezed = "".join(normalise(text).split())
    return digest_bytes(squeezed.encode("utf-8", "surrogatepass")) if squeezed else None


def words(text: str) -> list[str]:
    """The words of a text, in order."""
    return _WORD.findall(normalise(text))


def hash_words(tokens: Sequence[str]) -> Hashes:
    """One 64-bit hash per word, shape (n_words,)."""
    return np.fromiter(map(_hashes.__getitem__, tokens), dtype=np.uint64, count=len(tokens))


def grams(hashed: Hashes, size: int) -> Hashes:
    """One hash per n-gram, in order, shape (n_words - size + 1,); empty where the text is shorter than `size` words."""
    count = len(hashed) - size + 1
    if count <= 0:
        return np.empty(0, dtype=np.uint64)
    return _mixed([hashed[start : start + count] for start in range(size)])


def grams_at(hashed: Hashes, starts: NDArray[np.int64], size: int) -> Hashes:
    """The n-grams that begin at `starts`, as `grams` hashes them; those that would pass the end are left out."""
    starts = starts[starts <= len(hashed) - size]
    return _mixed([hashed[starts + step] for step in range(size)])


def _mixed(columns: Sequence[Hashes]) -> Hashes:
    total = columns[0].copy()
    for column in columns[1:]:
        total *= _FACTOR
        total += column
    total ^= total >> np.uint64(32)
    total *= _MIX
    total ^= total >> np.uint64(29)
    return total


def contains(sorted_values: Hashes, queries: Hashes) -> NDArray[np.bool_]:
    """Which of `queries` occur in the sorted array, shape of `queries`."""
    if not len(sorted_values):
        return np.zeros(len(queries), dtype=np.bool_)
    places = np.searchsorted(sorted_values, queries)
    places[places == len(sorted_values)] = 0
    return sorted_values[places] == queries


class Index:
    """Which sets hold an n-gram. Built once over n sets of unique hashes; each query costs what it shares."""

    def __init__(self, sets: Sequence[Hashes]) -> None:
        """Index the sets; their position is their number."""
        self.sizes = np.array([len(one) for one in sets], dtype=np.int64)
        values = np.concatenate(sets) if sets else np.empty(0, dtype=np.uint64)
        owners = np.repeat(np.arange(len(sets), dtype=np.int32), self.sizes)
        order = np.argsort(values, kind="stable")
        self._owners = owners[order]
        self._keys, self._starts = np.unique(values[order], return_index=True)
        self._ends = np.append(self._starts[1:], len(values))

    def shared(self, query: Hashes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the numbers of the sets that share anything with `query` (unique hashes), and how much, exactly."""
        if not len(self._keys) or not len(query):
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        places = np.searchsorted(self._keys, query)
        places[places == len(self._keys)] = 0
        places = places[self._keys[places] == query]
        starts, lengths = self._starts[places], self._ends[places] - self._starts[places]
        # Positions of all postings of all hits: a range per hit, laid end to end without a Python loop.
        before = np.cumsum(lengths) - lengths
        postings = np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))
        counts = np.bincount(self._owners[postings], minlength=len(self.sizes))
        found = np.flatnonzero(counts)
        return found, counts[found]
