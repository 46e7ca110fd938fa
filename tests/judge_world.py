"""A small experiment with a judge behind a real HTTP endpoint, whose mind can be changed behind its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from judge_endpoint import JudgeServer
from loop_world import make_tasks, small_manifest

from ratchet.environments.repair.labelling import EDIT_QUALITY, label_of
from ratchet.loop import data, intake
from ratchet.loop import judge as judges
from ratchet.loop.context import Run, open_run
from ratchet.rewards.calibration.labels import Label
from ratchet.rewards.judges.rubric import Item

LOGS = [{"agent": "expert", "episodes": 60, "format": "atif"}, {"agent": "random", "episodes": 360, "format": "atif"}]
PURPOSES = ["execute", "evaluate", "train_sft", "train_preference", "train_rl", "calibrate"]
RULE = {"min_labels": 12}


def honest(shown: str) -> tuple[str, str]:
    """Grade by the policy of the rubric, as the labelling function does without its noise."""
    work = shown.split("Work:\n<<<\n", 1)[1].rsplit("\n>>>", 1)[0]
    item = Item(item_id="as shown", task="", deliverable=work)
    label = label_of(item, at=Run.now(), split="anchor")
    told = label.category if "turned over" not in label.reason else opposite(label.category)
    return told, "read the diff"


def drifted(shown: str) -> tuple[str, str]:
    """The other way round."""
    category, _ = honest(shown)
    return opposite(category), "another mind"


def opposite(category: str) -> str:
    """The other category."""
    return next(one for one in EDIT_QUALITY.categories if one != category)


def section(server: JudgeServer, **over: Any) -> dict[str, Any]:
    """The judge of the manifest."""
    endpoint = {"url": server.url, "model": "grader-1", "retries": 0, "per_million_input_tokens": 1.0,
                "per_million_output_tokens": 1.0}  # fmt: skip
    return {"rubric": "edit_quality", "kind": "endpoint", "weight": 0.1, "endpoint": endpoint, "drift": RULE,
            "tuning_labels": 2, "calibration_labels": 16, "anchor_labels": 5} | over  # fmt: skip


def with_judge(home: Path, judge: dict[str, Any], purposes: list[str] = PURPOSES, **over: Any) -> Run:
    """Open the experiment and do everything before the judge; `over` replaces fields of the manifest."""
    grant = {"grant_id": "workshop-logs", "purposes": purposes, "retention_days": 90, "signed_by": "steward"}
    run = open_run(home, small_manifest(**{"logs": LOGS, "grants": [grant], "reward.judge": judge, **over}))
    make_tasks(run)
    data.split_lock(run)
    data.landing_logs(run)
    intake.ingest_landing(run.home, run.manifest.tenant, run.now())
    return run


def by_an_expert(run: Run, number: int) -> list[Label]:
    """Label works that nobody has labelled, as a person would who labels by the policy."""
    items = judges.corpus(run).items
    labelled = {label.item_id for label in judges.labels_of(run).all()}
    names = [name for name in items if name not in labelled and judges.split_of(name) == "calibration"][:number]
    made = [label_of(items[name], at=run.now(), split="calibration") for name in names]
    return [
        one.model_copy(
            update={
                "rater": "anna",
                "simulated": False,
                "reason": "by the policy",
                "category": opposite(one.category) if "turned over" in one.reason else one.category,
            }
        )
        for one in made
    ]
