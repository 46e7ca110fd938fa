"""ShareGPT and LLaMA-Factory sets: turns in both spellings, calls as text, alpaca rows, preferences."""

import json
from pathlib import Path

import pytest

from ratchet.intake.formats import recognise
from ratchet.intake.formats.sharegpt import read
from ratchet.intake.records import Record, Rejected
from ratchet.intake.validate import trajectory_of

SAMPLES = Path(__file__).parent / "samples" / "sharegpt"


def sample(name):
    return list(read((SAMPLES / name).read_bytes(), name))


def one(**body):
    (record,) = read(json.dumps(body).encode(), "x.json")
    return record


def turn(speaker, value):
    return {"from": speaker, "value": value}


def log(record):
    assert isinstance(record, Record), record.reason
    return trajectory_of(record, tenant="acme", grant_id="g")


def said(record):
    return [(step.source, step.message) for step in log(record).steps]


def test_a_call_turn_becomes_a_call_and_the_observation_its_answer():
    record = sample("turns.json")[0]
    found = log(record)
    assert [step.source for step in found.steps] == ["system", "user", "agent", "agent"]
    (call,) = found.steps[2].tool_calls
    assert (call.function_name, call.arguments) == ("area", {"shape": "rectangle", "sides": [5, 3]})
    assert [result.content for result in found.steps[2].observation.results] == ['{"area": 15}']
    assert found.steps[2].observation.results[0].source_call_id == call.tool_call_id
    assert found.agent.tool_definitions[0]["function"]["name"] == "area"
    assert {"tools_as_string", "bare_tool_schema", "missing_call_id"} <= set(record.anomalies)


def test_parallel_calls_of_one_turn_are_answered_in_order():
    found = log(sample("turns.json")[1])
    calls = found.steps[2].tool_calls
    assert [(call.function_name, call.arguments) for call in calls] == [("one", {}), ("two", {"x": 1})]
    results = found.steps[2].observation.results
    assert [result.content for result in results] == ["1", "2"]
    assert [result.source_call_id for result in results] == [call.tool_call_id for call in calls]


def test_a_system_turn_counts_before_the_column_which_is_kept():
    found = log(sample("turns.json")[1])
    assert found.steps[0].message == "You count."
    assert found.extra["sharegpt"] == {"system": "ignored"}


def test_a_blank_tools_column_is_no_tools():
    assert log(sample("turns.json")[1]).agent.tool_definitions is None


def test_a_call_turn_that_holds_no_call_is_kept_as_text():
    record = sample("turns.json")[2]
    assert said(record)[1] == ("agent", "I would call area(5, 3)")
    assert {"call_as_text", "orphan_result", "ends_on_result"} <= set(record.anomalies)


def test_older_names_null_values_and_media_are_kept():
    found = log(sample("turns.json")[3])
    assert [(step.source, step.message) for step in found.steps] == [("user", "hi"), ("agent", "")]
    assert found.extra["sharegpt"] == {"images": ["a.png"]}


@pytest.mark.parametrize(("number", "code"), [(4, "unknown_role"), (5, "no_messages")])
def test_a_row_without_a_reading_is_rejected_alone(number, code):
    assert sample("turns.json")[number].code == code


@pytest.mark.parametrize("speaker", ["function_call", "function-call", "tool_call", "function"])
@pytest.mark.parametrize(
    "value",
    [
        {"name": "f", "arguments": {"x": 1}},
        {"name": "f", "parameters": {"x": 1}},
        {"type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}},
    ],
)
def test_calls_are_read_in_every_spelling(speaker, value):
    found = log(one(conversations=[turn("human", "q"), turn(speaker, json.dumps(value)), turn("observation", "1")]))
    (call,) = found.steps[1].tool_calls
    assert (call.function_name, call.arguments) == ("f", {"x": 1})


def test_a_function_turn_without_a_call_is_a_result():
    record = one(conversations=[turn("human", "q"), turn("function_call", '{"name": "f"}'), turn("function", "42")])
    assert log(record).steps[1].observation.results[0].content == "42"
    assert "empty_arguments" in record.anomalies


def test_turns_as_roles_are_read_and_the_model_named():
    (record,) = sample("roles.jsonl")
    found = log(record)
    assert said(record) == [("user", "hi"), ("agent", "hello")]
    assert found.agent.model_name == "vicuna-13b"
    assert found.extra["sharegpt"]["language"] == "English"


def test_instruction_and_input_of_an_alpaca_row_are_joined_and_can_be_told_apart():
    record = sample("alpaca.json")[0]
    assert said(record) == [("user", "Add.\n1 and 2"), ("agent", "3")]
    at = log(record).steps[0].extra["sharegpt"]["input_at"]
    assert log(record).steps[0].message[at:] == "1 and 2"


def test_system_and_history_of_an_alpaca_row_come_first():
    assert said(sample("alpaca.json")[1]) == [
        ("system", "You add."), ("user", "Add 1 and 2."), ("agent", "3"), ("user", "And now?"), ("agent", "4"),
    ]  # fmt: skip


def test_a_feedback_tag_is_a_claim():
    found = log(sample("alpaca.json")[2])
    assert found.extra["sharegpt"] == {"kto_tag": False}
    assert found.ratchet.score.kind == "unscored"


def test_a_history_that_is_no_pair_is_rejected():
    assert sample("alpaca.json")[-1].code == "bad_message"


@pytest.mark.parametrize(("name", "number"), [("alpaca.json", 3), ("preference.jsonl", 0), ("preference.jsonl", 1)])
def test_a_preference_becomes_two_records_whose_prompt_counts_once(name, number):
    chosen, rejected = (item for item in sample(name) if item.number == number)
    assert (chosen.offset, chosen.raw) == (rejected.offset, rejected.raw)
    assert said(chosen)[:-1] == said(rejected)[:-1]
    assert said(chosen)[-1] != said(rejected)[-1]
    assert not any(step.is_copied_context for step in log(chosen).steps)
    assert [bool(step.is_copied_context) for step in log(rejected).steps] == [True] * (len(said(rejected)) - 1) + [
        False
    ]
    sides = [item.document["extra"]["sharegpt"]["preference"] for item in (chosen, rejected)]
    assert [side["side"] for side in sides] == ["chosen", "rejected"]
    assert sides[0]["pair"] == sides[1]["pair"]


def test_of_a_pair_with_one_broken_side_neither_comes_in():
    assert [type(item) for item in sample("preference.jsonl") if item.number == 2] == [Rejected]


@pytest.mark.parametrize(
    ("body", "owner"),
    [
        ({"conversations": [turn("human", "x")]}, ["sharegpt"]),
        ({"instruction": "i", "output": "o"}, ["sharegpt"]),
        ({"messages": [], "chosen": {"role": "assistant"}, "rejected": {"role": "assistant"}}, ["sharegpt"]),
        ({"messages": [{"role": "user", "content": "x"}], "label": True}, ["openai_chat"]),
        ({"instruction": "i"}, []),
        ({"instruction": {"type": "x"}, "output": "o"}, []),
    ],
)
def test_rows_of_neighbouring_shapes_have_one_owner(body, owner):
    assert recognise(json.dumps(body).encode(), "x.json") == owner
