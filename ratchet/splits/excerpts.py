"""Excerpts: both sides of a finding, shortened to what a person needs to judge it."""

from __future__ import annotations

import numpy as np

from ratchet.splits.features import Features
from ratchet.splits.identifiers import Key, pattern_of
from ratchet.splits.text import SHINGLE, Hashes, contains, grams, hash_words, normalise, words

LENGTH = 1_500


def shortened(text: str, start: int = 0) -> str:
    """At most `LENGTH` characters from `start`, with the number of characters that are left out on either side."""
    end = min(len(text), start + LENGTH)
    before = f"[{start} characters] " if start else ""
    after = f" [{len(text) - end} characters]" if end < len(text) else ""
    return f"{before}{text[start:end]}{after}"


def around_phrase(text: str, phrase: Key) -> str:
    """The surroundings of the first mention, in normalised text."""
    plain = normalise(text)
    match = pattern_of(phrase).search(plain)
    return shortened(plain, max(0, (match.start() if match else 0) - LENGTH // 2))


def around_grams(task: Features, document: Features) -> tuple[str, str]:
    """Both texts from shortly before the first shingle that they share."""
    shared = np.intersect1d(task.shingles, document.shingles)
    return _around(task, shared), _around(document, shared)


def _around(features: Features, shared: Hashes) -> str:
    for text, hashed in features.hashed:
        places = np.flatnonzero(contains(shared, grams(hashed, SHINGLE)))
        if len(places):
            return shortened(text, max(0, _offset(text, int(places[0])) - 40))
    return shortened(features.hashed[0][0])


def _offset(text: str, word: int) -> int:
    """Where about the word of that number starts: exact to a line."""
    offset = seen = 0
    for line in text.splitlines(keepends=True):
        seen += len(hash_words(words(line)))
        if seen > word:
            break
        offset += len(line)
    return offset
