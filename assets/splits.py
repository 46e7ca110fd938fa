"""Tasks, the lock between them, the first logs, and the proof that training shares nothing with what is locked."""

import dagster as dg

from assets.display import result
from assets.partitions import across, experiments
from ratchet.loop import data
from resources.home import Home


@dg.asset(partitions_def=experiments, group_name="splits", owners=["team:data"], kinds={"jsonl"}, pool="sandbox")
def task_catalogue(context: dg.AssetExecutionContext, home: Home) -> dg.MaterializeResult:
    """Every task of the environment; each was really run before it was admitted."""
    with home.run(context.partition_key) as run:
        return result(data.task_catalogue(run))


@dg.asset(partitions_def=experiments, group_name="splits", owners=["team:data"], kinds={"json"}, deps=[task_catalogue])
def split_lock(context: dg.AssetExecutionContext, home: Home) -> dg.MaterializeResult:
    """Train, validation and held-out tasks, pinned by digest; whole groups of related tasks stay together."""
    with home.run(context.partition_key) as run:
        return result(data.split_lock(run))


@dg.asset(
    partitions_def=experiments,
    group_name="splits",
    owners=["team:data"],
    kinds={"jsonl"},
    deps=[split_lock],
    pool="sandbox",
)
def landing_logs(context: dg.AssetExecutionContext, home: Home) -> dg.MaterializeResult:
    """Logs of scripted agents that really acted on training tasks, in the tenant's landing folder."""
    with home.run(context.partition_key) as run:
        return result(data.landing_logs(run))


@dg.asset(
    partitions_def=experiments,
    group_name="splits",
    owners=["team:data"],
    kinds={"json"},
    deps=[split_lock, across("trajectories"), across("rights_ledger")],
)
def contamination_report(context: dg.AssetExecutionContext, home: Home) -> dg.MaterializeResult:
    """What training data and locked tasks share, layer by layer: identifiers, exact, near, AST."""
    with home.run(context.partition_key) as run:
        return result(data.contamination_report(run))
