"""The canonical JSON of a document, written by orjson where it is proven to write what `canonical_json` writes.

Both sort keys by code point, escape the same characters and print the shortest digits of a float. They differ in how
they print floats below 0.0001 (`1e-05` and `0.00001`, `1e-07` and `1e-7`): a text in which one might stand, in a
string too, is written by `canonical_json`, and so is what orjson refuses (integers beyond 64 bits, lone surrogates).
"""

from __future__ import annotations

from typing import Any

import orjson

from ratchet.contracts.canonical import canonical_json
from ratchet.intake.shapes import present
from ratchet.intake.sound import LONG_TEXT

_OPTIONS = (
    orjson.OPT_SORT_KEYS
    | orjson.OPT_PASSTHROUGH_SUBCLASS
    | orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
)
_DIGITS = bytes.maketrans(b"123456789", b"0" * 9)
_SMALL_FLOAT = (r"0\.0000", "[0-9]e-[0-9]")


def canonical_bytes(value: Any) -> bytes:
    """Return `canonical_json(value)` in UTF-8.

    Args:
        value: plain JSON without NaN and infinities, which orjson would write as null.

    Raises:
        ValueError: a string holds half of a surrogate pair, which has no UTF-8.
    """
    try:
        written = orjson.dumps(value, option=_OPTIONS)
    except TypeError:
        return canonical_json(value).encode()
    return canonical_json(value).encode() if _small_float(written) else written


def _small_float(written: bytes) -> bool:
    """Whether a float below 0.0001 might stand in a text: as `0.0000...`, or as a digit, `e-` and a digit."""
    if len(written) >= LONG_TEXT:
        return present(_SMALL_FLOAT, written)
    return b"0.0000" in written or (b"e-" in written and b"0e-0" in written.translate(_DIGITS))
