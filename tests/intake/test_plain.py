"""The plain shape: a document that skips the models is, to the byte, the one that they would have written."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_jsontext import plain as plain_json

from ratchet.intake import plain
from ratchet.intake.canon import canonical_bytes
from ratchet.intake.formats.openai_chat import read
from ratchet.intake.plain import document_of
from ratchet.intake.records import Record, Unreadable
from ratchet.intake.validate import trajectory_of

OWNER = {"tenant": "acme", "grant_id": "g"}
text = st.text(max_size=4)
kept = st.dictionaries(text, plain_json, max_size=2)
odd = st.sampled_from([None, 1, True, 1.5, [], {}, "x", [{"type": "text", "text": "t"}], [{"type": "text"}]])
ids = st.sampled_from(["c1", "c2", "c3"])


def fields(required: dict, optional: dict):
    """Objects that have the fields, and now and then one of another kind, or one that is not known."""
    honest = st.fixed_dictionaries(required, optional=optional)
    names = st.sampled_from([*required, *optional, "unknown"])
    spoiled = st.builds(lambda held, name, value: {**held, name: value}, honest, names, odd)
    return st.integers(0, 9).flatmap(lambda chance: spoiled if chance == 0 else honest)


calls = st.lists(fields({"tool_call_id": ids, "function_name": text, "arguments": kept}, {"extra": kept}), max_size=2)
results = st.lists(
    fields({"content": text | st.none()}, {"source_call_id": ids | st.none(), "extra": kept}), max_size=2
)
agent_fields = {
    "reasoning_content": text,
    "tool_calls": calls,
    "observation": fields({"results": results}, {}),
    "timestamp": text,
    "extra": kept,
    "metrics": fields({}, {"prompt_tokens": st.integers(0, 9), "cost_usd": st.none() | st.just(1)}),
    "is_copied_context": st.booleans(),
}
steps = st.lists(
    fields({"source": st.just("agent"), "message": text}, agent_fields)
    | fields({"source": st.sampled_from(["system", "user"]), "message": text}, {"timestamp": text, "extra": kept}),
    max_size=4,
)
agents = fields(
    {"name": text, "version": text},
    {"model_name": text | st.none(), "tool_definitions": st.none() | st.lists(kept, max_size=2)},
)
claims = fields(
    {}, {"task_id": text, "segment": text, "seed": st.integers(), "anomalies": st.lists(text), "calls": odd}
)


@st.composite
def records(draw):
    numbered = [{"step_id": at, **step} for at, step in enumerate(draw(steps), draw(st.sampled_from([1, 1, 1, 1, 2])))]
    document = {
        "schema_version": draw(st.sampled_from(["ATIF-v1.8", "ATIF-v1.2", "ATIF-v1.8", "x"])),
        "agent": draw(agents),
        "steps": numbered,
        "extra": draw(kept | st.none()),
        **draw(fields({}, {"session_id": text | st.none(), "notes": text})),
    }
    return Record(0, 0, b"", document, draw(claims), tuple(draw(st.lists(st.sampled_from("ab"), max_size=3))))


def outcome(make):
    try:
        return canonical_bytes(make())
    except Unreadable as error:
        return error.code, error.reason


@settings(max_examples=400, deadline=None)
@given(records())
def test_it_is_what_the_models_write_or_refuse(record):
    before = json.dumps(record.document)
    fast = outcome(lambda: document_of(record, **OWNER))
    slow = outcome(lambda: trajectory_of(record, **OWNER).model_dump(exclude_none=True))
    assert fast == slow
    assert json.dumps(record.document) == before


said = text | st.none() | st.just([{"type": "text", "text": "t"}])
made_calls = st.lists(
    fields(
        {"id": ids, "type": st.just("function"), "function": fields({"name": text, "arguments": st.just("{}")}, {})}, {}
    ),
    max_size=2,
)
messages = st.lists(
    fields({"role": st.sampled_from(["system", "user", "developer"]), "content": said}, {"timestamp": text})
    | fields(
        {"role": st.just("assistant"), "content": said},
        {"tool_calls": made_calls, "reasoning_content": text | st.none(), "timestamp": text, "name": text},
    )
    | fields({"role": st.just("tool"), "tool_call_id": ids, "content": said}, {"name": text}),
    min_size=1,
    max_size=6,
)


@settings(max_examples=400, deadline=None)
@given(messages, st.booleans())
def test_a_chat_whose_steps_are_not_looked_at_again_is_what_the_models_write(given_messages, completed):
    body = {"messages": given_messages}
    if completed:
        answer = {"role": "assistant", "content": "yes"}
        body |= {"choices": [{"message": answer}], "usage": {"prompt_tokens": 1, "completion_tokens": None}}
    for record in read(json.dumps(body).encode(), "x"):
        if isinstance(record, Record):
            fast = outcome(lambda record=record: document_of(record, **OWNER))
            slow = outcome(lambda record=record: trajectory_of(record, **OWNER).model_dump(exclude_none=True))
            assert fast == slow


@pytest.mark.parametrize(
    ("content", "named", "plain_steps"), [("done", "c", True), (None, "c", False), ("done", "c2", True)]
)
def test_a_chat_says_of_itself_whether_its_steps_are_plain(content, named, plain_steps):
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    asked = [
        {"role": "assistant", "content": "x", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": named, "content": content},
    ]
    (record,) = read(json.dumps({"messages": asked}).encode(), "x")
    (orphan,) = read(json.dumps({"messages": asked[1:]}).encode(), "x")
    assert (record.plain, orphan.plain) == (plain_steps, False)


def test_a_field_that_is_not_known_is_refused_where_it_is_null_too():
    step = {"step_id": 1, "source": "system", "message": ""}
    document = {"schema_version": "ATIF-v1.8", "agent": {"name": "", "version": ""}, "steps": [step], "unknown": None}
    with pytest.raises(Unreadable, match="unknown: Extra inputs are not permitted"):
        document_of(Record(0, 0, b"", document, {}), **OWNER)


def test_a_chat_skips_the_models(monkeypatch):
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": None, "tool_calls": [call], "reasoning_content": "think"},
        {"role": "tool", "tool_call_id": "c", "content": "done"},
        {"role": "tool", "tool_call_id": "x", "content": None},
    ]
    body = {"messages": messages, "model": "m", "metadata": {"ratchet": {"task_id": "t"}}, "tools": [{"type": "x"}]}
    (record,) = read(json.dumps(body).encode(), "x")
    slow = trajectory_of(record, **OWNER).model_dump(exclude_none=True)
    monkeypatch.setattr(plain, "trajectory_of", None)
    assert document_of(record, **OWNER) == slow


@pytest.mark.parametrize("field", ["tenant", "grant_id"])
def test_another_owner_is_refused(field):
    (record,) = read(
        b'{"messages": [{"role": "user", "content": "x"}], "metadata": {"ratchet": {"%b": "other"}}}' % field.encode(),
        "x",
    )
    with pytest.raises(Unreadable, match=f"another {field}"):
        document_of(record, **OWNER)


@pytest.mark.parametrize("claimed", [None, "x", [1], {}])
def test_claimed_anomalies_that_are_no_list_of_texts_are_refused(claimed):
    body = {"messages": [{"role": "user", "content": "x"}], "metadata": {"ratchet": {"anomalies": claimed}}}
    (record,) = read(json.dumps(body).encode(), "x")
    with pytest.raises(Unreadable, match="metadata is wrong: anomalies"):
        document_of(record, **OWNER)
