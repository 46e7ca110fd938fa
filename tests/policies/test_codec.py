"""Codecs: one well-formed call is a call; everything else a model may write is malformed, kept short, and raises
nothing."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.contracts.canonical import canonical_json
from ratchet.policies.codec import parse_call

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab<>_/", max_size=4), inner, max_size=3),
    max_leaves=6,
)


def written(value: object) -> str:
    return f"<tool_call>{json.dumps(value)}</tool_call>"


@given(st.dictionaries(st.text("abc", min_size=1), PLAIN, max_size=3), st.booleans())
def test_what_was_written_as_a_call_is_read_as_that_call(arguments: dict, listed: bool) -> None:
    value = {"name": "edit_line", "arguments": arguments}
    text = written([value] if listed else value)
    if text.count("<tool_call>") == 1 and text.count("</tool_call>") == 1:
        call = parse_call(text, "tool_call")
        assert (call.name, call.arguments, call.malformed) == ("edit_line", arguments, None)


def test_a_thought_before_the_call_is_no_part_of_it() -> None:
    call = parse_call('I look first.\n<tool_call>\n{"name": "run_tests", "arguments": {}}\n</tool_call>\n', "tool_call")
    assert (call.name, call.arguments, call.malformed) == ("run_tests", {}, None)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "run_tests",
        "I would run the tests.",
        '{"name": "run_tests", "arguments": {}}',
        '<tool_call>{"name": "run_tests", "arguments": {}}',
        written({"name": "run_tests"}) + " and then",
        written({"name": "run_tests"}) * 2,
        written([{"name": "run_tests"}, {"name": "submit"}]),
        written([]),
        written("run_tests"),
        written({"name": "", "arguments": {}}),
        written({"name": 7, "arguments": {}}),
        written({"name": "run_tests", "arguments": []}),
        written({"name": "run_tests", "arguments": "{}"}),
        written({"name": "run_tests", "arguments": None}),
        written({"name": "run_tests", "parameters": {}}),
        '<tool_call>{"name": "run_tests", "name": "submit"}</tool_call>',
        '<tool_call>{"name": "edit_line", "arguments": {"line": NaN}}</tool_call>',
        '<tool_call>{"name": "edit_line", "arguments": {"line": 1e999}}</tool_call>',
        '<tool_call>{"name": "edit_line", "arguments": {"text": "\\ud800"}}</tool_call>',
        '<tool_call>{"name": "edit_line", "arguments": {"line": ' + "9" * 5000 + "}}</tool_call>",
        '<tool_call>{"name": "edit_line", "arguments": ' + "[" * 100_000 + "}</tool_call>",
        "<tool_call>{'name': 'run_tests'}</tool_call>",
    ],
    ids=range(23),
)
def test_what_is_not_exactly_one_call_is_malformed_and_keeps_its_text(text: str) -> None:
    call = parse_call(text, "tool_call")
    assert (call.name, call.arguments) == ("", {})
    assert call.malformed == text.strip()[:200]


@given(st.text('<tool_cal>/{}[]":, name', max_size=60))
def test_no_text_raises_and_every_call_can_be_recorded(text: str) -> None:
    for codec in ("tool_call", "single_token"):
        call = parse_call(text, codec)  # type: ignore[arg-type]
        assert (call.malformed is None) == bool(call.name)
        canonical_json(call)
