"""Canonical JSON and digests: one text, one digest for equal content, and none for what has no JSON."""

import json
import math
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.contracts.canonical import canonical_json, digest, digest_bytes
from ratchet.contracts.model import Contract
from ratchet.contracts.policy import Decoding, Harness

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(), values, max_size=6))
def test_the_order_of_keys_does_not_matter(content: dict[str, object]) -> None:
    assert digest(dict(reversed(list(content.items())))) == digest(content)


@given(values)
def test_canonical_json_reads_back_and_is_a_fixed_point(value: object) -> None:
    text = canonical_json(value)
    assert canonical_json(json.loads(text)) == text


class Holder(Contract):
    value: float


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: {"a": [x]}, lambda x: Holder(value=x)])
def test_nan_and_infinities_have_no_digest(value: float, wrap) -> None:
    with pytest.raises(ValueError, match="JSON"):
        digest(wrap(value))


def test_a_model_and_its_plain_json_have_one_digest() -> None:
    harness = Harness(tools=("submit",), max_calls=3, decoding=Decoding(temperature=0.5))
    assert harness.digest == digest(json.loads(harness.model_dump_json()))
    assert digest({"at": datetime(2030, 1, 2, tzinfo=UTC), "path": Path("a/b")}) == digest(
        {"at": "2030-01-02T00:00:00Z", "path": "a/b"}
    )


def test_text_that_is_no_unicode_still_has_a_digest() -> None:
    assert digest("\ud800") != digest("\ud801")


def test_the_digest_is_the_same_in_another_process() -> None:
    content = {"b": [1, 2.5, None], "a": "ä", "c": {"y": True, "x": ""}}
    script = "import json, sys; from ratchet.contracts.canonical import digest; print(digest(json.loads(sys.argv[1])))"
    shown = subprocess.run(
        [sys.executable, "-c", script, json.dumps(content)],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONHASHSEED": "7"},
    )
    assert shown.stdout.strip() == digest(content)
    assert digest(content) == digest_bytes(canonical_json(content).encode())
