"""The training profile: samples replay the engine's ids, mask what was not sampled, and refuse what does not fit."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.contracts.policy import Decoding
from ratchet.contracts.training import samples, turn_extra
from ratchet.contracts.trajectory import Agent, Step, StepMetrics, Trajectory
from ratchet.errors import TrainingError

EXTRA = turn_extra(Decoding(), "stop", "v1")


def turn(step_id, prompt, sampled, logprobs="fit", **fields):
    logprobs = [-0.5] * len(sampled) if logprobs == "fit" else logprobs
    metrics = StepMetrics(prompt_token_ids=prompt, completion_token_ids=sampled, logprobs=logprobs)
    return Step(**{"step_id": step_id, "source": "agent", "message": "", "metrics": metrics, "extra": EXTRA} | fields)


def log(*steps):
    return Trajectory(trajectory_id="t1", agent=Agent(name="a", version="1"), steps=list(steps))


ids = st.lists(st.integers(0, 50), min_size=1, max_size=6)


@st.composite
def engine_logs(draw):
    """Turns as an engine makes them: each prompt extends all ids before it, or is a rewritten history."""
    turns, history = [], draw(ids)
    for number in range(draw(st.integers(1, 6))):
        if number and draw(st.booleans()):
            history = draw(ids)
        elif number:
            history = history + draw(st.lists(st.integers(0, 50), max_size=4))
        sampled = draw(ids)
        turns.append((list(history), sampled))
        history = history + sampled
    return turns


@settings(max_examples=60, deadline=None)
@given(engine_logs())
def test_every_sampled_turn_is_replayed_exactly_once(turns):
    got = samples(log(*(turn(number, *pair) for number, pair in enumerate(turns, 1))))
    assert [step for sample in got for step in sample.step_ids] == list(range(1, len(turns) + 1))
    for sample in got:
        assert len(sample.input_ids) == len(sample.sampled_mask) == len(sample.logprobs)
        position = 0
        for step in sample.step_ids:
            prompt, sampled = turns[step - 1]
            end = len(prompt) + len(sampled)
            assert sample.input_ids[:end] == prompt + sampled
            assert sample.sampled_mask[position:end] == [False] * (len(prompt) - position) + [True] * len(sampled)
            position = end
        assert position == len(sample.input_ids)


def test_a_rewritten_history_forks_the_sample_and_masks_the_earlier_turn_in_it():
    first, second = samples(log(turn(1, [1, 2], [3]), turn(2, [1, 9, 3], [4])))
    assert (first.input_ids, first.step_ids) == ([1, 2, 3], (1,))
    assert (second.input_ids, second.sampled_mask) == ([1, 9, 3, 4], [False, False, False, True])


def test_copied_context_and_deterministic_steps_are_never_trained_on():
    copied = turn(1, [1], [2], is_copied_context=True)
    dispatched = Step(step_id=2, source="agent", message="", llm_call_count=0)
    (sample,) = samples(log(copied, dispatched, turn(3, [1, 2], [5])))
    assert (sample.input_ids, sample.sampled_mask, sample.step_ids) == ([1, 2, 5], [False, False, True], (3,))


def test_a_turn_without_logprobs_leaves_the_whole_sample_without():
    (sample,) = samples(log(turn(1, [1], [2]), turn(2, [1, 2], [3], logprobs=None)))
    assert sample.logprobs is None


@pytest.mark.parametrize(
    ("step", "rule"),
    [
        (turn(1, [1], [2, 3], logprobs=[-1.0]), "one log-probability per sampled token"),
        (turn(1, [1], [2], logprobs=[math.nan]), "finite and at most 0"),
        (turn(1, [1], [2], logprobs=[-math.inf]), "finite and at most 0"),
        (turn(1, [1], [2], logprobs=[0.5]), "finite and at most 0"),
        (turn(1, [1], [-2]), "must not be negative"),
        (turn(1, None, [2]), "must record prompt_token_ids"),
        (turn(1, [1], []), "must record prompt_token_ids"),
        (turn(1, [1], [2], extra=None), "extra.ratchet.sampling"),
        (turn(1, [1], [2], extra={"ratchet": {**EXTRA["ratchet"], "policy_version": ""}}), "policy_version"),
        (turn(1, [1], [2], llm_call_count=2), "one model call"),
        (Step(step_id=1, source="agent", message="text alone"), "must record prompt_token_ids"),
    ],
)
def test_what_the_atif_validator_lets_through_is_refused_by_step_and_rule(step, rule):
    with pytest.raises(TrainingError, match=rule) as caught:
        samples(log(step))
    assert "trajectory t1 step 1" in str(caught.value)


def test_counts_must_agree_with_ids():
    wrong = StepMetrics(prompt_token_ids=[1], completion_token_ids=[2], completion_tokens=5)
    with pytest.raises(TrainingError, match="counts and ids"):
        samples(log(turn(1, [1], [2], metrics=wrong)))
