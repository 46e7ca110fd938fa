"""Erasure inside the intake: of a grant that was withdrawn or has expired nothing remains but a tombstone.

First a tombstone takes the pointer, by compare-and-swap: a manifest whose summary is the whole chain without the
grant. From then on no reader finds anything of the grant, and a publisher that was about to bring more of it loses the
race and is refused. Then the key is destroyed, and everything is deleted whose name says that it is of the grant,
published or left behind by a crash, with all versions and unfinished uploads, with the summaries that held its rows
and the scratch folders. Every step can be done again: after a crash, erase again.
"""

from __future__ import annotations

import contextlib
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from ratchet.contracts.canonical import canonical_json, digest
from ratchet.errors import IntegrityError
from ratchet.intake import published, scratch, summaries
from ratchet.intake.keys import Keys, folder_of
from ratchet.intake.published import BatchManifest
from ratchet.intake.scratch import Scratch
from ratchet.rights.events import utc
from ratchet.store import Store
from ratchet.store.base import file_digest

PLACES = {
    "raw": ("original", "as it was ingested, sealed"),
    "trajectories": ("trajectories", "came in under the grant"),
    "index": ("index", "rows of its trajectories"),
    "events": ("events", "rows of its trajectories"),
    "quarantine": ("quarantine", "was rejected under the grant"),
    "manifests": ("manifest", "names its sources"),
}
"""Folders of a tenant that have a folder for every grant: kind of what lies there, and why it goes."""


class Erasable(NamedTuple):
    """One thing that an erasure removes."""

    kind: str
    name: str
    """Name in the store; for keys and scratch files the path under the home."""
    size: int
    """Bytes as it is stored."""
    why: str
    digest: str | None
    """SHA-256 of it as it is stored; None for a key."""


def erasable(store: Store, home: Path, *, tenant: str, grant_id: str) -> list[Erasable]:
    """List what an erasure of a grant would remove; nothing is changed.

    Args:
        store: the store.
        home: the home folder, for key and scratch files.
        tenant: whose grant.
        grant_id: the grant, whatever its state.

    Returns:
        Current objects. Old versions, unfinished uploads and hidden leftovers of crashed writers go with them.
    """
    home = home.resolve()
    named = {
        name: reason
        for place, reason in PLACES.items()
        for name in store.names(f"{tenant}/{place}/{folder_of(grant_id)}")
    }
    if _visible(published.chain(store, tenant), grant_id):
        shared = ("summary", "holds rows of it beside others, which are written anew")
        named |= dict.fromkeys(store.names(f"{tenant}/summaries"), shared)
    found = [one for name, reason in named.items() if (one := _measured(store, name, reason))]
    for path in scratch.leftovers(home, tenant, grant_id):
        why = "an ingest that runs, or was killed, left it"
        with contextlib.suppress(FileNotFoundError):
            digest_of = file_digest(path)
            found.append(Erasable("scratch file", _under(home, path), path.stat().st_size, why, digest_of))
    key = Keys(home).path(tenant, grant_id)
    if key.exists():
        found.append(Erasable("key", _under(home, key), key.stat().st_size, "opens its originals", None))
    return found


def erase(store: Store, home: Path, *, tenant: str, grant_id: str, at: datetime) -> list[Erasable]:
    """Erase what came in under a grant. Again, also after a crash at any point, is no error.

    Whether it may be erased (withdrawn or expired, no legal hold) is for the caller to ask of the ledger.

    Args:
        store: the store.
        home: the home folder.
        tenant: whose grant.
        grant_id: the grant.
        at: now, with a zone.

    Returns:
        What this call removed, as `erasable`; after a crash that is the rest.

    Raises:
        ConflictError: others moved the pointer each time that the tombstone was about to; nothing was erased.
        IntegrityError: a manifest is missing or was changed; nothing was erased.
    """
    removed = {one.name: one for one in erasable(store, home, tenant=tenant, grant_id=grant_id)}
    _bury(store, home, tenant, grant_id, at)
    Keys(home).destroy(tenant, grant_id, at)
    removed |= {one.name: one for one in erasable(store, home, tenant=tenant, grant_id=grant_id)}
    with store.locked(f"{tenant}/refs/erasure"):
        for place in PLACES:
            published.delete_all(store, f"{tenant}/{place}/{folder_of(grant_id)}")
        newest = published.settled(store, tenant, lambda head: published.recent(store, tenant, head))
        summaries.remove_earlier(store, tenant, newest)
    scratch.remove(home, tenant, grant_id)
    return list(removed.values())


def _bury(store: Store, home: Path, tenant: str, grant_id: str, at: datetime) -> None:
    """Put a tombstone in place of all that the chain has of a grant, unless it is there already."""
    place = published.pointer(tenant)

    def bury(head: str | None) -> None:
        newest = published.recent(store, tenant, head)
        chain = published.everything(store, newest)
        buried = any(one.erased and one.grant_id == grant_id for one in chain)
        if buried and not _visible(chain, grant_id):
            return
        tombstone = _tombstone(store, home, tenant, grant_id, at, head, newest)
        store.create_same(published.manifest_place(tenant, tombstone.name), canonical_json(tombstone).encode())
        store.swap(place, head, tombstone.name)

    store.settled(place, bury, f"the tombstone of grant {grant_id!r} was being published")


def _tombstone(
    store: Store,
    home: Path,
    tenant: str,
    grant_id: str,
    at: datetime,
    head: str | None,
    newest: list[BatchManifest],
) -> BatchManifest:
    making = Scratch(home, tenant, grant_id)
    try:
        summary = summaries.write(store, tenant, newest, making.folder, without=grant_id)
    finally:
        making.close()
    return BatchManifest(
        tenant=tenant,
        batch=digest({"erased": grant_id}),
        parent=head,
        grant_id=grant_id,
        ingested_at=utc(at).isoformat(),
        files={},
        sources=(),
        erased=True,
        summary=summary,
    )


def _visible(chain: list[BatchManifest], grant_id: str) -> bool:
    return any(one.grant_id == grant_id and not one.erased for one in chain)


def _measured(store: Store, name: str, reason: tuple[str, str]) -> Erasable | None:
    """An object with its size and digest; None where it has gone since it was listed."""
    try:
        with store.open(name) as handle:
            found = published.stream_digest(handle)
            return Erasable(reason[0], name, handle.tell(), reason[1], found)
    except IntegrityError:
        return None


def _under(home: Path, path: Path) -> str:
    return str(path.relative_to(home))
