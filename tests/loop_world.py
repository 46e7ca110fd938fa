"""A real loop, only small: tasks of the first problems, few episodes, short training. As a program it runs all stages.

`python tests/loop_world.py HOME` goes on where the last run of the same home stopped, as the loop does.
"""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path
from typing import Any

from ratchet.contracts.canonical import canonical_json
from ratchet.contracts.manifest import Manifest
from ratchet.contracts.manifest_file import load_manifest
from ratchet.environments.repair.catalogue import build
from ratchet.environments.repair.problems import human_eval
from ratchet.loop import auditing, data, deciding, intake, judging, learning
from ratchet.loop.context import Run, Stage, open_run

ROOT = Path(__file__).resolve().parents[1]
PROBLEMS = 30
SMALL: dict[str, Any] = {
    "environment.settings.catalogue": {"visible_tests": 4, "fixes": 8, "tasks_per_problem": 2},
    "splits.train": 24,
    "splits.validation": 8,
    "splits.heldout": 16,
    "logs": [
        {"agent": "expert", "episodes": 48, "format": "atif"},
        {"agent": "random", "episodes": 12, "format": "openai_chat"},
    ],
    "methods": [
        {
            "name": "sft",
            "method": "sft",
            "start": "base",
            "data": {"policies": ["expert"]},
            "settings": {"epochs": 2, "batch_size": 8},
        },
        {
            "name": "grpo",
            "method": "grpo",
            "start": "sft",
            "settings": {"steps": 2, "prompts_per_step": 4, "group_size": 4, "validate_every": 1},
        },
    ],
    "evaluation.seeds": [0, 1],
    "evaluation.accept_underpowered": True,
    "evaluation.resamples": 1000,
    # Nothing answers live tasks here: a person brings a version into production.
    "release.canary_share": 0.0,
}


def small_manifest(**overrides: Any) -> Manifest:
    """The reference experiment on 48 tasks."""
    return load_manifest(ROOT / "experiments" / "repair.yaml", overrides=SMALL | overrides)


MANIFEST = small_manifest()


def make_tasks(run: Run) -> None:
    """Make the catalogue of the first problems only, by the environment's own means, once."""

    def make() -> bytes:
        settings = run.environment.settings.catalogue  # type: ignore[attr-defined]
        problems = islice(human_eval(), PROBLEMS)
        made = build(problems, settings, run.sandbox, seed=run.manifest.seed, name="repair", version="1")
        return "".join(canonical_json(task) + "\n" for task in made).encode()

    run.once("tasks.jsonl", make)


def prepare(run: Run) -> list[Stage]:
    """Every stage before the first training."""
    make_tasks(run)
    return [
        data.task_catalogue(run),
        data.split_lock(run),
        data.landing_logs(run),
        intake.ingest_landing(run.home, run.manifest.tenant, run.now()),
        data.contamination_report(run),
        auditing.reward_audit(run),
        learning.baseline_policy(run),
    ]


def judge(run: Run) -> list[Stage]:
    """Every stage after the last training."""
    return [
        judging.heldout_rows(run),
        judging.heldout_scorecard(run),
        judging.policy_audit(run),
        deciding.release_decision(run),
        deciding.registered_versions(run),
    ]


def train(run: Run) -> list[Stage]:
    """Every training."""
    return [stage for method in ("sft", "grpo") for stage in learning.train_method(run, method)]


def whole(run: Run) -> list[Stage]:
    """Every stage of the loop."""
    return [*prepare(run), *train(run), *judge(run)]


if __name__ == "__main__":
    with open_run(Path(sys.argv[1]), MANIFEST) as opened:
        for stage in whole(opened):
            print(stage.name, stage.reused, stage.digest, flush=True)
