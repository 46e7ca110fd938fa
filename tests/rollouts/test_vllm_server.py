"""A real vLLM server on the starter checkpoint: what it samples, adapters that are swapped, a server that is killed.

Slow: a server takes minutes until it answers. It needs the environment that `make serve-env` makes.
"""

from __future__ import annotations

import itertools
import math
import os
import random
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import torch
from loop_world import make_tasks, small_manifest
from vllm_world import STALENESS, adapter, forward

from ratchet.contracts.environment import Task
from ratchet.contracts.manifest import EvaluationSection, Reward, RewardPart
from ratchet.contracts.policy import Decoding, Harness, Policy
from ratchet.evaluation.intervals import wilson
from ratchet.evaluation.openings import Conditions, log_opening
from ratchet.evaluation.rows import EvaluationRow
from ratchet.evaluation.run import Arm, plan
from ratchet.evaluation.run import run as evaluate
from ratchet.loop.context import Run, open_run
from ratchet.loop.data import split_lock, task_catalogue
from ratchet.policies.checkpoint import STARTER, load, load_tokenizer, save
from ratchet.policies.rendering import Rendering
from ratchet.rollouts.engine import Turn
from ratchet.rollouts.vllm_engine import VllmEngine, VllmPolicy, VllmSession
from ratchet.rollouts.vllm_server import VllmServer
from ratchet.store import LocalStore

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

SWAPS, REQUESTS, TOGETHER = 20, 1000, 10
SEEDS = (0, 1)
HELDOUT = 72
KILLED_AT = 60
"""Turn of the first batch, of 24 episodes."""
REWARD = Reward(parts=(RewardPart(verifier="hidden_tests", weight=1.0),))
TOOLS = ("read_report", "next_fix", "apply_fix", "revert", "run_tests", "submit")
HARNESS = Harness(tools=TOOLS, max_calls=12, decoding=Decoding(temperature=1.0, max_tokens_per_turn=3))


@pytest.fixture
def engine(vllm_server: VllmServer, tmp_path: Path) -> Iterator[VllmEngine]:
    one = VllmEngine(vllm_server, tmp_path / "exports")
    yield one
    one.close()


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """An experiment whose tasks are locked: its held-out set is what is evaluated, all of it."""
    catalogue = {"visible_tests": 4, "fixes": 8, "tasks_per_problem": 4}
    manifest = small_manifest(**{"environment.settings.catalogue": catalogue, "splits.heldout": HELDOUT})
    with open_run(tmp_path_factory.mktemp("locked"), manifest) as run:
        make_tasks(run)
        task_catalogue(run)
        split_lock(run)
        yield run


def changed(folder: Path, seed: int) -> Path:
    """The starter with other weights."""
    model, tokenizer = load(STARTER)
    torch.manual_seed(seed)
    with torch.no_grad():
        for weights in model.parameters():
            weights.add_(0.02 * torch.randn_like(weights))
    save(model, tokenizer, folder)
    return folder


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probs_from_the_server_are_those_of_a_trainers_forward_pass(engine: VllmEngine, temperature: float) -> None:
    rng = random.Random(5)
    policy = engine.policy("a" * 64, STARTER)
    session = policy.session(
        -1, Decoding(temperature=temperature, max_tokens_per_turn=6), [str(row) for row in range(8)]
    )
    whole: dict[int, list[int]] = {row: [] for row in range(8)}
    off = 0.0
    for _ in range(3):
        added = {row: [rng.randrange(2, 700) for _ in range(rng.randint(1, 20))] for row in range(8)}
        for row, turn in session.turn(added).items():
            whole[row] += added[row]
            start = len(whole[row])
            whole[row] += turn.ids
            meant = forward(STARTER, whole[row], start, temperature)
            off = max(off, *(abs(one - other) for one, other in zip(turn.logprobs, meant, strict=True)))
    print("largest difference:", off)
    assert off < 1e-4


def test_full_weights_are_swapped_in_place_and_each_version_answers_as_itself(
    engine: VllmEngine, tmp_path: Path
) -> None:
    folders = {"a" * 64: STARTER, "c" * 64: changed(tmp_path / "other", 2)}
    policies = {name: engine.policy(name, folder) for name, folder in folders.items()}
    prompt = [5, 6, 7, 8]
    for name in ["a" * 64, "c" * 64, "a" * 64, "c" * 64]:
        turn = policies[name].session(1, Decoding(max_tokens_per_turn=6), ["x"]).turn({0: prompt})[0]
        meant = forward(folders[name], prompt + turn.ids, len(prompt), 1.0)
        assert turn.logprobs == pytest.approx(meant, abs=1e-4)
    assert engine.discarded == 0


def test_no_answer_is_of_another_version_while_adapters_are_swapped(engine: VllmEngine, tmp_path: Path) -> None:
    folders = [adapter(tmp_path / f"adapter{number}", number) for number in range(SWAPS)]
    answered: list[tuple[int, list[int], Turn]] = []
    newest: list[VllmPolicy] = []
    lock, rng = threading.Lock(), random.Random(7)

    def ask(number: int) -> None:
        """One batch of requests to a version that is at most `STALENESS` behind the newest."""
        with lock:
            version = max(0, len(newest) - 1 - rng.randint(0, STALENESS))
            prompts = {row: [rng.randrange(2, 700) for _ in range(12)] for row in range(TOGETHER)}
        seeds = [f"{number}/{row}" for row in prompts]
        turns = newest[version].session(-1, Decoding(max_tokens_per_turn=4), seeds).turn(prompts)
        with lock:
            answered.extend((version, prompts[row], turn) for row, turn in turns.items())

    batches = REQUESTS // SWAPS // TOGETHER
    with ThreadPoolExecutor(8) as pool:
        for swap in range(SWAPS):
            # Half of the batches before are still on their way when the next version comes.
            newest.append(engine.adapter(f"v{swap:02d}" + "d" * 61, folders[swap]))
            started = [pool.submit(ask, swap * batches + one) for one in range(batches)]
            for one in started[: batches // 2]:
                one.result()
    assert len(answered) == REQUESTS
    assert len({version for version, _, _ in answered}) == SWAPS
    wrong = 0
    for version, folder in enumerate(folders):
        model, _ = load(folder)
        own = [(prompt, turn) for number, prompt, turn in answered if number == version]
        ids = torch.tensor([prompt + turn.ids for prompt, turn in own])
        with torch.inference_mode():
            logprobs = torch.log_softmax(model(input_ids=ids).logits[:, 11:-1].float(), -1)
        meant = logprobs.gather(2, ids[:, 12:, None])[..., 0]
        said = torch.tensor([turn.logprobs for _, turn in own])
        wrong += int(((said - meant).abs().amax(1) > 1e-4).sum())
    print("answers of another version:", wrong, "of", len(answered))
    assert wrong == 0


class Killing:
    """A policy whose server is killed while its first batch is under way, at one of its episodes' turns."""

    def __init__(self, policy: VllmPolicy, server: VllmServer) -> None:
        self.policy, self.server, self.turns = policy, server, itertools.count(1)

    def session(self, end: int, decoding: Decoding, seeds: list[str]) -> KillingSession:
        return KillingSession(self, self.policy.session(end, decoding, seeds))


class KillingSession:
    def __init__(self, owner: Killing, session: VllmSession) -> None:
        self.owner, self.session = owner, session

    def turn(self, added: dict[int, list[int]]) -> dict[int, Turn]:
        if next(self.owner.turns) == KILLED_AT:
            assert self.owner.server.child is not None
            threading.Timer(0.02, os.kill, (self.owner.server.child.pid, signal.SIGKILL)).start()
        return self.session.turn(added)

    def take_back(self, row: int, ids: list[int]) -> None:
        self.session.take_back(row, ids)


def evaluated(model: Any, run: Run, tasks: Sequence[Task], folder: Path) -> list[EvaluationRow]:
    """Held-out rows of the starter policy, sampled by `model`."""
    policy = Policy(name="starter", method="baseline", checkpoint="c", weights_digest="a" * 64, harness=HARNESS)
    what = plan(run.lock.digest, "environment", "reward", tasks, SEEDS)
    store = LocalStore(folder)
    log_opening(
        store, Conditions.of(what), policy, candidate=True, experiment="engines", by="test", at=datetime.now(UTC)
    )
    one = Arm(policy, model, Rendering(load_tokenizer(STARTER)))
    section = EvaluationSection(seeds=SEEDS, minimum_effect=0.1, retries=2)
    (rows,) = evaluate([one], what, tasks, run.environment, REWARD, section, store, max_invalid_share=0.0)
    return rows.complete()


def accepted(rows: list[EvaluationRow]) -> int:
    return sum(row.status == "accepted" for row in rows)


def test_acceptance_is_that_of_the_transformers_engine(engine: VllmEngine, locked: Run, tmp_path: Path) -> None:
    tasks = locked.heldout_tasks()
    here = evaluated(load(STARTER)[0], locked, tasks, tmp_path / "here")
    there = evaluated(engine.policy("a" * 64, STARTER), locked, tasks, tmp_path / "there")
    interval = newcombe(here, there)
    print(f"accepted: transformers {accepted(here)}, vLLM {accepted(there)} of {len(here)}; difference {interval}")
    assert {row.task_id for row in there} == {task.task_id for task in tasks}
    assert len(here) == len(there) == HELDOUT * len(SEEDS)
    assert 0 < accepted(here) < len(here)
    assert interval[0] <= 0 <= interval[1]


def test_a_server_that_is_killed_in_an_evaluation_costs_no_row_and_counts_none_twice(
    vllm_server: VllmServer, engine: VllmEngine, locked: Run, tmp_path: Path
) -> None:
    policy, tasks = engine.policy("a" * 64, STARTER), locked.heldout_tasks()[:12]
    calm = evaluated(policy, locked, tasks, tmp_path / "calm")
    assert vllm_server.child is not None
    before = vllm_server.child.pid
    struck = evaluated(Killing(policy, vllm_server), locked, tasks, tmp_path / "struck")
    assert vllm_server.child.pid != before
    keys = [row.key for row in struck]
    assert len(set(keys)) == len(keys) == 24
    assert set(keys) == {row.key for row in calm}
    assert all(row.status != "invalid" and row.attempts == 1 for row in struck)


def newcombe(here: list[EvaluationRow], there: list[EvaluationRow]) -> tuple[float, float]:
    """Interval of the difference of two acceptances (Newcombe 1998, Statist. Med. 17, method 10)."""
    one, other = (wilson(accepted(rows), len(rows)) for rows in (here, there))
    p, q = accepted(here) / len(here), accepted(there) / len(there)
    low = q - p - math.hypot(q - other.low, one.high - p)
    high = q - p + math.hypot(other.high - q, p - one.low)
    return low, high
