"""What tenants own: the rights ledger and the trajectories. By tenant."""

from datetime import UTC, datetime

import dagster as dg

from assets.display import result
from assets.partitions import across, tenants
from ratchet.loop import intake
from resources.home import Home


@dg.asset(partitions_def=tenants, group_name="intake", owners=["team:data"], kinds={"jsonl"})
def rights_ledger(context: dg.AssetExecutionContext, home: Home) -> dg.MaterializeResult:
    """Every grant of the tenant as it stands at this moment; the ledger's chain is verified on the way."""
    return result(intake.rights_state(home.folder, context.partition_key, datetime.now(UTC)))


@dg.asset(
    partitions_def=tenants,
    group_name="intake",
    owners=["team:data"],
    kinds={"parquet", "jsonl"},
    deps=[rights_ledger, across("landing_logs")],
)
def trajectories(context: dg.AssetExecutionContext, home: Home) -> dg.MaterializeResult:
    """Logs of the landing folder in the canonical store: each record whole, or quarantined whole with the reason."""
    return result(intake.ingest_landing(home.folder, context.partition_key, datetime.now(UTC)))
