"""JSON and JSON Lines as they really occur: split, decoded and judged value by value.

One bad value never costs its neighbours: JSON Lines are split on `\\n` bytes alone (U+2028, U+0085 and `\\r` stay
inside), the elements of a top-level array are decoded one at a time. Refused, because no one reading of them is
right: NaN and infinities (`1e999` too), duplicate keys, lone surrogates, invalid UTF-8, integers of more than 4,300
digits, nesting beyond `MAX_DEPTH`, truncated values. Kept as anomalies: integers beyond 64 bits, UTF-16, a byte order
mark.

Most values are sound and are decoded by `sound`, which gives what the strict decoder here would give, or nothing.
"""

from __future__ import annotations

import codecs
import json
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ratchet.intake.records import Rejected
from ratchet.intake.sound import MAX_DEPTH, proven, sound

REASONS = {
    "not_json": "it is not valid JSON",
    "truncated": "it ends in the middle of a JSON value",
    "not_finite": "it holds NaN, an infinity or a number that overflows to one",
    "duplicate_key": "an object holds the same key twice",
    "lone_surrogate": "a string holds half of a surrogate pair",
    "huge_integer": "it holds an integer of more than 4,300 digits",
    "too_deep": f"it is nested deeper than {MAX_DEPTH} levels",
    "not_utf8": "it is not valid UTF-8",
    "not_utf16": "it starts as UTF-16 and does not go on so",
    "not_an_object": "a record must be a JSON object",
}
_SPACE = b" \t\r\n"
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]|,', re.DOTALL)
_GAP = re.compile(r"[ \t\r\n,]*")
_SURROGATE = re.compile("[\ud800-\udfff]")
_IS_SPACE = np.array([code in _SPACE for code in range(256)])
_AT_ONCE = 1 << 18
"""So much of a text is looked at in one step: it stays near the processor."""


@dataclass(frozen=True)
class Value:
    """One decoded object with its place."""

    number: int
    offset: int
    raw: bytes = field(repr=False)
    value: dict[str, Any] = field(repr=False)
    anomalies: tuple[str, ...] = ()
    text: bytes | None = field(repr=False, default=None)
    """The value written out again, as `sound.Sound` has it, where it was sound."""


class Lines(bytes):
    """Whole lines of a JSON Lines source, cut out of it: read line by line, whatever they look like."""

    anomalies: tuple[str, ...] = ()
    """What was noted at the start of the source, for all its lines."""
    last = True
    """Whether the source ends here: its last line may then be cut off."""


class _Strict:
    """A JSON decoder that notes what makes a value unusable instead of stopping, so that its end is still found."""

    def __init__(self) -> None:
        self.noted: list[str] = []
        self._decoder = json.JSONDecoder(
            object_pairs_hook=self._object,
            parse_constant=self._constant,
            parse_float=self._float,
            parse_int=self._int,
        )

    def decode(self, text: str, start: int = 0) -> tuple[Any, int]:
        """Decode the value that starts at `start`. Raises ValueError or RecursionError; check `noted` afterwards."""
        self.noted = []
        return self._decoder.raw_decode(text, start)

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) != len(pairs):
            self.noted.append("duplicate_key")
        return result

    def _constant(self, name: str) -> float:
        self.noted.append("not_finite")
        return 0.0

    def _float(self, text: str) -> float:
        value = float(text)
        if not math.isfinite(value):
            self.noted.append("not_finite")
        return value

    def _int(self, text: str) -> int:
        try:
            return int(text)
        except ValueError:
            self.noted.append("huge_integer")
            return 0


def decode_sound(text: str) -> Any:
    """Decode a JSON text that stands inside a string (arguments, tools), or return None where it is not sound."""
    try:
        found = proven(text.encode())
    except UnicodeEncodeError:
        return None
    if found:
        return found[0]
    strict = _Strict()
    try:
        value, end = strict.decode(text, len(text) - len(text.lstrip(" \t\r\n")))
    except (ValueError, RecursionError):
        return None
    if strict.noted or text[end:].strip(" \t\r\n") or _judge(value)[0]:
        return None
    return value


def values(data: bytes) -> Iterator[Value | Rejected]:
    """Yield every object of a JSON or JSON Lines source, in order, with what was rejected in between."""
    anomalies: tuple[str, ...] = ()
    if isinstance(data, Lines):
        for number, (offset, line) in enumerate(_split(data)):
            yield _one(number, offset, line, data.anomalies, data.last and offset + len(line) == len(data))
        return
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        try:
            data, anomalies = data.decode("utf-16").encode("utf-8"), ("utf16",)
        except UnicodeError:
            yield _reject(0, 0, data, "not_utf16")
            return
    if data.startswith(codecs.BOM_UTF8):
        for item in _values(data[3:], ("byte_order_mark",)):
            yield replace(item, offset=item.offset + 3)
        return
    yield from _values(data, anomalies)


def _values(data: bytes, anomalies: tuple[str, ...]) -> Iterator[Value | Rejected]:
    lines = json_lines(data)
    if lines is None:
        yield from _document(data, anomalies)
        return
    for number, (offset, line) in enumerate(lines):
        yield _one(number, offset, line, anomalies, offset + len(line) == len(data))


def json_lines(data: bytes) -> list[tuple[int, bytes]] | None:
    """Return (offset, line) of JSON Lines, or None where the source is one document.

    Lines of JSON Lines start an object and go on; those of a printed document rarely do.
    """
    lines = list(_split(data))
    if len(lines) < 2:
        return None
    return lines if 2 * _opening(line for _, line in lines) >= len(lines) else None


def looks_like_lines(head: bytes) -> bool:
    """Whether a long source that starts so is JSON Lines, by the same rule; its last line may be cut off."""
    head = head.removeprefix(codecs.BOM_UTF8)
    whole = head[: head.rfind(b"\n")] if b"\n" in head else head
    lines = [line for _, line in _split(whole)]
    return bool(lines) and 2 * _opening(lines) >= len(lines)


def count_lines(*blocks: bytes) -> int:
    """Number of lines that are not blank in a text that is given in blocks."""
    breaks, after_break = 0, True
    for block in blocks:
        view = np.frombuffer(block, np.uint8)
        for start in range(0, len(view), _AT_ONCE):
            some = view[start : start + _AT_ONCE]
            at = np.flatnonzero(some == ord("\n"))
            follows = some[at[: np.searchsorted(at, len(some) - 1)] + 1]
            # A line that starts with a space is either blank or odd: only then is it worth looking.
            if (after_break and some[0] in _SPACE) or _IS_SPACE[follows].any():
                return sum(1 for _ in _split(b"".join(blocks)))
            breaks, after_break = breaks + len(at), bool(some[-1] == ord("\n"))
    return breaks + (not after_break)


def _opening(lines: Iterable[bytes]) -> int:
    return sum(1 for line in lines if (bare := line.strip(_SPACE)).startswith(b"{") and len(bare) > 1)


def _split(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield (offset, line) of the lines that are not blank."""
    offset = 0
    for line in data.split(b"\n"):
        if line.strip(_SPACE):
            yield offset, line
        offset += len(line) + 1


def _one(number: int, offset: int, raw: bytes, anomalies: tuple[str, ...], last_open: bool) -> Value | Rejected:
    found = sound(raw)
    if found and isinstance(found.value, dict):
        return Value(number, offset, raw, found.value, anomalies, found.text)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        return _reject(number, offset, raw, "not_utf8")
    strict = _Strict()
    try:
        value, end = strict.decode(text, len(text) - len(text.lstrip(" \t\r\n")))
    except ValueError as error:
        at_end = last_open and isinstance(error, json.JSONDecodeError) and _open_at_end(text)
        return _reject(number, offset, raw, "truncated" if at_end else "not_json")
    except RecursionError:
        return _reject(number, offset, raw, "too_deep")
    if text[end:].strip(" \t\r\n"):
        return _reject(number, offset, raw, "not_json")
    return _judged(number, offset, raw, value, strict.noted, anomalies)


def _document(data: bytes, anomalies: tuple[str, ...]) -> Iterator[Value | Rejected]:
    body = data.lstrip(_SPACE)
    if not body:
        return
    if not body.startswith(b"["):
        yield _one(0, len(data) - len(body), body, anomalies, True)
        return
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        yield _reject(0, 0, data, "not_utf8")
        return
    yield from _elements(text, text.index("[") + 1, anomalies)


def _elements(text: str, position: int, anomalies: tuple[str, ...]) -> Iterator[Value | Rejected]:
    """Yield the elements of a top-level array; one that cannot be decoded is skipped by its brackets."""
    strict = _Strict()
    number, seen, offset = 0, 0, 0
    while True:
        gap = _GAP.match(text, position)
        position = gap.end() if gap else position
        if position >= len(text):
            yield _reject(number, offset + len(text[seen:].encode()), b"", "truncated")
            return
        if text[position] == "]":
            rest = text[position + 1 :]
            if rest.strip(" \t\r\n"):
                yield _reject(number, offset + len(text[seen : position + 1].encode()), rest.encode(), "not_json")
            return
        offset, seen = offset + len(text[seen:position].encode()), position
        code = None
        value: Any = None
        try:
            value, end = strict.decode(text, position)
        except ValueError:
            end, code = _skip(text, position), "not_json"
        except RecursionError:
            end, code = _skip(text, position), "too_deep"
        raw = text[position:end].encode()
        if code:
            yield _reject(number, offset, raw, "truncated" if end == len(text) and code == "not_json" else code)
            if end == len(text):
                return
        else:
            yield _judged(number, offset, raw, value, strict.noted, anomalies)
        number, position = number + 1, end


def _skip(text: str, position: int) -> int:
    """Return the end of the value at `position` by its brackets and quotes alone; at least one character on."""
    depth = 0
    for match in _TOKEN.finditer(text, position):
        token = match.group()
        if token in "[{":
            depth += 1
        elif token in "]}":
            depth -= 1
            if depth < 0:
                return max(match.start(), position + 1)
            if depth == 0:
                return match.end()
        elif token == "," and depth == 0:
            return max(match.start(), position + 1)
    return len(text)


def _open_at_end(text: str) -> bool:
    depth = 0
    for match in _TOKEN.finditer(text):
        token = match.group()
        depth += (token in "[{") - (token in "]}")
    return depth > 0


def _judged(
    number: int, offset: int, raw: bytes, value: Any, noted: list[str], anomalies: tuple[str, ...]
) -> Value | Rejected:
    if noted:
        return _reject(number, offset, raw, noted[0])
    if not isinstance(value, dict):
        return _reject(number, offset, raw, "not_an_object")
    code, big = _judge(value)
    if code:
        return _reject(number, offset, raw, code)
    return Value(number, offset, raw, value, anomalies + ("big_integer",) * big)


def _judge(value: Any) -> tuple[str | None, int]:
    """Return (code of what makes the value unusable, number of integers beyond 64 bits)."""
    big = 0
    pending: list[tuple[Any, int]] = [(value, 1)]
    while pending:
        item, depth = pending.pop()
        if isinstance(item, str):
            if not item.isascii() and _SURROGATE.search(item):
                return "lone_surrogate", big
        elif isinstance(item, dict):
            if depth > MAX_DEPTH:
                return "too_deep", big
            pending.extend((child, depth + 1) for pair in item.items() for child in pair)
        elif isinstance(item, list):
            if depth > MAX_DEPTH:
                return "too_deep", big
            pending.extend((child, depth + 1) for child in item)
        elif type(item) is int and not -(2**63) <= item < 2**64:
            big += 1
    return None, big


def _reject(number: int, offset: int, raw: bytes, code: str) -> Rejected:
    return Rejected(number, offset, raw, code, REASONS[code])
