"""The two ways the assets are partitioned, and how one depends on the other.

Never by task, seed or rollout. A partition is no isolation: the rights ledger enforces tenants on every read.
"""

from __future__ import annotations

import dagster as dg

experiments = dg.DynamicPartitionsDefinition(name="experiments")
"""A key per experiment: the manifest's `run_id`. Training, evaluation and release."""

tenants = dg.DynamicPartitionsDefinition(name="tenants")
"""A key per tenant. Intake and rights."""


def across(asset: str) -> dg.AssetDep:
    """Depend on an asset of the other partitioning; which of its rows count the stage decides, under the ledger."""
    return dg.AssetDep(asset, partition_mapping=dg.AllPartitionMapping())
