"""The fast decoder: orjson reads most texts, and what it read is proven to be what the strict decoder would read.

orjson refuses what is not JSON, NaN, infinities, lone surrogates and bad UTF-8 by itself. The rest is proven from the
text, the value, and the value written out again:

- *The same key twice.* orjson keeps the last of them: written out, the value then has fewer quotes than the text. An
  escaped quote (`\\u0022`) in the text could make up for them.
- *Integers beyond 64 bits.* orjson reads them as floats, which it writes with an exponent. Where the written text holds
  one, in a string too, no number of the text may be that long.
- *Nesting.* The value is walked level by level.

What cannot be proven is no error: it is left to the strict decoder.
"""

from __future__ import annotations

import gc
import re
from typing import Any, NamedTuple

import numpy as np
import orjson

from ratchet.intake.shapes import present

MAX_DEPTH = 64
"""Nesting that is still read; pydantic's own serialiser gives up at 255, and no log format needs more than about 20."""
LONG_TEXT = 1024
"""Bytes from which numpy and Hyperscan look faster than `bytes` does, by about ten times in the end."""
_LONG_NUMBER = re.compile(rb"(?:^|[\[:,\s])(-?[0-9]{19,})")
_QUOTE_ESCAPE = (r"\\u0022",)
_EXPONENT = (r"[0-9]e\+[0-9]",)


class Sound(NamedTuple):
    """A value of which no rule can complain."""

    value: Any
    text: bytes
    """The value written out again: all that its text says, without the spaces and escapes that it can do without."""


def sound(raw: bytes) -> Sound | None:
    """Decode a JSON text, or return None where it is not proven to be sound."""
    found = proven(raw)
    return Sound(*found) if found else None


def proven(raw: bytes) -> tuple[Any, bytes] | None:
    """Return what `sound` does as a bare pair, for the many short texts inside a record."""
    try:
        value = orjson.loads(raw)
        text = orjson.dumps(value)
    except (ValueError, TypeError):  # orjson's own errors are of these types
        return None
    if len(raw) < LONG_TEXT:
        # `find` takes half the time of `in`.
        if raw.count(b'"') != text.count(b'"') or raw.find(b"\\u0022") >= 0:
            return None
    elif _quotes(raw) != _quotes(text) or present(_QUOTE_ESCAPE, raw):
        return None
    if text.find(b"+") >= 0 and _exponent(text) and _beyond_64_bits(raw):
        return None
    return (value, text) if len(text) <= 2 * MAX_DEPTH or _few_brackets(text) or _shallow(value) else None


def _quotes(text: bytes) -> int:
    if len(text) < LONG_TEXT:
        return text.count(b'"')
    return int(np.count_nonzero(np.frombuffer(text, np.uint8) == ord('"')))


def _exponent(text: bytes) -> bool:
    return b"e+" in text if len(text) < LONG_TEXT else present(_EXPONENT, text)


def _beyond_64_bits(raw: bytes) -> bool:
    """Whether what may be an integer, in a string too, is too large or too small."""
    return any(not -(2**63) <= _int(found) < 2**64 for found in _LONG_NUMBER.findall(raw))


def _int(digits: bytes) -> int:
    # Python refuses to read more than some thousand digits, and twenty tell.
    return int(digits[:21])


def _few_brackets(text: bytes) -> bool:
    """Whether a short text opens no more than may be nested."""
    return len(text) <= LONG_TEXT and text.count(b"{") + text.count(b"[") <= MAX_DEPTH


def _shallow(value: Any) -> bool:
    # The collector's own way to what an object holds: in C, many objects at a time.
    level = [value]
    for _ in range(MAX_DEPTH):
        level = gc.get_referents(*level)
        if not level:
            return True
    return False
