"""Comparing what was delivered with what was declared: strict JSON, numbers with tolerance, normalised text.

What a policy wrote is read strictly: no NaN or infinity, no key twice in one object (which of the two would count?),
and nothing nested deeper than `MAX_DEPTH`. Whatever does not parse is unequal, never an error.
"""

from __future__ import annotations

import json
import math
import unicodedata
from typing import Any, NoReturn

MAX_DEPTH = 64
MAX_CHARACTERS = 4_000_000


class Unread(ValueError):
    """A delivered text that is not the JSON it should be; the message says why."""


def read_json(text: str) -> Any:
    """Parse one JSON document. Raises `Unread`."""
    if len(text) > MAX_CHARACTERS:
        raise Unread(f"{len(text)} characters, over {MAX_CHARACTERS}")
    try:
        value = json.loads(text, object_pairs_hook=_object, parse_constant=_constant, parse_float=_float)
        _check_depth(value)
    except (ValueError, RecursionError) as error:
        raise Unread(str(error)[:120] or "nested too deeply") from None
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise Unread("an object has one key twice")
    return found


def _constant(text: str) -> NoReturn:
    raise Unread(f"{text} is no JSON number")


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise Unread(f"{text} is out of range")
    return value


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for one in level
            if isinstance(one, dict | list)
            for child in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return
    raise Unread(f"nested deeper than {MAX_DEPTH}")


def same_text(got: str, expected: str) -> bool:
    """Whether two texts are equal after normalisation; see `normalised`."""
    return normalised(got) == normalised(expected)


_ALIKE = str.maketrans(
    {**dict.fromkeys("‘’‚‛′", "'"), **dict.fromkeys("“”„‟″«»", '"'), **dict.fromkeys("‐‑‒–—―−", "-")}
)


def normalised(text: str) -> str:
    """Return text without what typesetting changes: Unicode form NFKC, kinds of quotes and dashes, invisible
    characters, case, and runs of white space."""
    plain = unicodedata.normalize("NFKC", text).translate(_ALIKE)
    seen = "".join(char for char in plain if unicodedata.category(char) != "Cf")
    return " ".join(seen.casefold().split())


def difference(
    got: Any, expected: Any, *, absolute: float = 0.0, relative: float = 0.0, subset: bool = False, at: str = ""
) -> str | None:
    """Return where `got` first differs from `expected`, as a JSON pointer with a word, or None where it does not.

    Args:
        got: parsed JSON.
        expected: parsed JSON.
        absolute: numbers may differ by this much ...
        relative: ... or by this share of the expected number.
        subset: objects may have further keys; lists are compared item by item in either case.
        at: JSON pointer (RFC 6901) of the two.
    """
    if _number(got) and _number(expected):
        near = got == expected or _near(got, expected, absolute, relative)
        return None if near else f"{at or '/'}: another number"
    if type(got) is not type(expected):
        return f"{at or '/'}: another type"
    if isinstance(expected, dict):
        keys = [key for key in expected if key not in got]
        keys += [] if subset else [key for key in got if key not in expected]
        if keys:
            return f"{_under(at, min(keys))}: {'missing' if min(keys) in expected else 'not expected'}"
        inner = ((key, got[key], value) for key, value in expected.items())
    elif isinstance(expected, list):
        if len(got) != len(expected):
            return f"{at or '/'}: {len(got)} items, not {len(expected)}"
        inner = ((str(index), *pair) for index, pair in enumerate(zip(got, expected, strict=True)))
    else:
        return None if got == expected else f"{at or '/'}: another value"
    found = (
        difference(one, other, absolute=absolute, relative=relative, subset=subset, at=_under(at, key))
        for key, one, other in inner
    )
    return next((text for text in found if text is not None), None)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _near(got: float, expected: float, absolute: float, relative: float) -> bool:
    try:
        return abs(got - expected) <= max(absolute, relative * abs(expected))
    except OverflowError:  # an integer too large for a float
        return False


def _under(at: str, key: str) -> str:
    return f"{at}/{key.replace('~', '~0').replace('/', '~1')}"


def pointed(value: Any, pointer: str) -> Any:
    """Return what a JSON pointer (RFC 6901) names. Raises `Unread` where there is nothing."""
    for part in pointer.split("/")[1:] if pointer else []:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isascii() and key.isdigit() and int(key) < len(value):
            value = value[int(key)]
        else:
            raise Unread(f"nothing at {pointer}")
    return value
