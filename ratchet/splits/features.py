"""What is compared of a task and of a document: one extraction for the lock's grouping and for every layer of the
check.

Because both read the same features by the same rules, whatever the check would report between two tasks has already put
them into one group. The layers: identifiers; exact digests of the prompt and of every other text of 20 words or
more (a patch, a source); word 5-grams of the text; digests of the functions' syntax trees.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ratchet.contracts.environment import Task
from ratchet.splits.code import Function, Functions, blocks, functions
from ratchet.splits.evidence import Boilerplate, Document
from ratchet.splits.grammars import likely
from ratchet.splits.identifiers import Names, key_of, names_of
from ratchet.splits.text import (
    LONG_GRAM,
    SHINGLE,
    Hashes,
    canonical_digest,
    contains,
    grams,
    hash_words,
    unescaped,
    words,
)
from ratchet.splits.tokens import token_functions

CONTAINMENT = 0.5
JACCARD = 0.8
MIN_SHARED = 5
SMALLEST_TEXT = 20


@dataclass(frozen=True, slots=True)
class Features:
    """What is compared. `shingles` and `long_grams` are sorted and unique, boilerplate included until `without`."""

    hashed: tuple[tuple[str, Hashes], ...]
    names: Names
    texts: Mapping[str, str]
    prompt: str | None
    functions: Mapping[str, Function]
    shingles: Hashes
    long_grams: Hashes
    unread: int

    @property
    def digests(self) -> frozenset[str]:
        """Digests of the exact and the AST layer."""
        return frozenset(self.texts) | frozenset(self.functions)


class Common:
    """Boilerplate, in the form in which it is looked up."""

    def __init__(self, boilerplate: Boilerplate) -> None:
        """Take the boilerplate that a lock has fixed."""
        self.shingles: Hashes = np.array([int(one, 16) for one in boilerplate.shingles], dtype=np.uint64)
        self.digests = frozenset(boilerplate.digests)
        self.phrases = frozenset(boilerplate.phrases)
        self.keys = frozenset(boilerplate.keys)


def of_task(task: Task, *, keys: Iterable[str], aliases: Mapping[str, str], common: Common | None = None) -> Features:
    """Extract a task: its prompt as text, every text of its payload for the exact and the AST layer."""
    others = [text for text in _texts(task.payload) if len(text) >= SMALLEST_TEXT]
    names = names_of(task, keys=keys, aliases=aliases)
    return _extract([task.prompt], [task.prompt], others, names, common)


def of_document(document: Document, common: Common) -> Features:
    """Extract a document; its identifiers are keys, and all its text is searched."""
    names = Names(frozenset(map(key_of, document.identifiers)), frozenset())
    unseen = [code for code in document.code if code not in document.text]
    return _extract([document.text, *unseen, *document.identifiers], [document.text], document.code, names, common)


def _extract(
    read: Iterable[str], whole: Iterable[str], pieces: Iterable[str], names: Names, common: Common | None
) -> Features:
    whole, read = _with_unescaped(whole), _with_unescaped(read)
    hashed = tuple((text, hash_words(words(text))) for text in read)
    pieces = [*pieces, *(block for text in whole for block in blocks(text))]
    texts = {found: text for text in whole if (found := canonical_digest(text))}
    prompt = next(iter(texts), None)
    found_functions: dict[str, Function] = {}
    unread = 0
    for piece in pieces:
        if len(piece.split()) >= SMALLEST_TEXT and (found := canonical_digest(piece)):
            texts.setdefault(found, piece)
        for one in read_functions(piece):
            unread += not one.parsed
            found_functions.update((function.digest, function) for function in one.found)
    short, long = _grams(hashed, common.shingles if common else None)
    if common:
        texts = {key: text for key, text in texts.items() if key not in common.digests}
        found_functions = {key: one for key, one in found_functions.items() if key not in common.digests}
    return Features(hashed, names, texts, prompt, found_functions, short, long, unread)


def _with_unescaped(texts: Iterable[str]) -> list[str]:
    """The texts, then what is behind the escapes of those that have any."""
    found = list(texts)
    return [*found, *(plain for text in found if (plain := unescaped(text)) is not None)]


def read_functions(piece: str) -> list[Functions]:
    """What each part of a piece of code holds: Python by its syntax tree, all else by tokens; nothing for prose."""
    if "def " in piece:
        # Prose around code does not parse as a whole; its blocks do.
        found = [functions(piece)]
        if found[0].parsed:
            return found
        parts = blocks(piece) or [piece]
        return [one if (one := functions(part)).parsed else token_functions(part, ("python",)) for part in parts]
    languages = likely(piece)
    return [token_functions(piece, languages)] if languages else []


def _grams(hashed: Iterable[tuple[str, Hashes]], common: Hashes | None) -> tuple[Hashes, Hashes]:
    """The 5-grams and the 13-grams that hold no boilerplate."""
    shorts, longs = [np.empty(0, dtype=np.uint64)], [np.empty(0, dtype=np.uint64)]
    for _, one in hashed:
        short, long = grams(one, SHINGLE), grams(one, LONG_GRAM)
        if common is not None and len(short):
            shared = contains(common, short)
            span = LONG_GRAM - SHINGLE + 1
            if len(long):
                covered = np.convolve(shared, np.ones(span, dtype=np.int64), mode="valid")
                long = long[covered == 0]
            short = short[~shared]
        shorts.append(short)
        longs.append(long)
    return np.unique(np.concatenate(shorts)), np.unique(np.concatenate(longs))


def needed(size: int) -> int:
    """How many shingles of a set of `size` another must hold to be `near`, at least."""
    return math.ceil(CONTAINMENT * size)


def near(shared: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether `shared` of a task's shingles are too many: half of its `sizes`, and five or all of them.

    A Jaccard similarity of `JACCARD` or more implies it.
    """
    return (shared >= CONTAINMENT * sizes) & ((shared >= MIN_SHARED) | (shared == sizes))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)
