"""ATIF's own rules: steps without gaps, calls told apart, results that answer a call; and Ratchet's fields on top."""

import json

import pytest
from pydantic import ValidationError

from ratchet.contracts.score import Invalid, Scored, Unscored
from ratchet.contracts.trajectory import (
    Agent,
    CallRecord,
    ContentPart,
    MediaSource,
    Observation,
    ObservationResult,
    RatchetExtra,
    Step,
    SubagentRef,
    Trajectory,
    text_of,
)

AGENT = Agent(name="a", version="1")


def step(number: int, calls: tuple[str, ...] = (), answers: tuple[str | None, ...] = (), source: str = "agent") -> Step:
    return Step(
        step_id=number,
        source=source,
        message="",
        tool_calls=[CallRecord(tool_call_id=one, function_name="f", arguments={}) for one in calls] or None,
        observation=Observation(results=[ObservationResult(source_call_id=one, content="r") for one in answers])
        if answers
        else None,
    )


def log(*steps: Step, **fields) -> Trajectory:
    return Trajectory(agent=AGENT, steps=list(steps), **fields)


@pytest.mark.parametrize("numbers", [(1, 3), (2,), (1, 1), (2, 1), (1, 2, 2)])
def test_steps_are_numbered_from_one_without_gaps(numbers: tuple[int, ...]) -> None:
    with pytest.raises(ValidationError, match="step_id must run from 1 without gaps"):
        log(*(step(number) for number in numbers))


def test_a_trajectory_has_at_least_one_step() -> None:
    with pytest.raises(ValidationError, match="steps"):
        log()


@pytest.mark.parametrize("steps", [(step(1, ("c1", "c1")),), (step(1, ("c1",)), step(2, ("c1",)))])
def test_a_call_id_is_used_once(steps: tuple[Step, ...]) -> None:
    with pytest.raises(ValidationError, match="'c1' occurs twice"):
        log(*steps)


@pytest.mark.parametrize("steps", [(step(1, ("c1",), ("c2",)),), (step(1, (), ("c2",)), step(2, ("c2",)))])
def test_a_result_answers_a_call_that_was_made_before(steps: tuple[Step, ...]) -> None:
    with pytest.raises(ValidationError, match="unknown call 'c2'"):
        log(*steps)


def test_a_result_without_a_call_is_allowed_and_calls_may_be_answered_later() -> None:
    assert log(step(1, ("c1", "c2"), ("c1", None)), step(2, (), ("c2",)))


def test_the_rules_hold_for_embedded_trajectories() -> None:
    inner = {"agent": {"name": "b", "version": "1"}, "steps": [{"step_id": 2, "source": "agent", "message": ""}]}
    with pytest.raises(ValidationError, match="without gaps"):
        Trajectory.model_validate(
            {"agent": AGENT.model_dump(), "steps": [step(1).model_dump()], "subagent_trajectories": [inner]}
        )


@pytest.mark.parametrize("version", ["ATIF-v1.9", "ATIF-v2.0", "1.8", ""])
def test_a_foreign_version_is_refused(version: str) -> None:
    with pytest.raises(ValidationError, match="schema_version"):
        log(step(1), schema_version=version)


def test_a_field_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ValidationError, match="Extra inputs"):
        Step(step_id=1, source="user", message="", mood="good")


@pytest.mark.parametrize(
    "part",
    [
        {"type": "text"},
        {"type": "image", "text": "x"},
        {"type": "text", "text": "x", "source": {"media_type": "image/png", "path": "p"}},
        {"type": "image", "source": {"media_type": "text/html", "path": "p"}},
    ],
)
def test_a_content_part_holds_what_its_type_says(part: dict) -> None:
    with pytest.raises(ValidationError):
        ContentPart.model_validate(part)


def test_a_subagent_reference_can_be_followed() -> None:
    with pytest.raises(ValidationError, match="trajectory_id or trajectory_path"):
        SubagentRef(session_id="s")


def test_text_of_media_names_it() -> None:
    image = ContentPart(type="image", source=MediaSource(media_type="image/png", path="a.png"))
    assert text_of([ContentPart(type="text", text="see"), image]) == "see\n[image: a.png]"
    assert text_of(None) == ""


@pytest.mark.parametrize("score", [Scored(value=0.0, evidence={"a": 1}), Invalid(reason="tool: died"), Unscored()])
def test_ratchets_fields_travel_in_extra_and_keep_the_score_tri_state(score) -> None:
    extra = RatchetExtra(tenant="t", grant_id="g", seed=0, score=score)
    written = log(step(1), extra={"other": 1}).with_ratchet(extra)
    read = Trajectory.model_validate_json(json.dumps(written.model_dump(mode="json", exclude_none=True)))
    assert read.ratchet == extra
    assert read.extra["other"] == 1
    assert read.digest == written.digest


def test_missing_fields_of_ratchet_are_an_error_not_a_default() -> None:
    with pytest.raises(ValidationError, match="tenant"):
        _ = log(step(1)).ratchet


def test_the_digest_moves_with_any_content() -> None:
    assert len({log(step(1)).digest, log(step(1), notes="n").digest, log(step(1), step(2)).digest}) == 3
