"""What the store holds of a tenant: the chain of manifests behind one pointer, and nothing else.

    <tenant>/raw/<grant>/<sha256>                  originals without secrets, sealed with the grant's key
    <tenant>/trajectories/<grant>/<batch>-<n>.parquet   digest and ATIF document, sorted by digest
    <tenant>/index/<grant>/<batch>-<n>.parquet     one row per trajectory, in the order of intake
    <tenant>/events/<grant>/<batch>-<n>.parquet    one row per event
    <tenant>/quarantine/<grant>/<batch>-<n>.parquet     what was rejected, with reason, source, offset and digest
    <tenant>/manifests/<grant>/<digest>.json       names every file of a batch with its digest, and the manifest before
    <tenant>/summaries/<id>/                       all manifests before one, their index and their quarantine keys
    <tenant>/refs/trajectories                     the newest manifest; moved by compare-and-swap

A reader starts at the pointer and opens what it finds named, each file verified by its digest. Whatever else lies
there (what a crash left, a file that somebody put there) does not exist for it. The grant stands in every name, so
that all of it is found when it must be erased, published or not.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Callable, Iterator
from typing import BinaryIO, TypeVar

from pydantic import Field, ValidationError

from ratchet.contracts.canonical import canonical_json, digest_bytes
from ratchet.contracts.model import Contract
from ratchet.errors import IntakeError, IntegrityError
from ratchet.intake.keys import folder_of
from ratchet.intake.sealed import pieces
from ratchet.store import Store

TOMBSTONES = "_erased"
"""Stands in place of a grant in the names of tombstones, which outlive what they are about."""
_TENANT = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_ATTEMPTS = 20
_Found = TypeVar("_Found")


class StoredFile(Contract):
    """One file of a batch."""

    name: str = Field(description="Name in the store.")
    digest: str = Field(description="SHA-256 of its bytes.")
    rows: int = Field(ge=0, description="Number of rows or lines.")


class Source(Contract):
    """One source that a batch was read from."""

    name: str = Field(description="File name, relative to the folder that was ingested.")
    digest: str = Field(description="SHA-256 of its bytes.")
    format: str | None = Field(description="Format it was read as; None where none recognised it.")
    raw: str | None = Field(description="Name of the stored original, or None where it holds a secret or no record.")


class Summary(Contract):
    """What came before a manifest, in three files, so that a reader need not open every manifest."""

    chain: StoredFile = Field(description="The manifests, oldest first, one a line.")
    index: StoredFile = Field(description="Their index rows, with batch and ingested_at.")
    aside: StoredFile = Field(description="Grant, digest and code of their quarantine entries.")


class BatchManifest(Contract):
    """What one publication added; or, as a tombstone, that nothing of a grant is left and nothing may come."""

    tenant: str = Field(description="Whose data it is.")
    batch: str = Field(description="Digest of the batch's content: its name.")
    parent: str | None = Field(description="Name of the manifest before this one.")
    grant_id: str = Field(description="Grant it came in under, or of which it is the tombstone.")
    ingested_at: str = Field(description="ISO 8601 time, UTC, of its publication.")
    files: dict[str, tuple[StoredFile, ...]] = Field(description="The batch's files, by kind, in order.")
    sources: tuple[Source, ...] = Field(description="What it was read from.")
    erased: bool = Field(default=False, description="Whether it is the tombstone of its grant.")
    summary: Summary | None = Field(default=None, description="Everything before it; a reader goes no further back.")

    @property
    def name(self) -> str:
        """Its name: what the pointer and the next manifest hold."""
        folder = TOMBSTONES if self.erased else folder_of(self.grant_id)
        return f"{folder}/{digest_bytes(canonical_json(self).encode())}"

    @property
    def trajectories(self) -> int:
        """Number of trajectories it added."""
        return sum(file.rows for file in self.files.get("index", ()))


def pointer(tenant: str) -> str:
    """Return the name of a tenant's pointer. Raises IntakeError for a tenant that is no slug."""
    if not _TENANT.fullmatch(tenant):
        raise IntakeError("tenant", seen=tenant, rule="it must be a slug of a-z, 0-9, _ and -", remedy="rename it")
    return f"{tenant}/refs/trajectories"


def manifest_place(tenant: str, name: str) -> str:
    """Return where a manifest is stored."""
    return f"{tenant}/manifests/{name}.json"


def recent(store: Store, tenant: str, head: str | None) -> list[BatchManifest]:
    """Return the manifests from the newest that has a summary (or the first of all) to `head`, oldest first, verified.

    Raises:
        IntegrityError: a manifest is missing, changed, or another tenant's.
    """
    found: list[BatchManifest] = []
    name = head
    while name is not None:
        place = manifest_place(tenant, name)
        found.append(_manifest(store.read(place), place))
        if found[-1].name != name or found[-1].tenant != tenant:
            raise changed(place)
        name = None if found[-1].summary else found[-1].parent
    return found[::-1]


def chain(store: Store, tenant: str, head: str | None = None) -> list[BatchManifest]:
    """Return all manifests of a tenant, oldest first, verified; tombstones are among them.

    Args:
        store: the store.
        tenant: whose.
        head: start from this manifest instead of the pointer's.

    Raises:
        IntegrityError: a manifest is missing, changed, or another tenant's.
    """
    return settled(store, tenant, lambda newest: everything(store, recent(store, tenant, head or newest)))


def everything(store: Store, newest: list[BatchManifest]) -> list[BatchManifest]:
    """Return `newest`, as `recent` gives them, with all that their summary stands for before them."""
    summary = newest[0].summary if newest else None
    before = content(store, summary.chain).splitlines() if summary else []
    return [*(_manifest(line, summary.chain.name if summary else "") for line in before), *newest]


def settled(store: Store, tenant: str, look: Callable[[str | None], _Found]) -> _Found:
    """Return what `look` finds from the newest manifest; where the chain is rewritten meanwhile, it looks again."""
    return store.settled(pointer(tenant), look, f"the data of {tenant} was being read")


def content(store: Store, file: StoredFile) -> bytes:
    """Return the bytes of a file that a manifest names. Raises IntegrityError where they are not what it names."""
    data = store.read(file.name)
    if digest_bytes(data) != file.digest:
        raise changed(file.name)
    return data


@contextlib.contextmanager
def opened(store: Store, file: StoredFile) -> Iterator[BinaryIO]:
    """Open a file that a manifest names, verified, to be read in pieces. Raises IntegrityError as `content`."""
    verify(store, file)
    with store.open(file.name) as handle:
        yield handle


def verify(store: Store, file: StoredFile) -> None:
    """Read a file back, in pieces. Raises IntegrityError where it is not what it was written as."""
    with store.open(file.name) as handle:
        if stream_digest(handle) != file.digest:
            raise changed(file.name)


def stream_digest(handle: BinaryIO) -> str:
    """SHA-256 of the rest of a stream."""
    whole = hashlib.sha256()
    for piece in pieces(handle):
        whole.update(piece)
    return whole.hexdigest()


def delete_all(store: Store, prefix: str) -> None:
    """Delete everything under a prefix, also while another process is about to delete some of it."""
    for _ in range(_ATTEMPTS):
        with contextlib.suppress(FileNotFoundError):
            store.delete_all(prefix)
            return
    store.delete_all(prefix)


def changed(name: str) -> IntegrityError:
    """The error for a file that is not what its manifest names."""
    return IntegrityError(
        name, rule="its content must be what its manifest names", remedy="restore the file from a backup of the store"
    )


def _manifest(data: bytes, place: str) -> BatchManifest:
    try:
        return BatchManifest.model_validate_json(data)
    except ValidationError:
        raise changed(place) from None
