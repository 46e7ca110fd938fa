"""A real loop, only small: a few problems, a random base, a Dagster instance of its own."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.instance.ref import InstanceRef

from pipelines.definitions import defs
from ratchet.contracts.canonical import canonical_json
from ratchet.contracts.manifest import Manifest
from ratchet.contracts.manifest_file import load_manifest
from ratchet.environments.repair.catalogue import build
from ratchet.environments.repair.problems import human_eval
from ratchet.loop.context import open_run

ROOT = Path(__file__).resolve().parents[2]
PROBLEMS = 16
SFT_ALONE = [{"name": "sft", "method": "sft", "start": "base", "data": {"policies": ["expert"]}}]
"""One short training."""


def small_manifest(**overrides: Any) -> Manifest:
    """The reference experiment on 24 tasks, with a random base and both methods started from it."""
    sizes = {"train": 12, "validation": 4, "heldout": 8}
    small = {
        "environment.settings.catalogue.tasks_per_problem": 2,
        "base.checkpoint": "random",
        "reward.judge": {"tuning_labels": 16, "fit": {"epochs": 1, "width": 8, "layers": 1}},
        **{f"splits.{name}": size for name, size in sizes.items()},
        "logs": [{"agent": "expert", "episodes": 12, "format": "atif"}],
        "methods": [
            {"name": "sft", "method": "sft", "start": "base", "data": {"policies": ["expert"]}},
            {"name": "grpo", "method": "grpo", "start": "base"},
        ],
        "evaluation.accept_underpowered": True,
    }
    return load_manifest(ROOT / "experiments" / "repair.yaml", fast=True, overrides=small | overrides)


class Loop:
    """A home, an instance, and the jobs on them."""

    def __init__(self, home: Path, manifest: Manifest, problems: int = PROBLEMS) -> None:
        """Open the experiment. Its catalogue is made of the first problems only, by the environment's own means."""
        self.home, self.manifest = home, manifest
        with open_run(home, manifest) as run:
            settings = run.environment.settings.catalogue  # type: ignore[attr-defined]
            problems = islice(human_eval(), problems)
            made = build(problems, settings, run.sandbox, seed=manifest.seed, name="repair", version="1")
            lines = "".join(canonical_json(task) + "\n" for task in made)
            run.store.create_same(run.name("tasks.jsonl"), lines.encode())
        settings = {"telemetry": {"enabled": False}}
        self.instance = dg.DagsterInstance.from_ref(InstanceRef.from_dir(str(home), overrides=settings))
        self.instance.add_dynamic_partitions("experiments", [manifest.run_id])
        self.instance.add_dynamic_partitions("tenants", [manifest.tenant])

    def launch(self, job: str, only: Sequence[str] | None = None) -> dg.ExecuteInProcessResult:
        """Run a job, or only some of its assets with the checks left out; what a stage raises comes out."""
        key = self.manifest.tenant if job == "ingest_trajectories" else self.manifest.run_id
        return defs.resolve_job_def(job).execute_in_process(
            instance=self.instance,
            partition_key=key,
            asset_selection=None if only is None else [dg.AssetKey(name) for name in only],
            run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
        )

    def assets(self, job: str) -> list[str]:
        """Names of the assets of a job."""
        return [key.to_user_string() for key in defs.resolve_job_def(job).asset_layer.selected_asset_keys]

    def materialized(self, asset: str) -> bool:
        """Whether the asset has a materialisation in the instance."""
        return self.instance.get_latest_materialization_event(dg.AssetKey(asset)) is not None
