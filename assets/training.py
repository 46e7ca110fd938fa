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
    """The base checkpoint in its harness, eligible to be trained; the incumbent until a version is in production."""
    with home.run(context.partition_key) as run:
        return result(learning.baseline_policy(run))


LOGGED = [contamination_report, across("trajectories")]
"""What methods wait for that learn from logs."""
ACTING = [contamination_report, reward_audit, judge_calibration]
"""What methods wait for that act."""


def _method_asset(
    method: str,
    about: str,
    deps: Sequence[Any],
    *,
    name: str | None = None,
    kinds: Sequence[str] = ("transformers", "trl"),
) -> dg.AssetsDefinition:
    """The asset of all candidates that an experiment makes by one method."""

    @dg.asset(
        name=name or f"{method}_policy",
        description=about,
        partitions_def=experiments,
        group_name="training",
        owners=["team:training"],
        kinds=set(kinds),
        deps=deps,
        pool="trainer",
    )
    def candidates(context: dg.AssetExecutionContext, home: Home) -> dg.MaterializeResult:
        with home.run(context.partition_key) as run:
            return trained(method, learning.train_method(run, method))

    return candidates


harness_policy = _method_asset(
    "harness_search",
    "A search over what surrounds the weights, on validation cases by a stated rubric; the weights stay.",
    [baseline_policy, *LOGGED],
    name="harness_policy",
    kinds=["optuna"],
)

sft_policy = _method_asset(
    "sft",
    "Supervised fine-tuning on authorised, accepted trajectories; the checkpoint is chosen on validation.",
    [harness_policy, *LOGGED],
)

dpo_policy = _method_asset(
    "dpo",
    "Direct preference optimisation on pairs of trajectories of one task; the checkpoint is chosen on validation.",
    [sft_policy, *LOGGED],
)

orpo_policy = _method_asset(
    "orpo",
    "Odds-ratio preference optimisation on the same kind of pairs, without a reference policy.",
    [sft_policy, *LOGGED],
)

grpo_policy = _method_asset(
    "grpo",
    "Group-relative policy optimisation by acting on training tasks under the audited reward.",
    [sft_policy, *ACTING],
)

gspo_policy = _method_asset(
    "gspo",
    "Group sequence policy optimisation: GRPO with one importance ratio per episode.",
    [sft_policy, *ACTING],
)

rloo_policy = _method_asset(
    "rloo",
    "REINFORCE with a leave-one-out baseline, an episode as one action.",
    [sft_policy, *ACTING],
)


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
