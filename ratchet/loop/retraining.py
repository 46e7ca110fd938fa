"""Retraining: when a tenant's trajectories have grown by logs from outside, and the experiment that learns from them.

What an experiment writes itself (first logs, rollouts for pairs) comes in through the same intake and moves the same
pointer; it is told apart by the name of its source, so that a retraining never sets off the next one.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ratchet.contracts.manifest import Manifest
from ratchet.intake import published
from ratchet.intake.published import BatchManifest
from ratchet.loop.context import Run, open_run, reopen_run, runs
from ratchet.release.records import Version
from ratchet.store import open_store


class Growth(NamedTuple):
    """What came in from outside since a batch."""

    head: str
    """Newest manifest of the tenant's trajectories."""
    trajectories: int
    """Trajectories of sources that no experiment of this home wrote."""
    sources: tuple[str, ...]


def tenants(home: Path) -> list[str]:
    """Tenants of a home that have trajectories."""
    store = open_store(home)
    return [name for name in store.children("") if store.exists(f"{name}/refs/trajectories")]


def head(home: Path, tenant: str) -> str | None:
    """Newest batch manifest of a tenant's trajectories."""
    return open_store(home).pointer(published.pointer(tenant))


def growth(home: Path, tenant: str, since: str | None) -> Growth | None:
    """What came in from outside after the manifest `since`; None where nothing did.

    Args:
        home: the home folder.
        tenant: whose trajectories.
        since: the newest manifest that was seen before; None for all.
    """
    store = open_store(home)
    newest_batch = head(home, tenant)
    if newest_batch is None or newest_batch == since:
        return None
    batches = published.chain(store, tenant, newest_batch)
    own = tuple(f"{run_id}." for run_id in runs(home))
    count, sources = 0, []
    for batch in batches[_after(batches, since) :]:
        foreign = [one.name for one in batch.sources if not Path(one.name).name.startswith(own)]
        if foreign and batch.trajectories:
            count += batch.trajectories
            sources += foreign
    return Growth(newest_batch, count, tuple(sources)) if count else None


def _after(batches: list[BatchManifest], since: str | None) -> int:
    """Position behind the manifest `since`. One that an erasure took away stood before its tombstone at the latest."""
    places = {batch.parent: at for at, batch in enumerate(batches)} | {
        batch.name: at + 1 for at, batch in enumerate(batches)
    }
    erased = [at + 1 for at, batch in enumerate(batches) if batch.erased]
    return 0 if since is None else places.get(since, erased[-1] if erased else 0)


def newest(home: Path, tenant: str) -> Manifest | None:
    """Manifest of the experiment of a tenant that was opened last; None where it has none."""
    for run_id in reversed(runs(home)):
        manifest = reopen_run(home, run_id).manifest
        if manifest.tenant == tenant:
            return manifest
    return None


def manifest_of(home: Path, version: Version) -> Manifest:
    """Manifest of the experiment that a version was made in. Raises IntegrityError where this home does not hold it."""
    return reopen_run(home, f"{version.experiment}-{version.manifest_digest[:12]}").manifest


def successor(home: Path, manifest: Manifest, grown_to: str) -> Run:
    """Open the experiment that repeats `manifest` on the trajectories up to the batch manifest `grown_to`.

    It has the same rules, tasks and seed, and a digest of its own. Opening it again gives the same one.
    """
    return open_run(home, manifest.model_copy(update={"grown_to": grown_to}))
