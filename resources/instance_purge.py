"""What Dagster's storage holds of the data that an erasure is about, and how it is emptied.

Removed are the finished runs that can show content: those of the tenant's intake and of the experiments concerned,
since the grant was recorded, with their events, check results and captured output. Dagster shows what happened; that it
happened stays in the two ledgers.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
from dagster._core.storage.event_log.schema import AssetCheckExecutionsTable, AssetKeyTable
from dagster._core.storage.event_log.sql_event_log import SqlEventLogStorage

from ratchet.errors import ConflictError
from ratchet.loop.places import Item, Scope, vacuum
from resources.purging import TrackingPurge

if TYPE_CHECKING:
    from ratchet.loop.erasing import Purge

PARTITION = "dagster/partition"
FINISHED = (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)


class InstancePurge:
    """The hook of `ratchet.loop.erasing` for an instance of Dagster."""

    def __init__(self, instance: dg.DagsterInstance, running: str | None = None) -> None:
        """Empty `instance`; `running` is the run that does it, which is left."""
        self.instance, self.running = instance, running

    def listed(self, scope: Scope) -> list[Item]:
        """What it would remove: one entry per run."""
        why = "its events and output may quote records"
        return [Item("Dagster run", run.run_id, self._size(run.run_id), why) for run in self._runs(scope)]

    def purge(self, scope: Scope) -> None:
        """Remove them. Raises ConflictError while one of them is still running."""
        runs = self._runs(scope)
        busy = [run for run in runs if run.status not in FINISHED]
        if busy:
            raise ConflictError(
                f"run {busy[0].run_id} of {busy[0].job_name}",
                seen=str(busy[0].status.value).lower(),
                rule="no run over the data of a grant may be in progress while the data is erased",
                remedy="wait until it ends, or cancel it, then erase again",
            )
        ids = [run.run_id for run in runs]
        for run_id in ids:
            self.instance.delete_run(run_id)
            self.instance.compute_log_manager.delete_logs(prefix=[run_id])
        if ids:
            self._forget(ids)
        # Rewritten even where no run is left: an erasure that was interrupted may have stopped just before it.
        for database in sorted(self._folder().rglob("*.db")):
            vacuum(database)

    def _runs(self, scope: Scope) -> list[dg.DagsterRun]:
        found = []
        for key in (scope.tenant, *scope.experiments):
            for record in self.instance.get_run_records(dg.RunsFilter(tags={PARTITION: key})):
                ours = record.dagster_run.run_id != self.running
                if ours and record.update_timestamp.timestamp() >= scope.since:
                    found.append(record.dagster_run)
        return found

    def _forget(self, ids: Sequence[str]) -> None:
        """Remove what Dagster keeps of a run beside its events: results of checks, and the latest of each asset."""
        storage = self.instance.event_log_storage
        if isinstance(storage, SqlEventLogStorage):
            checks, keys = AssetCheckExecutionsTable, AssetKeyTable
            latest = {"last_materialization": None, "cached_status_data": None, "asset_details": None}
            with storage.index_connection() as connection:
                connection.execute(checks.delete().where(checks.c.run_id.in_(ids)))
                connection.execute(keys.update().where(keys.c.last_run_id.in_(ids)).values(**latest))

    def _size(self, run_id: str) -> int:
        return sum(path.stat().st_size for path in self._folder().rglob(f"{run_id}*") if path.is_file())

    def _folder(self) -> Path:
        return Path(self.instance.root_directory)


def project_purges(instance: dg.DagsterInstance, running: str | None = None) -> list[Purge]:
    """The hooks for everything that the project's tools hold; `running` is the run that empties it."""
    return [TrackingPurge(), InstancePurge(instance, running)]
