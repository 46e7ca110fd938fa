"""The training profile: what a logged trajectory must meet before a trainer sees its tokens.

ATIF's own validator accepts log-probabilities of the wrong length and NaN. Here token ids and log-probabilities are
aligned and finite, and every sampled turn states its sampling settings, finish reason and policy version in
`step.extra.ratchet`. Samples replay exactly the ids that the engine read and sampled: nothing is ever tokenised again.
Where the prompt of a turn does not begin with all ids before it (a shortened or rewritten history), the sample forks.
Tokens that the policy did not sample, and steps that are copied context, are masked. Embedded trajectories are separate
documents: call `samples` on each.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from pydantic import Field, ValidationError

from ratchet.contracts.model import Contract
from ratchet.contracts.policy import Decoding
from ratchet.contracts.trajectory import Step, Trajectory
from ratchet.errors import TrainingError

LOGPROB_SLACK = 1e-3
"""How far above 0 a log-probability may lie: engines round in half precision."""


class TurnRecord(Contract):
    """What a sampled turn states about itself, in `step.extra.ratchet`."""

    sampling: Decoding = Field(description="Sampling settings of the turn.")
    finish_reason: str = Field(min_length=1, description="Why sampling stopped: stop, length, ...")
    policy_version: str = Field(min_length=1, description="Digest or version of the policy that sampled the turn.")


class TokenSample(NamedTuple):
    """One sequence to train on. All lists have the length of `input_ids`."""

    input_ids: list[int]
    """Token ids as the engine saw them."""
    sampled_mask: list[bool]
    """True where the policy sampled the token: only those enter a loss."""
    logprobs: list[float] | None
    """Log-probability (nats) of each sampled token, 0.0 where masked; None where a turn recorded none."""
    step_ids: tuple[int, ...]
    """Steps whose sampled tokens are trained on here, in order."""


def samples(trajectory: Trajectory) -> list[TokenSample]:
    """Return the token samples of a trajectory; every sampled turn is in exactly one of them.

    A step is a sampled turn where it is the agent's, is not copied context, and stands for a model call
    (`llm_call_count` is not 0).

    Raises:
        TrainingError: naming the step and the rule, where a turn lacks ids, settings, finish reason or policy version,
            stands for several calls, or its ids and log-probabilities are not aligned and finite.
    """
    done: list[TokenSample] = []
    ids: list[int] = []
    mask: list[bool] = []
    logprobs: list[float | None] = []
    steps: list[int] = []
    for step in trajectory.steps:
        if step.source != "agent" or step.is_copied_context or step.llm_call_count == 0:
            continue
        prompt, sampled, scored = _turn(step, trajectory)
        if steps and prompt[: len(ids)] != ids:
            done.append(_sample(ids, mask, logprobs, steps))
            ids, mask, logprobs, steps = [], [], [], []
        context = len(prompt) - len(ids)
        ids = prompt + sampled
        mask += [False] * context + [True] * len(sampled)
        logprobs += [0.0] * context
        logprobs += [None] * len(sampled) if scored is None else scored
        steps.append(step.step_id)
    if steps:
        done.append(_sample(ids, mask, logprobs, steps))
    return done


def turn_extra(sampling: Decoding, finish_reason: str, policy_version: str) -> dict[str, Any]:
    """Return the `extra` of a sampled step, as `samples` requires it."""
    record = TurnRecord(sampling=sampling, finish_reason=finish_reason, policy_version=policy_version)
    return {"ratchet": record.model_dump(mode="json")}


def _sample(ids: list[int], mask: list[bool], logprobs: list[float | None], steps: list[int]) -> TokenSample:
    known = [value for value in logprobs if value is not None]
    return TokenSample(ids, mask, known if len(known) == len(ids) else None, tuple(steps))


def _turn(step: Step, trajectory: Trajectory) -> tuple[list[int], list[int], list[float] | None]:
    """Return prompt ids, sampled ids and log-probabilities of one turn, checked."""
    metrics = step.metrics
    if step.llm_call_count is not None and step.llm_call_count > 1:
        raise _unfit(step, trajectory, step.llm_call_count, "a step that is trained on stands for one model call")
    if metrics is None or metrics.prompt_token_ids is None or not metrics.completion_token_ids:
        raise _unfit(step, trajectory, None, "it must record prompt_token_ids and completion_token_ids")
    if any(token < 0 for token in (*metrics.prompt_token_ids, *metrics.completion_token_ids)):
        raise _unfit(step, trajectory, None, "token ids must not be negative")
    scored = metrics.logprobs
    if scored is not None:
        if len(scored) != len(metrics.completion_token_ids):
            seen = f"{len(scored)} log-probs for {len(metrics.completion_token_ids)} tokens"
            raise _unfit(step, trajectory, seen, "there must be one log-probability per sampled token")
        wrong = next((value for value in scored if not math.isfinite(value) or value > LOGPROB_SLACK), None)
        if wrong is not None:
            raise _unfit(step, trajectory, wrong, "a log-probability must be finite and at most 0")
    for name, count, tokens in (
        ("prompt_tokens", metrics.prompt_tokens, metrics.prompt_token_ids),
        ("completion_tokens", metrics.completion_tokens, metrics.completion_token_ids),
    ):
        if count is not None and count != len(tokens):
            raise _unfit(step, trajectory, f"{name} {count} for {len(tokens)} ids", "counts and ids must agree")
    try:
        TurnRecord.model_validate((step.extra or {}).get("ratchet", {}))
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        field = ".".join(str(item) for item in first["loc"])
        raise _unfit(step, trajectory, None, f"extra.ratchet.{field}: {first['msg']}") from None
    return list(metrics.prompt_token_ids), list(metrics.completion_token_ids), None if scored is None else list(scored)


def _unfit(step: Step, trajectory: Trajectory, seen: object, rule: str) -> TrainingError:
    # Not by digest: a document with NaN in it has no canonical JSON.
    own = (trajectory.extra or {}).get("ratchet", {})
    name = trajectory.trajectory_id or trajectory.session_id or own.get("task_id") or "without an id"
    return TrainingError(
        f"trajectory {name} step {step.step_id}",
        seen=seen,
        rule=f"{rule} (training profile)",
        remedy="have the engine record it, or train on the text of this log with a supervised method",
    )
