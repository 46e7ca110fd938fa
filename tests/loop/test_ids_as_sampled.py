"""From a log to a trainer: recorded ids stay as they were, where a tokenizer would write the text otherwise."""

from __future__ import annotations

from typing import Any

import pytest

from ratchet.contracts.policy import Decoding
from ratchet.contracts.score import Scored
from ratchet.contracts.training import turn_extra
from ratchet.contracts.trajectory import (
    Agent,
    CallRecord,
    Observation,
    ObservationResult,
    RatchetExtra,
    Step,
    StepMetrics,
    Trajectory,
)
from ratchet.loop.trainer import pairs, tokens
from ratchet.policies.checkpoint import STARTER, load_tokenizer
from ratchet.policies.rendering import Rendering


@pytest.fixture
def rendering() -> Rendering:
    return Rendering(load_tokenizer(STARTER))


def letters(rendering: Rendering, text: str) -> list[int]:
    """Ids that decode to `text`, a token for each letter: what no encoding of it gives."""
    ids = [token for letter in text for token in rendering.tokenizer.encode(letter, add_special_tokens=False)]
    assert str(rendering.tokenizer.decode(ids)).replace(" ", "") == text.replace(" ", "")
    assert rendering.tokenizer.encode(text, add_special_tokens=False) != ids
    return ids


def played(rendering: Rendering, seed: int, score: float, names: tuple[str, ...]) -> tuple[Trajectory, list[int]]:
    """A log of sampled turns, each spelt letter by letter, and all of its ids."""
    ids = letters(rendering, "failing")
    steps = [Step(step_id=1, source="user", message="failing")]
    for at, name in enumerate(names):
        said = [*letters(rendering, name), rendering.end]
        steps.append(
            Step(
                step_id=2 + at,
                source="agent",
                message="",
                tool_calls=[CallRecord(tool_call_id=f"c{at}", function_name=name, arguments={})],
                observation=Observation(results=[ObservationResult(source_call_id=f"c{at}", content="applied")]),
                metrics=StepMetrics(prompt_token_ids=ids, completion_token_ids=said, logprobs=[-0.5] * len(said)),
                llm_call_count=1,
                extra=turn_extra(Decoding(), "stop", "v1"),
            )
        )
        ids = [*ids, *said, *letters(rendering, "applied")]
    extra = RatchetExtra(tenant="t", grant_id="g", task_id="a", seed=seed, policy="p", score=Scored(value=score))
    log = Trajectory(agent=Agent(name="p", version="1"), steps=steps).with_ratchet(extra)
    return Trajectory.model_validate_json(log.model_dump_json()), ids[: -len(letters(rendering, "applied"))]


def test_demonstrations_and_pairs_hold_the_recorded_ids_and_nothing_is_encoded(
    rendering: Rendering, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, said_well = played(rendering, 0, 1.0, ("next_fix", "submit"))
    bad, said_badly = played(rendering, 1, 0.0, ("revert",))
    prompt = letters(rendering, "failing")

    def encode(*_: Any, **__: Any) -> None:
        raise AssertionError("something was tokenised")

    monkeypatch.setattr(type(rendering.tokenizer), "_encode_plus", encode)
    assert tokens(good, rendering).input_ids == said_well
    (pair,) = pairs([bad, good], rendering)
    assert pair.prompt_ids == prompt
    assert prompt + pair.chosen_ids == said_well
    assert prompt + pair.rejected_ids == said_badly
    for ids, mask in ((pair.chosen_ids, pair.chosen_mask), (pair.rejected_ids, pair.rejected_mask)):
        written = [token for token, bit in zip(ids, mask, strict=True) if bit]
        names = str(rendering.tokenizer.decode(written, skip_special_tokens=True)).replace(" ", "")
        assert names == ("next_fixsubmit" if ids is pair.chosen_ids else "revert")
    with pytest.raises(AssertionError, match="something was tokenised"):
        rendering.tokenizer.encode("applied")
