"""The literal-only wire format between the checker, the candidate and the parent.

A value is one tag byte and its payload; containers hold their elements. Only None, bool, int, float (with nan and the
infinities), complex, str, bytes, list, tuple, dict, set and frozenset exist on the wire, so decoding hostile bytes can
build nothing else and runs no code. Subclasses travel as their base type: a str with an `__eq__` of its own arrives
as a plain str. A frame is a little-endian u32 length and an encoded value.
"""

from __future__ import annotations

import os
import struct
from typing import Any

MAX_DEPTH = 200
# Trusted parts may send more than a program may answer.
REQUEST_LIMIT = 64 << 20
_U32 = struct.Struct("<I")
_F64 = struct.Struct("<d")
_C128 = struct.Struct("<dd")


class Unsupported(TypeError):
    """A value has a type, a depth or a size that the wire does not carry."""


class Malformed(ValueError):
    """Bytes are not a value of the wire."""


class Closed(Exception):
    """The other end has gone."""


def encode(value: Any, limit: int) -> bytes:
    """Return the bytes of `value`. Raises Unsupported for any other type, beyond MAX_DEPTH levels or `limit` bytes."""
    out = bytearray()
    _encode(value, out, limit, 0)
    if len(out) > limit:
        raise Unsupported(f"value takes more than {limit} bytes")
    return bytes(out)


def _encode(value: Any, out: bytearray, limit: int, depth: int) -> None:
    # type(), not isinstance(): an object can lie about its __class__.
    kind = type(value)
    if value is None:
        out += b"N"
    elif kind is bool:
        out += b"T" if value else b"F"
    elif issubclass(kind, int):
        _sized(out, b"i", int.to_bytes(value, int.bit_length(value) // 8 + 1, "little", signed=True))
    elif issubclass(kind, float):
        out += b"f" + _F64.pack(value)
    elif issubclass(kind, str):
        _sized(out, b"s", str.encode(value, "utf-8", "surrogatepass"))
    elif issubclass(kind, (list, tuple, set, frozenset, dict)):
        _encode_container(kind, value, out, limit, depth + 1)
    elif issubclass(kind, (bytes, bytearray)):
        _sized(out, b"b", bytes(value))
    elif issubclass(kind, complex):
        out += b"c" + _C128.pack(value.real, value.imag)
    else:
        raise Unsupported(f"a value of type {kind.__name__} cannot leave the program; use plain Python literals")


def _encode_container(kind: type, value: Any, out: bytearray, limit: int, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise Unsupported(f"value is nested more than {MAX_DEPTH} levels deep")
    if issubclass(kind, dict):
        pairs = list(dict.items(value))
        out += b"d" + _U32.pack(len(pairs))
        for key, item in pairs:
            _encode(key, out, limit, depth)
            _encode(item, out, limit, depth)
        return
    for base, tag in ((list, b"l"), (tuple, b"t"), (set, b"S"), (frozenset, b"Z")):
        if issubclass(kind, base):
            items = list(base.__iter__(value))
            out += tag + _U32.pack(len(items))
            for item in items:
                _encode(item, out, limit, depth)
                # A shared or endless structure can be small in memory and huge on the wire: stop early.
                if len(out) > limit:
                    raise Unsupported(f"value takes more than {limit} bytes")
            return


def _sized(out: bytearray, tag: bytes, payload: bytes) -> None:
    out += tag + _U32.pack(len(payload)) + payload


def decode(data: bytes) -> Any:
    """Return the value of `data`. Raises Malformed when it is not exactly one value."""
    try:
        value, end = _decode(data, 0, 0)
    except (struct.error, IndexError, TypeError, UnicodeDecodeError) as error:
        raise Malformed(f"{type(error).__name__}: {error}") from None
    if end != len(data):
        raise Malformed("bytes are left over after the value")
    return value


_CONTAINERS: dict[int, Any] = {ord("l"): list, ord("t"): tuple, ord("S"): set, ord("Z"): frozenset}
_ATOMS = {ord("N"): None, ord("T"): True, ord("F"): False}


def _decode(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    tag = data[at]
    at += 1
    if tag in _ATOMS:
        return _ATOMS[tag], at
    if tag == 102:  # f
        return _F64.unpack_from(data, at)[0], at + 8
    if tag == 99:  # c
        return complex(*_C128.unpack_from(data, at)), at + 16
    (count,) = _U32.unpack_from(data, at)
    at += 4
    if tag in (105, 115, 98):  # i s b
        payload = data[at : at + count]
        if len(payload) != count:
            raise Malformed("the value is cut off")
        at += count
        if tag == 105:
            return int.from_bytes(payload, "little", signed=True), at
        return (payload.decode("utf-8", "surrogatepass") if tag == 115 else payload), at
    if depth >= MAX_DEPTH:
        raise Malformed("the value is nested too deep")
    if tag == 100:  # d
        table = {}
        for _ in range(count):
            key, at = _decode(data, at, depth + 1)
            table[key], at = _decode(data, at, depth + 1)
        return table, at
    if tag not in _CONTAINERS:
        raise Malformed(f"unknown tag {tag}")
    items = []
    for _ in range(count):
        item, at = _decode(data, at, depth + 1)
        items.append(item)
    return _CONTAINERS[tag](items), at


def frame(payload: bytes) -> bytes:
    """Put the length before an encoded value."""
    return _U32.pack(len(payload)) + payload


def write(fd: int, data: bytes) -> None:
    """Write all of `data`. Raises Closed when nobody reads any more."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except (BrokenPipeError, ConnectionResetError):
            raise Closed from None


def read_exactly(fd: int, count: int) -> bytes:
    """Read `count` bytes. Raises Closed at the end of the stream."""
    parts = []
    while count:
        part = os.read(fd, min(count, 1 << 20))
        if not part:
            raise Closed
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def read_frame(fd: int, limit: int) -> Any:
    """Read and decode one frame. Raises Closed at the end of the stream, Malformed on other bytes or beyond `limit`."""
    (count,) = _U32.unpack(read_exactly(fd, 4))
    if count > limit:
        raise Malformed(f"a frame of {count} bytes is over the limit of {limit}")
    return decode(read_exactly(fd, count))
