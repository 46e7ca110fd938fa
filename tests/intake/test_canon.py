"""The fast canonical JSON: byte for byte what the slow one writes."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.contracts.canonical import canonical_json
from ratchet.intake.canon import canonical_bytes

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=400, deadline=None)
@given(values)
def test_it_writes_what_canonical_json_writes(value):
    assert canonical_bytes(value) == canonical_json(value).encode()
    long = [value, "e- " * 2000]
    assert canonical_bytes(long) == canonical_json(long).encode()


@settings(max_examples=300, deadline=None)
@given(st.floats(-320, 307), st.floats(1, 10), st.booleans())
def test_floats_of_every_size_are_printed_alike(exponent, mantissa, negative):
    value = mantissa * 10.0 ** math.floor(exponent) * (-1 if negative else 1)
    for around in ("e-", "e-" * 3000):
        assert canonical_bytes({around: value}) == canonical_json({around: value}).encode()


@pytest.mark.parametrize(
    "value", [1e-4, 9.9e-5, 1e-5, 1e-7, 5e-324, 1e15, 1e16, 1e22, 1.7e308, -0.0, 0.0, 1e-9, 123456.7]
)
def test_floats_at_the_edges_are_printed_alike(value):
    assert canonical_bytes([value]) == canonical_json([value]).encode()


def test_half_a_surrogate_pair_has_no_bytes():
    with pytest.raises(ValueError, match="surrogates"):
        canonical_bytes({"a": "\ud800"})
