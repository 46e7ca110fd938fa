"""The reward, tried for exploits before anything is trained on it."""

import dagster as dg

from assets.display import result
from assets.partitions import experiments
from assets.splits import split_lock
from ratchet.loop import data
from resources.home import Home


@dg.asset(
    partitions_def=experiments,
    group_name="rewards",
    owners=["team:rewards"],
    kinds={"json"},
    deps=[split_lock],
    pool="sandbox",
)
def reward_audit(context: dg.AssetExecutionContext, home: Home) -> dg.MaterializeResult:
    """What every honeypot, honest work and doing nothing earn under the reward, on a sample of training tasks."""
    with home.run(context.partition_key) as run:
        return result(data.reward_audit(run))
