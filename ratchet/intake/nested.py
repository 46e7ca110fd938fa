"""Where the parts of a big JSON document stand, without decoding it: so that a bad part never costs a good one.

The bounds are found by brackets and quotes alone; what stands between them is decoded and judged piece by piece, with
`jsontext.values`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from ratchet.intake.jsontext import REASONS, Value, values
from ratchet.intake.records import Rejected

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}:,]', re.DOTALL)
_SPACE = b" \t\r\n"


class Part(NamedTuple):
    """A value inside an object or array."""

    key: str | None
    start: int
    end: int
    whole: bool
    """False where the text ends inside it."""


def parts(text: bytes, start: int = 0) -> Iterator[Part]:
    """Yield the members of the object, or the elements of the array, that begins at or after `start`."""
    depth, begin = 0, -1
    key: str | None = None
    last = b""
    for match in _TOKEN.finditer(text, start):
        token = match.group()
        if token in b"[{":
            depth += 1
            begin = match.end() if depth == 1 else begin
        elif token in b"]}":
            depth -= 1
            if depth == 0:
                yield from _part(text, key, begin, match.start(), True)
                return
        elif depth != 1:
            continue
        elif token == b",":
            yield from _part(text, key, begin, match.start(), True)
            key, begin = None, match.end()
        elif token == b":":
            key, begin = last[1:-1].decode("utf-8", "replace"), match.end()
        else:
            last = token
    if begin >= 0:
        yield from _part(text, key, begin, len(text), False)


def _part(text: bytes, key: str | None, begin: int, end: int, whole: bool) -> Iterator[Part]:
    held = text[begin:end]
    bare = held.strip(_SPACE)
    if bare:
        start = begin + len(held) - len(held.lstrip(_SPACE))
        yield Part(key, start, start + len(bare), whole)


def one(raw: bytes, number: int, offset: int) -> Value | Rejected:
    """Decode one object that stands at `offset` of its source."""
    found = list(values(raw))
    if len(found) != 1:
        return Rejected(number, offset, raw, "not_json", REASONS["not_json"])
    return replace(found[0], number=number, offset=offset, raw=raw)
