"""Faults of the judge during GRPO: the step is that in which the episodes it failed on do not exist."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from loop_world import small_manifest
from marked_world import JUDGE, Marked, episode_of, marking_grader
from test_faults_in_data import fresh
from test_faults_in_grpo import GROUP, SECTION, fitted

from ratchet.errors import TooManyInvalid
from ratchet.loop import learning, trainer
from ratchet.loop.context import Run
from ratchet.loop.trainer import _task_stream
from ratchet.methods.base import RolloutSample, Sampler
from ratchet.policies.checkpoint import STARTER, load
from ratchet.policies.rendering import Rendering
from ratchet.rewards.judges import base
from ratchet.rewards.judges.base import Judgement
from ratchet.rewards.judges.grading import Grader

MANIFEST = small_manifest(max_invalid_share=0.3, invalid_retries=1, **{"reward.judge": JUDGE})
released = threading.Event()


def dies() -> Any:
    raise ConnectionError("the judge is gone")


def hangs() -> Any:
    released.wait(30)


def ends_the_process() -> Any:
    raise SystemExit(137)


KINDS: tuple[tuple[Callable[[], Any], str], ...] = (
    (dies, "judge edit_quality: ConnectionError: the judge is gone"),
    (hangs, "judge edit_quality: Overdue: no answer within 1 s"),
    (ends_the_process, "judge edit_quality: Ended: it raised SystemExit: 137"),
    (lambda: Judgement.model_construct(category=math.nan), "judge edit_quality: ValueError: Judgement is not what"),
    (lambda: Judgement(category="superb"), "no category of the rubric"),
    (lambda: 1.0, "judge edit_quality: TypeError: float is no Judgement"),
)


@pytest.fixture(scope="module")
def run(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    import torch

    torch.set_num_threads(1)
    with fresh(prepared, tmp_path_factory.mktemp("judged-grpo") / "home", MANIFEST) as opened:
        learning.baseline_policy(opened)
        opened.__dict__["environment"] = Marked(opened.environment.inner)  # type: ignore[attr-defined]
        yield opened


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Iterator[Grader]:
    """The judge that pays, whole at first; a call of it may take a second."""
    released.clear()
    found = marking_grader()
    monkeypatch.setattr(trainer, "grader_of", lambda run: found)
    monkeypatch.setitem(base.judge_all.__kwdefaults__, "timeout_s", 1.0)
    yield found
    released.set()


@pytest.fixture(scope="module")
def handed_in(run: Run, pool: ThreadPoolExecutor) -> dict[str, list[int]]:
    """Seeds of the first step in which something is handed in, by task: those a judge is asked about."""
    with pytest.MonkeyPatch.context() as patch:
        grader = marking_grader()
        patch.setattr(trainer, "grader_of", lambda run: grader)
        tasks, sampler = stream(run, pool)
        sampler(load(STARTER)[0].eval(), [task for task in tasks for _ in range(GROUP)], 0)
    found: dict[str, list[int]] = {}
    for text in grader.judge.asked:  # type: ignore[attr-defined]
        task, seed = episode_of(text)
        found.setdefault(task, []).append(seed)
    return {task: sorted(seeds) for task, seeds in sorted(found.items())}


def stream(run: Run, pool: ThreadPoolExecutor) -> tuple[list[str], Sampler]:
    return _task_stream(run, SECTION, Rendering(load(STARTER)[1]), pool, 1.0, learning.harness_of(run))


def failing(judge: Grader, lost: dict[str, int], times: int = 1_000_000) -> None:
    """Let the judge fail on one episode of each task, each kind of fault in turn."""
    order = {task: at for at, task in enumerate(sorted(lost))}
    struck: dict[str, int] = {}

    def fault(text: str) -> Any:
        task, seed = episode_of(text)
        if lost.get(task) != seed or struck.get(task, 0) >= times:
            return None
        struck[task] = struck.get(task, 0) + 1
        return KINDS[order[task] % len(KINDS)][0]()

    judge.judge.faults = fault  # type: ignore[attr-defined]


def without(sampler: Sampler, lost: dict[str, int]) -> Sampler:
    """The same episodes, one of every group left out."""

    def sample(model: Any, task_ids: list[str], step: int) -> list[RolloutSample]:
        tasks = [task for task in task_ids[:: GROUP - 1] for _ in range(GROUP)]
        found = sampler(model, tasks, step)
        return [one for at, (task, one) in enumerate(zip(tasks, found, strict=True)) if at % GROUP != lost[task]]

    return sample


def test_a_step_with_episodes_that_the_judge_failed_on_equals_the_step_without_them(
    run: Run, judge: Grader, pool: ThreadPoolExecutor, handed_in: dict[str, list[int]], tmp_path: Path,
    advantages: list[list[float]],
) -> None:  # fmt: skip
    lost = {task: seeds[0] for task, seeds in list(handed_in.items())[: len(KINDS)]}
    assert len(lost) == len(KINDS)
    _, sampler = stream(run, pool)
    step = {"prompts_per_step": len(KINDS), "scale_rewards": "group"}
    reference, wanted = fitted(sorted(lost), without(sampler, lost), tmp_path / "without", GROUP - 1, **step)
    failing(judge, lost)
    outcome, weights = fitted(sorted(lost), sampler, tmp_path / "faulty", GROUP, **step)
    first, second = reference.curve[0], outcome.curve[0]
    assert (first.invalid_share, second.invalid_share) == (0.0, 1 / GROUP)
    assert sum(second.invalid.values()) == len(KINDS)
    for _, told in KINDS:
        assert any(told in reason for reason in second.invalid), (told, second.invalid)
    assert any(advantages[0])
    assert advantages[1] == pytest.approx(advantages[0], abs=1e-6)
    assert second.loss == pytest.approx(first.loss, abs=1e-6)
    assert second.grad_norm == pytest.approx(first.grad_norm, rel=1e-4)
    assert second.reward == pytest.approx(first.reward)
    assert second.metrics == pytest.approx(first.metrics)
    # Adam's first step is lr x sign(gradient): a gradient at the rounding error's size may turn its sign.
    apart = [(weights[name] - wanted[name]).abs() for name in wanted]
    assert sum(float((one > 1e-5).sum()) for one in apart) <= 0.01 * sum(one.numel() for one in apart)


def test_what_the_judge_says_at_the_second_try_is_what_it_would_have_said(
    run: Run, judge: Grader, pool: ThreadPoolExecutor, handed_in: dict[str, list[int]]
) -> None:
    model = load(STARTER)[0].eval()
    _, sampler = stream(run, pool)
    chosen = {task: seeds[0] for task, seeds in list(handed_in.items())[: len(KINDS)]}
    asked = [task for task in sorted(chosen) for _ in range(GROUP)]
    clean = sampler(model, asked, 0)
    failing(judge, chosen, times=1)
    found = sampler(model, asked, 0)
    assert [one.reward for one in found] == [one.reward for one in clean]
    assert [one.invalid for one in found] == [None] * len(asked)


def test_a_judge_that_fails_on_too_many_stops_the_step(
    run: Run, judge: Grader, pool: ThreadPoolExecutor, handed_in: dict[str, list[int]]
) -> None:
    tasks = [task for task, seeds in handed_in.items() if len(seeds) == GROUP][:2]
    assert tasks
    judge.judge.faults = lambda text: dies()  # type: ignore[attr-defined]
    _, sampler = stream(run, pool)
    with pytest.raises(TooManyInvalid, match=r"grpo step 1 .*judge edit_quality: ConnectionError: the judge is gone"):
        sampler(load(STARTER)[0].eval(), [task for task in tasks for _ in range(GROUP)], 0)
