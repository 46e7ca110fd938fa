"""Policies: the baseline, and the candidates that each method makes of it.

A method trains in a process of its own; the pool keeps two trainers from sharing a machine.
"""

from collections.abc import Sequence
from typing import Any

import dagster as dg

from assets.display import curves, flat, result, stage_metadata
from assets.partitions import across, experiments
from assets.rewards import judge_calibration, reward_audit
from assets.splits import contamination_report
from ratchet.contracts.canonical import digest
from ratchet.loop import learning
from ratchet.loop.context import Stage
from resources.home import Home


@dg.asset(
    partitions_def=experiments,
    group_name="training",
    owners=["team:training"],
    kinds={"transformers"},
    deps=[contamination_report],
)
def baseline_policy(context: dg.AssetExecutionContext, home: Home) -> dg.MaterializeResult:
    """The incumbent: the base checkpoint in its harness, eligible to be trained."""
    with home.run(context.partition_key) as run:
        return result(learning.baseline_policy(run))


@dg.asset(
    partitions_def=experiments,
    group_name="training",
    owners=["team:training"],
    kinds={"transformers", "trl"},
    deps=[baseline_policy, contamination_report, across("trajectories")],
    pool="trainer",
)
def sft_policy(context: dg.AssetExecutionContext, home: Home) -> dg.MaterializeResult:
    """Supervised fine-tuning on authorised, accepted trajectories; the checkpoint is chosen on validation."""
    with home.run(context.partition_key) as run:
        return trained("sft", learning.train_method(run, "sft"))


@dg.asset(
    partitions_def=experiments,
    group_name="training",
    owners=["team:training"],
    kinds={"transformers", "trl"},
    deps=[sft_policy, contamination_report, across("trajectories")],
    pool="trainer",
)
def dpo_policy(context: dg.AssetExecutionContext, home: Home) -> dg.MaterializeResult:
    """Direct preference optimisation on pairs of trajectories of one task; the checkpoint is chosen on validation."""
    with home.run(context.partition_key) as run:
        return trained("dpo", learning.train_method(run, "dpo"))


@dg.asset(
    partitions_def=experiments,
    group_name="training",
    owners=["team:training"],
    kinds={"transformers", "trl"},
    deps=[sft_policy, contamination_report, reward_audit, judge_calibration],
    pool="trainer",
)
def grpo_policy(context: dg.AssetExecutionContext, home: Home) -> dg.MaterializeResult:
    """Group-relative policy optimisation by acting on training tasks under the audited reward."""
    with home.run(context.partition_key) as run:
        return trained("grpo", learning.train_method(run, "grpo"))


def trained(method: str, stages: Sequence[Stage]) -> dg.MaterializeResult:
    """The materialisation of all candidates of a method, with their learning curves."""
    stages = [stage._replace(rows=flat(stage.rows)) for stage in stages]
    if not stages:
        nothing = f"the manifest asks for no candidate by {method}"
        return result(Stage(f"{method}_policy", True, nothing, {}, [], digest([])))
    if len(stages) == 1:
        return result(stages[0], _curve(stages[0]))
    metadata: dict[str, Any] = {}
    for stage in stages:
        shown = stage_metadata(stage) | _curve(stage)
        metadata |= {f"{stage.name} {key}": value for key, value in shown.items()}
    summary = "; ".join(f"{stage.name}: {stage.summary}" for stage in stages)
    reused = all(stage.reused for stage in stages)
    together = Stage(f"{method}_policy", reused, summary, {}, [], digest([stage.digest for stage in stages]))
    return result(together, metadata)


def _curve(stage: Stage) -> dict[str, Any]:
    drawn = curves(stage.rows)
    return {"learning curves (plot)": dg.MetadataValue.md(drawn)} if drawn else {}
