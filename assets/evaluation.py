"""The held-out evaluation: rows, scorecards, and the audit of what each policy did for its reward."""

import dagster as dg

from assets.display import result, scorecard_metadata
from assets.partitions import experiments
from assets.splits import split_lock
from assets.training import (
    baseline_policy,
    dpo_policy,
    grpo_policy,
    gspo_policy,
    harness_policy,
    orpo_policy,
    rloo_policy,
    sft_policy,
)
from ratchet.loop import judging
from resources.home import Home


@dg.asset(
    partitions_def=experiments,
    group_name="evaluation",
    owners=["team:evaluation"],
    kinds={"jsonl"},
    deps=[
        split_lock,
        baseline_policy,
        harness_policy,
        sft_policy,
        dpo_policy,
        orpo_policy,
        grpo_policy,
        gspo_policy,
        rloo_policy,
    ],
    pool="sandbox",
)
def heldout_rows(context: dg.AssetExecutionContext, home: Home) -> dg.MaterializeResult:
    """One row per policy, held-out task and seed, written once; an interrupted evaluation fills its gaps."""
    with home.run(context.partition_key) as run:
        return result(judging.heldout_rows(run))


@dg.asset(
    partitions_def=experiments,
    group_name="evaluation",
    owners=["team:evaluation"],
    kinds={"json"},
    deps=[heldout_rows],
)
def heldout_scorecard(context: dg.AssetExecutionContext, home: Home) -> dg.MaterializeResult:
    """Acceptance, paired differences, segments, latency and complete cost of every policy."""
    with home.run(context.partition_key) as run:
        stage = judging.heldout_scorecard(run)
        return result(stage._replace(rows=[]), scorecard_metadata(judging.scorecards(run)))


@dg.asset(
    partitions_def=experiments,
    group_name="evaluation",
    owners=["team:evaluation"],
    kinds={"json"},
    deps=[heldout_rows],
)
def policy_audit(context: dg.AssetExecutionContext, home: Home) -> dg.MaterializeResult:
    """Whether each candidate earned its reward by the work, read from its episodes beside the incumbent's."""
    with home.run(context.partition_key) as run:
        return result(judging.policy_audit(run))
