"""Faults during GRPO: advantages, loss and weights are those of a step in which the failed episodes do not exist."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from faults import ALWAYS, Fault, Faulty
from loop_world import small_manifest
from test_faults_in_data import fresh

from ratchet.contracts.manifest import MethodSection
from ratchet.errors import TooManyInvalid
from ratchet.loop import learning
from ratchet.loop.context import Run
from ratchet.loop.trainer import _task_stream
from ratchet.loop.validating import validation
from ratchet.methods import grpo
from ratchet.methods.base import Outcome, RolloutSample, Sampler
from ratchet.policies.checkpoint import STARTER, load
from ratchet.policies.rendering import Rendering

MANIFEST = small_manifest(max_invalid_share=0.3, invalid_retries=1)
SECTION = MethodSection(name="grpo", method="grpo", start="base")
GROUP = 4


@pytest.fixture(scope="module")
def run(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    import torch

    torch.set_num_threads(1)
    with fresh(prepared, tmp_path_factory.mktemp("grpo") / "home", MANIFEST) as opened:
        learning.baseline_policy(opened)
        yield opened


@pytest.fixture
def broken(run: Run) -> Iterator[Faulty]:
    """The run's environment, whole at first."""
    environment: Any = run.environment
    environment.faults = {}
    environment.struck.clear()
    yield environment
    environment.faults = {}


def stream(run: Run, pool: ThreadPoolExecutor) -> tuple[list[str], Sampler]:
    return _task_stream(run, SECTION, Rendering(load(STARTER)[1]), pool, 1.0, learning.harness_of(run))


def without(sampler: Sampler, lost: int) -> Sampler:
    """The same episodes, one of every group of four left out: groups of three."""

    def sample(model: Any, task_ids: list[str], step: int) -> list[RolloutSample]:
        tasks = [task for task in task_ids[:: GROUP - 1] for _ in range(GROUP)]
        return [one for index, one in enumerate(sampler(model, tasks, step)) if index % GROUP != lost]

    return sample


def fitted(
    tasks: Sequence[str], sampler: Sampler, output: Path, group: int, **over: Any
) -> tuple[Outcome, dict[str, Any]]:
    model, tokenizer = load(STARTER)
    settings = grpo.Settings(**{"steps": 1, "prompts_per_step": 4, "group_size": group, "lr": 1e-3, **over})
    outcome = grpo.fit(model, tokenizer, tasks, sampler, settings, seed=1, output=output)
    return outcome, {name: weight.detach().clone() for name, weight in model.state_dict().items()}


@pytest.mark.parametrize("scale", ["none", "group"])
def test_a_step_with_invalid_episodes_equals_the_step_without_them(
    run: Run, broken: Faulty, pool: ThreadPoolExecutor, scale: str, tmp_path: Path, advantages: list[list[float]]
) -> None:
    tasks, sampler = stream(run, pool)
    reference, wanted = fitted(tasks, without(sampler, 2), tmp_path / "without", GROUP - 1, scale_rewards=scale)
    places, kinds = ("reset", "tool", "deliverable", "reset"), ("raise", "nan", "garbage", "kill")
    broken.faults = {
        (task, 2): Fault(places[index % 4], kinds[index % 4], ALWAYS) for index, task in enumerate(sorted(tasks))
    }
    outcome, weights = fitted(tasks, sampler, tmp_path / "faulty", GROUP, scale_rewards=scale)
    first, second = reference.curve[0], outcome.curve[0]
    assert (first.invalid_share, second.invalid_share) == (0.0, 0.25)
    assert sum(second.invalid.values()) == 4
    assert all(reason.split(":")[0] in places for reason in second.invalid)
    assert advantages[1] == pytest.approx(advantages[0], abs=1e-6)
    assert any(advantages[0])
    assert second.loss == pytest.approx(first.loss, abs=1e-6)
    assert second.grad_norm == pytest.approx(first.grad_norm, rel=1e-4)
    assert second.reward == pytest.approx(first.reward)
    assert second.entropy == pytest.approx(first.entropy, rel=1e-5)
    assert second.metrics == pytest.approx(first.metrics)
    # Adam's first step is lr x sign(gradient): a gradient at the rounding error's size may turn its sign.
    apart = [(weights[name] - wanted[name]).abs() for name in wanted]
    assert sum(float((one > 1e-5).sum()) for one in apart) <= 0.01 * sum(one.numel() for one in apart)


def test_what_a_retry_mends_is_the_episode_that_no_fault_would_have_changed(
    run: Run, broken: Faulty, pool: ThreadPoolExecutor
) -> None:
    model = load(STARTER)[0].eval()
    tasks, sampler = stream(run, pool)
    asked = [task for task in tasks[:3] for _ in range(GROUP)]
    clean = sampler(model, asked, 0)
    broken.faults = {
        (tasks[0], 1): Fault("reset", "raise", times=1),
        (tasks[1], 0): Fault("tool", "garbage", times=1),
        tasks[2]: Fault("verifier", "kill", times=1),
    }
    found = sampler(model, asked, 0)
    assert sum(broken.struck.values()) >= 6
    for one, other in zip(found, clean, strict=True):
        assert one._replace(logprobs=None) == other._replace(logprobs=None)
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)


def test_too_many_stop_the_training_and_it_goes_on_from_its_checkpoint(
    run: Run, broken: Faulty, pool: ThreadPoolExecutor, tmp_path: Path
) -> None:
    tasks, sampler = stream(run, pool)
    asked: list[int] = []

    def breaking(model: Any, task_ids: list[str], step: int) -> list[RolloutSample]:
        asked.append(step)
        broken.faults = dict.fromkeys(tasks, Fault("tool", "raise", ALWAYS)) if step == 1 else {}
        return sampler(model, task_ids, step)

    steps = {"steps": 2, "validate_every": 1, "prompts_per_step": 2}
    with pytest.raises(TooManyInvalid, match=r"grpo step 2 is '\d of 8 invalid'.*tool: OSError: tool died"):
        fitted(tasks, breaking, tmp_path / "stopped", GROUP, **steps)
    broken.faults = {}
    resumed, weights = fitted(tasks, sampler, tmp_path / "stopped", GROUP, **steps)
    whole, wanted = fitted(tasks, sampler, tmp_path / "whole", GROUP, **steps)
    assert asked == [0, 1]
    assert resumed.resumed_from == 1
    assert [row.loss for row in resumed.curve] == [row.loss for row in whole.curve]
    assert all(bool((weights[name] == wanted[name]).all()) for name in wanted)


def test_validation_leaves_invalid_attempts_out_and_stops_where_they_are_too_many(
    run: Run, broken: Faulty, pool: ThreadPoolExecutor
) -> None:
    model = load(STARTER)[0].eval()
    validate = validation(run, Rendering(load(STARTER)[1]), pool, learning.harness_of(run))
    clean = validate(model).acceptance
    tasks = [task.task_id for task in run.validation_tasks()]
    shares = []
    for name in tasks:
        broken.faults, broken.struck = {name: Fault("verifier", "nan", ALWAYS)}, type(broken.struck)()
        shares.append(validate(model).acceptance)
    accepted = clean * len(tasks)
    assert {round(share * (len(tasks) - 1), 6) for share in shares} <= {round(accepted, 6), round(accepted - 1, 6)}
    assert sum(shares) * (len(tasks) - 1) == pytest.approx(accepted * (len(tasks) - 1))
    broken.faults = dict.fromkeys(tasks, Fault("reset", "raise", ALWAYS))
    with pytest.raises(TooManyInvalid, match=r"validation is '8 of 8 invalid'"):
        validate(model)
