"""TRL data sets: every type and both formats, and both sides of a preference or none."""

import json
from pathlib import Path

import pytest

from ratchet.intake.containers import unpack
from ratchet.intake.formats import recognise
from ratchet.intake.formats.trl import read
from ratchet.intake.records import Record, Rejected
from ratchet.intake.validate import trajectory_of

SAMPLES = Path(__file__).parent / "samples" / "trl"


def sample(name):
    return list(read((SAMPLES / name).read_bytes(), name))


def rows(*bodies):
    return list(read("".join(json.dumps(body) + "\n" for body in bodies).encode(), "x.jsonl"))


def log(record):
    assert isinstance(record, Record), record.reason
    return trajectory_of(record, tenant="acme", grant_id="g")


def turns(record):
    return [(step.source, step.message, bool(step.is_copied_context)) for step in log(record).steps]


def side(record):
    return record.document["extra"]["trl"]["preference"]["side"]


def test_prompt_and_completion_of_messages_become_one_conversation():
    first, *_ = sample("conversational.jsonl")
    assert turns(first) == [("user", "What color is the sky?", False), ("agent", "It is blue.", False)]


def test_calls_results_thinking_and_tools_are_kept():
    record = sample("conversational.jsonl")[1]
    found = log(record)
    call = found.steps[2].tool_calls[0]
    assert (call.function_name, call.arguments) == ("control_light", {"room": "hall", "state": "on"})
    assert found.steps[2].observation.results[0].content == "on"
    assert found.steps[3].reasoning_content == "one call is enough"
    assert found.agent.tool_definitions[0]["function"]["name"] == "control_light"
    # Arguments are objects by definition; ids are not part of it, and are issued.
    assert set(record.anomalies) == {"missing_call_id", "result_paired_by_order"}


def test_tools_as_a_string_are_decoded():
    record = sample("conversational.jsonl")[2]
    assert log(record).agent.tool_definitions[0]["function"]["name"] == "control_light"
    assert "tools_as_string" in record.anomalies


def test_a_prompt_alone_is_kept_with_its_other_columns():
    record = sample("conversational.jsonl")[3]
    assert record.anomalies == ("prompt_only",)
    assert log(record).extra["trl"] == {"answer": "42"}


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_preference_becomes_two_records_of_one_place_whose_prompt_counts_once(number):
    chosen, rejected = (item for item in sample("preference.jsonl") if item.number == number)
    assert (chosen.offset, chosen.raw) == (rejected.offset, rejected.raw)
    assert (side(chosen), side(rejected)) == ("chosen", "rejected")
    assert log(chosen).extra["trl"]["preference"]["pair"] == log(rejected).extra["trl"]["preference"]["pair"]
    assert [step[2] for step in turns(chosen)] == [False, False]
    assert [step[2] for step in turns(rejected)] == [True, False]
    assert "lue" in turns(chosen)[1][1]
    assert "reen" in turns(rejected)[1][1]


def test_scores_are_kept_as_claims_and_never_as_a_score():
    chosen = sample("preference.jsonl")[0]
    assert log(chosen).extra["trl"]["score_chosen"] == 9.0
    assert log(chosen).ratchet.score.kind == "unscored"


def test_a_plain_prompt_beside_conversational_sides_is_kept_and_not_said_twice():
    chosen = next(item for item in sample("preference.jsonl") if item.number == 2)
    assert [step[1] for step in turns(chosen)] == ["Sky?", "It is blue."]
    assert log(chosen).extra["trl"]["prompt"] == "Sky?"


@pytest.mark.parametrize("broken", ["chosen", "rejected"])
@pytest.mark.parametrize(
    "answer", [[{"role": "wizard", "content": "x"}], [{"role": "assistant", "content": 7}], [7], 7]
)
def test_of_a_pair_with_one_broken_side_neither_comes_in(broken, answer):
    good = {"prompt": "p", "chosen": "a", "rejected": "b"}
    body = {"prompt": [{"role": "user", "content": "p"}], "chosen": [], "rejected": []} | {
        key: [{"role": "assistant", "content": key}] for key in ("chosen", "rejected")
    }
    found = rows(good, {**body, broken: answer}, good)
    assert [type(item) for item in found] == [Record, Record, Rejected, Record, Record]


def test_of_a_pair_whose_side_is_no_valid_trajectory_neither_comes_in():
    audio = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
    bad = {"role": "assistant", "content": "x", "reasoning_content": "y", "timestamp": "t", "tool_calls": []}
    found = rows(
        {"prompt": "p", "chosen": [bad | {"content": [audio]}], "rejected": [{"role": "tool", "content": "x" * 3}]},
        {"prompt": [{"role": "user", "content": "p"}], "chosen": [bad], "rejected": [{"role": 1, "content": "x"}]},
    )
    assert {item.number: sum(1 for other in found if other.number == item.number) for item in found} == {0: 2, 1: 1}


def test_equal_sides_are_noted():
    equal = [item for item in sample("preference.jsonl") if item.number == 4]
    assert [item.anomalies for item in equal] == [("equal_sides",)] * 2


def test_plain_text_with_an_implicit_prompt_is_cut_before_the_word_that_differs():
    chosen, rejected = sample("preference_text.json")[2:]
    assert [step[1] for step in turns(chosen)] == ["The sky is", " blue."]
    assert [step[1] for step in turns(rejected)] == ["The sky is", " green."]


@pytest.mark.slow  # importing TRL takes longer than all other tests of this file
def test_plain_text_with_an_implicit_prompt_is_cut_as_trl_cuts_it():
    from trl import extract_prompt

    body = {"chosen": "The sky is blue.", "rejected": "The sky is green."}
    expected = extract_prompt(body)
    chosen, rejected = rows(body)
    assert [step[1] for step in turns(chosen)] == [expected["prompt"], expected["chosen"]]
    assert [step[1] for step in turns(rejected)] == [expected["prompt"], expected["rejected"]]


def test_sides_that_share_nothing_have_no_prompt():
    chosen, rejected = rows({"chosen": "yes", "rejected": "no"})
    assert (turns(chosen), turns(rejected)) == ([("agent", "yes", False)], [("agent", "no", False)])


def test_where_one_side_begins_the_other_each_keeps_an_answer():
    short = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    longer = [*short, {"role": "user", "content": "more"}, {"role": "assistant", "content": "b"}]
    chosen, rejected = rows({"chosen": longer, "rejected": short})
    assert [step[2] for step in turns(rejected)] == [True, False]
    assert len(turns(chosen)) == 4


def test_the_label_of_an_unpaired_row_is_a_claim():
    text, messages = sample("unpaired.jsonl")
    assert (log(text).extra["trl"], log(messages).extra["trl"]) == ({"label": True}, {"label": False})
    assert [step[1] for step in turns(text)] == ["The sky is", " blue."]


def test_a_stepwise_row_has_a_step_and_a_label_for_each_completion():
    record, broken = sample("stepwise.jsonl")
    assert [(step.extra or {}).get("trl") for step in log(record).steps] == [None, {"label": True}, {"label": False}]
    assert broken.code == "bad_labels"


def test_parquet_rows_are_read_as_lines():
    data = b"".join(unpack((SAMPLES / "preference.parquet").read_bytes()))
    assert recognise(data, "x.parquet") == ["trl"]
    assert [side(item) for item in read(data, "x")] == ["chosen", "rejected"]


@pytest.mark.parametrize(
    ("body", "owner"),
    [
        ({"messages": [{"role": "user", "content": "x"}]}, ["openai_chat"]),
        ({"prompt": "p", "messages": [{"role": "user", "content": "x"}]}, ["openai_chat"]),
        ({"prompt": "p", "chosen": [], "rejected": [], "messages": [{"role": "user", "content": "x"}]}, ["trl"]),
        ({"question": "q", "chosen": "a", "rejected": "b"}, []),
        ({"prompt": "p"}, []),
        ({"prompt": "p", "choices": [{"text": "x"}]}, []),
        ({"text": "x"}, []),
    ],
)
def test_rows_of_neighbouring_shapes_have_one_owner(body, owner):
    assert recognise(json.dumps(body).encode(), "x.json") == owner
