"""The wire format: round trips, refusals, and hostile bytes."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.sandbox.inside import wire

LIMIT = 1 << 20
_atoms = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.complex_numbers(allow_nan=False)
)
_keys = st.none() | st.booleans() | st.integers() | st.text() | st.tuples(st.integers(), st.text())
_values: st.SearchStrategy[Any] = st.recursive(
    _atoms,
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(_keys, inner)
        | st.sets(_keys)
        | st.frozensets(_keys)
    ),
    max_leaves=20,
)


def _types(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value), [_types(item) for item in value]
    return type(value)


@given(_values)
@settings(max_examples=100, deadline=None)
def test_values_come_back_equal_and_of_the_same_type(value: Any) -> None:
    back = wire.decode(wire.encode(value, LIMIT))
    assert back == value
    assert _types(back) == _types(value)


@given(st.binary(max_size=60))
@settings(max_examples=200, deadline=None)
def test_hostile_bytes_give_a_literal_or_malformed(data: bytes) -> None:
    try:
        value = wire.decode(data)
    except wire.Malformed:
        return
    assert type(value) in (type(None), bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset)


@pytest.mark.parametrize("value", [object(), print, range(3), iter([]), type, memoryview(b"x"), NotImplemented, ...])
def test_other_types_are_refused(value: Any) -> None:
    with pytest.raises(wire.Unsupported):
        wire.encode([value], LIMIT)


def test_endless_structure_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(wire.Unsupported, match="nested"):
        wire.encode(value, LIMIT)


def test_shared_structure_that_explodes_is_refused_early() -> None:
    value: list[Any] = [0] * 10
    for _ in range(40):
        value = [value] * 10
    with pytest.raises(wire.Unsupported, match="more than"):
        wire.encode(value, LIMIT)


def test_count_beyond_the_bytes_is_malformed_without_memory() -> None:
    with pytest.raises(wire.Malformed):
        wire.decode(b"l\xff\xff\xff\xff")


def test_deep_bytes_are_malformed() -> None:
    with pytest.raises(wire.Malformed, match="too deep"):
        wire.decode(b"l\x01\x00\x00\x00" * 5000 + b"N")


def test_unhashable_key_is_malformed() -> None:
    with pytest.raises(wire.Malformed):
        wire.decode(b"d\x01\x00\x00\x00l\x00\x00\x00\x00N")


def test_overlong_frame_is_malformed_before_it_is_read() -> None:
    read, write = os.pipe()
    os.write(write, b"\xff\xff\xff\x7f")
    with pytest.raises(wire.Malformed, match="over the limit"):
        wire.read_frame(read, LIMIT)
    os.close(read)
    os.close(write)


def test_end_of_stream_is_closed() -> None:
    read, write = os.pipe()
    os.close(write)
    with pytest.raises(wire.Closed):
        wire.read_frame(read, LIMIT)
    os.close(read)
