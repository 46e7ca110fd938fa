"""What tenants own: the rights ledger and the trajectories. By tenant."""

from datetime import UTC, datetime

import dagster as dg

from assets.display import result, table
from assets.partitions import across, tenants
from ratchet.loop import affected, intake, retention
from resources.home import Home
from resources.instance_purge import project_purges


@dg.asset(partitions_def=tenants, group_name="intake", owners=["team:data"], kinds={"jsonl"})
def rights_ledger(context: dg.AssetExecutionContext, home: Home) -> dg.MaterializeResult:
    """Every grant of the tenant as it stands at this moment; the ledger's chain is verified on the way."""
    tenant = context.partition_key
    shown = {"affected versions": dg.MetadataValue.md(table(list(affected.overview(home.folder, tenant))))}
    return result(intake.rights_state(home.folder, tenant, datetime.now(UTC)), shown)


@dg.asset(
    partitions_def=tenants,
    group_name="intake",
    owners=["team:data"],
    kinds={"jsonl"},
    deps=[rights_ledger],
)
def retention_sweep(context: dg.AssetExecutionContext, home: Home) -> dg.MaterializeResult:
    """Grants of the tenant that have ended, what became of affected versions, and whose data is due for erasure."""
    hooks = project_purges(context.instance, context.run_id)
    stage, followed = retention.sweep(home.folder, context.partition_key, datetime.now(UTC), hooks)
    return result(stage, {"affected versions": dg.MetadataValue.md(table([one.row() for one in followed]))})


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
