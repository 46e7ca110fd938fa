"""From a finished rollout to its trajectory in ATIF: everything a reviewer or a trainer asks for, nothing
recomputed."""

from __future__ import annotations

from ratchet import __version__
from ratchet.contracts.canonical import canonical_json, digest_bytes
from ratchet.contracts.environment import EnvironmentSpec
from ratchet.contracts.policy import Decoding
from ratchet.contracts.score import Invalid, Scored, Unscored
from ratchet.contracts.training import turn_extra
from ratchet.contracts.trajectory import (
    Agent,
    CallRecord,
    FinalMetrics,
    Observation,
    ObservationResult,
    RatchetExtra,
    Step,
    StepMetrics,
    Trajectory,
)
from ratchet.rollouts.rollout import Exchange, Rollout


def to_trajectory(
    rollout: Rollout,
    spec: EnvironmentSpec,
    score: Scored | Invalid | Unscored,
    *,
    policy: str,
    policy_digest: str | None,
    decoding: Decoding | None,
    tenant: str,
    grant_id: str,
) -> Trajectory:
    """Return the trajectory of a rollout.

    Args:
        rollout: the finished attempt.
        spec: the environment's permissions: tool definitions and version.
        score: its tri-state outcome.
        policy: name of the policy or scripted agent.
        policy_digest: digest of checkpoint and harness; None for a scripted agent.
        decoding: sampling settings of the turns; None where nothing was sampled.
        tenant: whose data it is.
        grant_id: the right it is stored under.
    """
    task = rollout.task
    steps = [Step(step_id=1 + index, source="user", message=text) for index, text in enumerate(rollout.opening)]
    if rollout.system and steps:
        first = Step(step_id=1, source="system", message=rollout.system)
        steps = [first, *(step.model_copy(update={"step_id": step.step_id + 1}) for step in steps)]
    if not steps:  # an episode that failed while it opened is kept too, and a trajectory has at least one step
        steps = [Step(step_id=1, source="system", message=rollout.invalid or "no observation")]
    for index, (exchange, prompt) in enumerate(zip(rollout.exchanges, rollout.prompts(), strict=True)):
        steps.append(_step(len(steps) + 1, f"call-{index + 1}", exchange, prompt, policy_digest or policy, decoding))
    extra = RatchetExtra(
        tenant=tenant,
        grant_id=grant_id,
        task_id=task.task_id,
        repo=task.repo,
        issue_id=task.issue_id,
        segment=task.segment,
        environment=spec.name,
        environment_version=spec.version,
        policy=policy,
        policy_digest=policy_digest,
        seed=rollout.seed,
        deliverable=rollout.deliverable,
        score=score,
        violations=rollout.violations,
        calls=rollout.calls,
        ok_calls=rollout.ok_calls,
        sandbox_s=round(rollout.sandbox_s, 6),
        latency_s=round(rollout.latency_s, 6),
    )
    trajectory = Trajectory(
        session_id=f"{policy}/{task.task_id}/{rollout.seed}",
        agent=Agent(name=policy, version=__version__, tool_definitions=_definitions(spec)),
        steps=steps,
        final_metrics=FinalMetrics(
            total_prompt_tokens=rollout.tokens_in, total_completion_tokens=rollout.tokens_out, total_steps=len(steps)
        ),
    ).with_ratchet(extra)
    content = trajectory.model_dump(mode="json", exclude_none=True)
    return trajectory.model_copy(update={"trajectory_id": digest_bytes(canonical_json(content).encode())[:32]})


def _step(
    step_id: int, call_id: str, exchange: Exchange, prompt: list[int], version: str, decoding: Decoding | None
) -> Step:
    call, turn = exchange.call, exchange.turn
    sampled = decoding is not None
    return Step(
        step_id=step_id,
        source="agent",
        message=call.malformed or "",
        tool_calls=None
        if call.malformed is not None
        else [CallRecord(tool_call_id=call_id, function_name=call.name, arguments=call.arguments)],
        observation=Observation(
            results=[
                ObservationResult(
                    source_call_id=None if call.malformed is not None else call_id,
                    content=exchange.result.content,
                    extra={"status": exchange.result.status},
                )
            ]
        ),
        metrics=StepMetrics(
            prompt_tokens=len(prompt),
            completion_tokens=len(turn.ids),
            prompt_token_ids=prompt,
            completion_token_ids=turn.ids,
            logprobs=turn.logprobs,
        )
        if sampled
        else None,
        llm_call_count=1 if sampled else 0,
        extra=turn_extra(decoding, turn.finish_reason, version) if decoding else None,
    )


def _definitions(spec: EnvironmentSpec) -> list[dict[str, object]]:
    return [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
        }
        for tool in spec.tools
    ]
