"""What runs in the training process: the doors are passed again, then the method learns.

The process opens the run by its id, re-verifies split lock, certificate and rights, and hands the method token
sequences, pairs or a sampler, a validation on the validation tasks, and a guard that asks the rights ledger again
while it trains.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

from ratchet.contracts.environment import Task
from ratchet.contracts.manifest import MethodSection
from ratchet.contracts.policy import Decoding, Harness
from ratchet.contracts.score import Scored
from ratchet.contracts.training import TokenSample, samples
from ratchet.contracts.trajectory import Trajectory
from ratchet.evaluation.economics import training_cost
from ratchet.intake import trajectories
from ratchet.loop.context import Run, reopen_run
from ratchet.loop.incumbent import NAME, started_from
from ratchet.loop.judge_drift import grader_of, require_calibrated
from ratchet.loop.learning import harness_of, open_policy
from ratchet.loop.playing import THREADS
from ratchet.loop.searching import search
from ratchet.loop.validating import regression, validation
from ratchet.methods import base as methods
from ratchet.methods import harness_search, stream
from ratchet.methods.base import PairSample, RolloutSample, Spend, StepRewards, Validation
from ratchet.policies.checkpoint import load, verified
from ratchet.policies.compute import compute, is_first, processes
from ratchet.policies.rendering import Rendering
from ratchet.progress import say
from ratchet.rewards.compose import step_weight
from ratchet.rights import AuthorisedDataset, recheck, reopen
from ratchet.rollouts.episodes import run_batch
from ratchet.rollouts.judged import Judged, Request, attempt_all, faults, refuse_excess
from ratchet.rollouts.rollout import Rollout
from ratchet.splits import open_certificate


def train(arguments: dict[str, Any]) -> dict[str, Any]:
    """Train one candidate; see `ratchet.loop.learning` and `ratchet.loop.apart`.

    Returns:
        Plain JSON about the best checkpoint.
    """
    section = MethodSection.model_validate(arguments["section"])
    with reopen_run(Path(arguments["home"]), arguments["run_id"], training=Path(arguments["sandbox"])) as run:
        dataset = reopen(run.store.read(arguments["dataset"]), arguments["dataset"])
        open_certificate(run.store, arguments["certificate"]).require(run.lock.digest, arguments["corpus"])
        method = methods.method(section.method)
        guard = _guard(run, dataset, judged=method.NEEDS == "tasks")
        guard()
        held = started_from(run) if section.start == NAME else None
        parent = held or open_policy(run, "baseline" if section.start in ("base", NAME) else section.start)
        harness = harness_of(run) if section.start == NAME else parent.harness
        # Under an adapter weights may be of half precision; those that are trained themselves are not.
        model, tokenizer = load(
            verified(run.store, parent.checkpoint, parent.weights_digest),
            dtype=None if section.adapter is not None or method.NEEDS == "cases" else "float32",
        )
        rendering = Rendering(tokenizer, harness)
        settings = methods.parse(method.Settings, section.settings, f"methods.{section.name}.settings")
        with ThreadPoolExecutor(THREADS) as pool:
            if method.NEEDS == "cases":
                return search(
                    run, section, harness, model, rendering, pool,
                    settings=cast(harness_search.Settings, settings), output=Path(arguments["output"]), guard=guard,
                    spend=_spend(run, section), validation=lambda found: validation(run, rendering, pool, found),
                )  # fmt: skip
            if isinstance(settings, stream.Settings):
                settings = as_it_acts(settings, harness)
                learn: tuple[Any, ...] = _task_stream(
                    run, section, rendering, pool, settings.temperature or 1.0, harness
                )
            else:
                logged = sorted(trajectories(run.store, dataset), key=_origin)
                learn = (
                    (pairs(logged, rendering),)
                    if method.NEEDS == "pairs"
                    else ([tokens(one, rendering) for one in logged],)
                )
                if method.NEEDS == "pairs":
                    # Before a policy plays all validation tasks for nothing.
                    methods.check_pairs(section.name, learn[0])
            validate = validation(run, rendering, pool, harness)
            start = validate(model) if is_first() else Validation(0.0, {})
            outcome = method.fit(
                model,
                tokenizer,
                *learn,
                settings,
                seed=run.manifest.seed,
                output=Path(arguments["output"]),
                validate=validate,
                guard=guard,
                max_wall_s=section.max_wall_s,
                spend=_spend(run, section),
                adapter=section.adapter,
                name=section.name,
            )
    return {
        "checkpoint": str(outcome.checkpoint),
        "adapter": outcome.adapter and str(outcome.adapter),
        "step": outcome.step,
        "validation": outcome.validation,
        "seconds": outcome.seconds,
        "stopped": outcome.stopped,
        "curve": [row.model_dump(mode="json") for row in outcome.curve],
        "regression": regression(start, outcome.outcomes or {}),
        "trained_on": {
            "device": compute().device,
            "dtype": str(model.dtype).rpartition(".")[2],
            "processes": processes(),
        },
    }


def as_it_acts(settings: stream.Settings, harness: Harness) -> stream.Settings:
    """The settings with a temperature: where they name none, the one of the harness, so that it learns as it acts.

    A harness whose search found that a sharp policy does better is validated and released sharp. Sampled at 1 it would
    earn other rewards: often none at all, so that all it learned were what avoids penalties. Greedy play has no
    advantages to learn from, and is sampled at 1. The nucleus is left out: its log-probs are not those of the trainer.
    """
    return settings.model_copy(update={"temperature": settings.temperature or harness.decoding.temperature or 1.0})


def tokens(trajectory: Trajectory, rendering: Rendering) -> TokenSample:
    """One training sequence: the recorded ids where a policy sampled them, else the log rendered once."""
    if any(step.metrics and step.metrics.completion_token_ids for step in trajectory.steps):
        return samples(trajectory)[0]
    return rendering.sample(trajectory)


def pairs(logged: list[Trajectory], rendering: Rendering) -> list[PairSample]:
    """Pair accepted with rejected trajectories of the same task: each accepted one with one rejected one, in turn.

    Only what one tenant's policies did after the same opening is a pair: the same task of another tenant, or of another
    environment or prompt, is another question.
    """
    groups: dict[tuple[str, ...], tuple[list[TokenSample], list[TokenSample]]] = {}
    for trajectory in sorted(logged, key=_origin):
        own = trajectory.ratchet
        if isinstance(own.score, Scored) and own.task_id:
            sample = tokens(trajectory, rendering)
            opening = str(sample.input_ids[: sample.sampled_mask.index(True)])
            chosen, rejected = groups.setdefault((own.task_id, own.tenant, opening), ([], []))
            (chosen if own.score.value >= 1 else rejected).append(sample)
    made = []
    for _, (chosen, rejected) in sorted(groups.items()):
        for good, bad in zip(chosen, rejected, strict=False):
            made.append(_pair(good, bad))
    return made


def _origin(trajectory: Trajectory) -> tuple[str, str, int, str]:
    """Order by what was attempted: digests hold measured times, so their order differs from run to run."""
    own = trajectory.ratchet
    return own.policy or "", own.task_id or "", -1 if own.seed is None else own.seed, trajectory.digest


def _pair(good: TokenSample, bad: TokenSample) -> PairSample:
    start = good.sampled_mask.index(True)
    return PairSample(
        prompt_ids=good.input_ids[:start],
        chosen_ids=good.input_ids[start:],
        chosen_mask=[int(bit) for bit in good.sampled_mask[start:]],
        rejected_ids=bad.input_ids[start:],
        rejected_mask=[int(bit) for bit in bad.sampled_mask[start:]],
    )


def _guard(run: Run, dataset: AuthorisedDataset, *, judged: bool) -> Callable[[], None]:
    """Ask the rights ledger again, and where a judge pays, whether it is still calibrated."""

    def guard() -> None:
        run.rights.refresh()
        recheck(run.rights, dataset, run.now())
        if judged:
            require_calibrated(run)

    return guard


def _spend(run: Run, section: MethodSection) -> Spend | None:
    """The method's budget in money, counted as the scorecard will count it."""
    if section.max_cost is None:
        return None

    def cost(seconds: float, judge_calls: int) -> float:
        return training_cost({"seconds": seconds, "curve": [{"judge_calls": judge_calls}]}, run.manifest.prices)

    return Spend(section.max_cost, cost)


def _task_stream(
    run: Run,
    section: MethodSection,
    rendering: Rendering,
    pool: ThreadPoolExecutor,
    temperature: float,
    harness: Harness,
) -> tuple[list[str], Callable[[Any, list[str], int], list[RolloutSample]]]:
    by_id = {task.task_id: task for task in run.training_tasks()}
    # A turn that was taken back is in no trajectory, so that what is left was not sampled from the policy alone.
    harness = harness.model_copy(update={"retries": 0})
    grader = grader_of(run)
    decoding = Decoding(temperature=temperature, max_tokens_per_turn=harness.decoding.max_tokens_per_turn)

    def sampler(model: Any, task_ids: list[str], step: int) -> list[RolloutSample]:
        requests = _numbered(by_id, task_ids)
        salt = f"{run.manifest.seed}/{section.name}/{step}"

        def play(some: Sequence[Request]) -> list[Rollout]:
            return run_batch(model, rendering, run.environment, harness, some, salt=salt, decoding=decoding, pool=pool)

        judged = attempt_all(
            run.environment, requests, run.manifest.reward, play, pool, run.manifest.invalid_retries, grader
        )
        seen = faults(judged)
        if seen.invalid or seen.mended:
            say(f"  {section.name} step {step + 1}: {seen}")
        refuse_excess(f"{section.name} step {step + 1}", seen, run.manifest.max_invalid_share)
        weight = step_weight(run.manifest.reward)
        return [rollout_sample(one, weight) for one in judged]

    return list(by_id), sampler


def _numbered(by_id: dict[str, Task], task_ids: list[str]) -> list[tuple[Task, int]]:
    """Give the episodes of one task distinct seeds, so that each draws its own tokens."""
    seen: dict[str, int] = {}
    requests = []
    for task_id in task_ids:
        seen[task_id] = seen.get(task_id, -1) + 1
        requests.append((by_id[task_id], seen[task_id]))
    return requests


def rollout_sample(judged: Judged, weight: float) -> RolloutSample:
    """One episode as the trainer sees it; `weight` is that of its process scores, 0 for none."""
    rollout, outcome = judged.rollout, judged.outcome
    ids, mask, logprobs = completion(rollout)
    return RolloutSample(
        prompt_ids=rollout.prompt_ids,
        completion_ids=ids,
        sampled_mask=mask,
        logprobs=logprobs,
        reward=outcome.reward,
        metrics={
            "accepted": float(outcome.accepted),
            "calls": float(rollout.calls),
            "exploit": float(outcome.exploit),
            "malformed": float(rollout.malformed),
        },
        steps=StepRewards([step.value for step in outcome.steps], turns(rollout), weight) if weight else None,
        invalid=judged.invalid,
        judge_calls=judged.judge_calls,
    )


def completion(rollout: Rollout) -> tuple[list[int], list[int], list[float]]:
    """Ids after the prompt, the mask of what was sampled, and its log-probabilities (0.0 where masked)."""
    ids: list[int] = []
    mask: list[int] = []
    logprobs: list[float] = []
    for index, exchange in enumerate(rollout.exchanges):
        read = exchange.read if index else []
        ids += read + exchange.turn.ids
        mask += [0] * len(read) + [1] * len(exchange.turn.ids)
        logprobs += [0.0] * len(read) + exchange.turn.logprobs
    return ids, mask, logprobs


def turns(rollout: Rollout) -> list[int]:
    """Index of the turn that sampled each token after the prompt, -1 where none did; aligned with `completion`."""
    found: list[int] = []
    for index, exchange in enumerate(rollout.exchanges):
        read = len(exchange.read) if index else 0
        found += [-1] * read + [index] * len(exchange.turn.ids)
    return found
