"""ATIF documents: all versions, kept whole, and judged as the ATIF schema judges them."""

import copy
import json
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from intake_world import document

from ratchet.intake.formats import recognise
from ratchet.intake.formats.atif import read
from ratchet.intake.records import Rejected, Unreadable
from ratchet.intake.validate import trajectory_of

SCHEMA = jsonschema.Draft202012Validator(json.loads((Path(__file__).parent / "atif_v1_8.schema.json").read_text()))


def rich() -> dict:
    """A document that uses most of ATIF."""
    body = document()
    body["session_id"] = "s1"
    body["notes"] = "n"
    body["final_metrics"] = {"total_steps": 3, "total_cost_usd": 0.1, "extra": {"k": None}}
    body["agent"] |= {"model_name": "m", "tool_definitions": [{"type": "function", "function": {"name": "run"}}]}
    body["steps"][0]["message"] = [
        {"type": "text", "text": "look"},
        {"type": "image", "source": {"media_type": "image/png", "path": "a.png"}},
        {"type": "audio", "source": {"media_type": "audio/wav", "path": "a.wav", "duration_sec": 1.5}},
    ]
    body["steps"][1] |= {
        "timestamp": "2030-01-01T00:00:00Z",
        "model_name": "m",
        "reasoning_effort": 0.5,
        "reasoning_content": "think",
        "is_copied_context": False,
        "llm_call_count": 1,
        "metrics": {"prompt_tokens": 2, "completion_token_ids": [1, 2], "logprobs": [-1.0, -2]},
    }
    inner = {k: v for k, v in document(9).items() if k != "extra"} | {"trajectory_id": "sub"}
    body["subagent_trajectories"] = [inner]
    body["steps"][1]["observation"]["results"][0]["subagent_trajectory_ref"] = [{"trajectory_id": "sub"}]
    return body


def verdict(body):
    """Read one document; returns the trajectory, or the code of its rejection."""
    (record,) = read(json.dumps(body).encode(), "x.json")
    if isinstance(record, Rejected):
        return record.code
    try:
        return trajectory_of(record, tenant="acme", grant_id="g")
    except Unreadable as error:
        return error.code


def test_a_document_is_kept_whole():
    body = rich()
    kept = verdict(body).model_dump(mode="json", exclude_none=True)
    assert kept["extra"]["ratchet"].items() >= body["extra"]["ratchet"].items()
    assert {**kept, "extra": body["extra"]} == body


@pytest.mark.parametrize("minor", range(9))
def test_every_version_is_read_and_an_older_one_remembered(minor):
    kept = verdict(document() | {"schema_version": f"ATIF-v1.{minor}"})
    assert kept.schema_version == "ATIF-v1.8"
    assert kept.extra.get("atif_version") == (None if minor == 8 else f"ATIF-v1.{minor}")


@pytest.mark.parametrize("version", ["ATIF-v1.9", "ATIF-v2.0", 1.8])
def test_a_version_we_do_not_know_is_rejected(version):
    assert verdict(document() | {"schema_version": version}) == "unknown_version"


def _places(value, path=()):
    yield path
    for key, child in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from _places(child, (*path, key))


PLACES = [place for place in _places(rich()) if place and place[0] != "extra"]


@settings(max_examples=250, deadline=None)
@given(
    st.sampled_from(PLACES), st.sampled_from([None, "text", 7, 1.5, True, [], {}, [1], {"a": 1}, "<gone>", "<more>"])
)
def test_what_the_atif_schema_refuses_is_never_stored(place, value):
    body = copy.deepcopy(rich())
    holder = body
    for key in place[:-1]:
        holder = holder[key]
    if value == "<gone>":
        del holder[place[-1]]
    elif value == "<more>":
        if isinstance(holder, dict):
            holder["surprise"] = 1
    else:
        holder[place[-1]] = value
    kept = verdict(body)
    if not isinstance(kept, str):
        SCHEMA.validate(kept.model_dump(mode="json", exclude_none=True))
    elif place[:3] != ("steps", 1, "tool_calls") and SCHEMA.is_valid(body):
        # Stricter than the schema only where the specification has a rule that the schema cannot state.
        assert kept in {"not_atif", "unknown_version"}


def test_honest_documents_satisfy_the_schema_and_us():
    for body in (rich(), document()):
        SCHEMA.validate(body)
        assert not isinstance(verdict(body), str)


@pytest.mark.parametrize(
    "change",
    [
        {"step_id": 7},
        {"source": "user"},
        {"llm_call_count": 0, "metrics": {"prompt_tokens": 1}},
        {"message": [{"type": "image", "source": {"media_type": "audio/wav", "path": "x"}}]},
        {"message": [{"type": "image", "source": {"media_type": "image/tiff", "path": "x"}}]},
    ],
)
def test_what_the_specification_forbids_is_rejected(change):
    body = document()
    body["steps"][1] |= change
    assert verdict(body) == "not_atif"


def test_embedded_trajectories_need_names_of_their_own():
    body = rich()
    body["subagent_trajectories"] *= 2
    assert verdict(body) == "not_atif"


def test_duplicate_and_missing_call_ids_are_reissued_with_their_answers():
    body = document() | {"trajectory_id": "t"}
    call, result = body["steps"][1]["tool_calls"][0], body["steps"][1]["observation"]["results"][0]
    body["steps"][2] |= {
        "tool_calls": [copy.deepcopy(call), {**copy.deepcopy(call), "tool_call_id": ""}],
        "observation": {
            "results": [{**result, "content": "3 passed"}, {**result, "source_call_id": "no", "content": "?"}]
        },
    }
    kept = verdict(body)
    assert [item.tool_call_id for item in kept.steps[2].tool_calls] == ["t:3:0", "t:3:1"]
    assert kept.steps[2].tool_calls[0].extra == {"original_call_id": "c1"}
    assert [item.source_call_id for item in kept.steps[2].observation.results] == ["t:3:0", "t:3:1"]
    assert kept.steps[1].observation.results[0].source_call_id == "c1"
    assert {"duplicate_call_id", "missing_call_id", "result_paired_by_order"} <= set(kept.ratchet.anomalies)


def test_results_of_no_call_are_left_alone():
    body = document()
    body["steps"][0] |= {"source": "system", "observation": {"results": [{"content": "booted"}]}}
    kept = verdict(body)
    assert kept.steps[0].observation.results[0].source_call_id is None
    assert kept.ratchet.anomalies == []


def test_it_is_recognised_by_version_or_by_shape_alone():
    bare = {key: value for key, value in document().items() if key != "schema_version"}
    for body in (document(), bare):
        assert recognise(json.dumps(body, indent=2).encode(), "x.json") == ["atif"]
        assert recognise((json.dumps(body) + "\n").encode() * 2, "x.jsonl") == ["atif"]
