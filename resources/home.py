"""The home folder as a Dagster resource: the one setting that the assets need."""

from __future__ import annotations

import os
from pathlib import Path

from dagster import ConfigurableResource
from pydantic import Field

from ratchet.loop.context import Run, reopen_run, runs
from ratchet.store import Store, open_store


class Home(ConfigurableResource):
    """Where the state lives: store, ledgers, MLflow database, landing folder."""

    path: str = Field(default="", description="Folder; left empty it is RATCHET_HOME, or `.ratchet`.")

    @property
    def folder(self) -> Path:
        """The folder, absolute. The variable is read at each use, so that one process can serve a later setting."""
        return Path(self.path or os.environ.get("RATCHET_HOME") or ".ratchet").resolve()

    @property
    def store(self) -> Store:
        """The store of the home."""
        return open_store(self.folder)

    def run(self, run_id: str) -> Run:
        """Open an experiment by its partition key. Raises IntegrityError where its manifest is missing or changed."""
        return reopen_run(self.folder, run_id)

    def segments(self, tenant: str) -> set[str]:
        """Segments of a tenant's locked tasks, over all its experiments; empty where nothing is locked yet."""
        found: set[str] = set()
        for run_id in runs(self.folder):
            run = self.run(run_id)
            if run.manifest.tenant == tenant and self.store.exists(run.name("splits", "lock.json")):
                found |= {segment for counts in run.lock.segments.values() for segment in counts}
        return found
