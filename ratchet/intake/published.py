"""What the store holds of a tenant: the chain of manifests behind one pointer, and nothing else.

    <tenant>/raw/<sha256>                 originals without secrets
    <tenant>/trajectories/<batch>.jsonl   ATIF documents, one a line, in the order of the index
    <tenant>/index/<batch>.parquet        one row per trajectory
    <tenant>/events/<batch>.parquet       one row per event
    <tenant>/quarantine/<batch>.jsonl     what was rejected, with reason, source, offset and digest
    <tenant>/manifests/<digest>.json      names every file of a batch with its digest, and the manifest before it
    <tenant>/refs/trajectories            the newest manifest; moved by compare-and-swap

A batch is published by writing its files, reading them back, creating its manifest, and moving the pointer. Until the
pointer moves nothing of it is visible; names come from content, so that a rerun after a crash completes what is there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from pydantic import Field, ValidationError

from ratchet.contracts.canonical import canonical_json, digest, digest_bytes
from ratchet.contracts.model import Contract
from ratchet.errors import IntakeError, IntegrityError
from ratchet.store import Store

KINDS = {"trajectories": "jsonl", "index": "parquet", "events": "parquet", "quarantine": "jsonl"}
_TENANT = re.compile(r"[a-z][a-z0-9_-]{0,62}")


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


class BatchManifest(Contract):
    """What one publication added."""

    tenant: str = Field(description="Whose data it is.")
    batch: str = Field(description="Digest of the batch's files: its name.")
    parent: str | None = Field(description="Manifest before this one.")
    grant_id: str = Field(description="Grant it came in under.")
    ingested_at: str = Field(description="ISO 8601 time, UTC.")
    files: dict[str, StoredFile] = Field(description="The batch's files, by kind.")
    sources: tuple[Source, ...] = Field(description="What it was read from.")


def pointer(tenant: str) -> str:
    """Return the name of a tenant's pointer. Raises IntakeError for a tenant that is no slug."""
    if not _TENANT.fullmatch(tenant):
        raise IntakeError("tenant", seen=tenant, rule="it must be a slug of a-z, 0-9, _ and -", remedy="rename it")
    return f"{tenant}/refs/trajectories"


def chain(store: Store, tenant: str, head: str | None = None) -> list[BatchManifest]:
    """Return the manifests of a tenant, oldest first, verified.

    Args:
        store: the store.
        tenant: whose.
        head: start from this manifest instead of the pointer's.

    Raises:
        IntegrityError: a manifest is missing, changed, or another tenant's.
    """
    name = head or store.pointer(pointer(tenant))
    found: list[BatchManifest] = []
    while name is not None:
        place = f"{tenant}/manifests/{name}.json"
        data = store.read(place)
        try:
            manifest = BatchManifest.model_validate_json(data)
        except ValidationError:
            raise _changed(place) from None
        if digest_bytes(data) != name or manifest.tenant != tenant:
            raise _changed(place)
        found.append(manifest)
        name = manifest.parent
    return found[::-1]


def content(store: Store, file: StoredFile) -> bytes:
    """Return the bytes of a file that a manifest names. Raises IntegrityError where they are not what it names."""
    data = store.read(file.name)
    if digest_bytes(data) != file.digest:
        raise _changed(file.name)
    return data


def lines(store: Store, file: StoredFile) -> list[bytes]:
    """Return the lines of a JSON Lines file that a manifest names."""
    return content(store, file).split(b"\n")[:-1]


def publish(
    store: Store,
    tenant: str,
    *,
    parent: str | None,
    grant_id: str,
    ingested_at: str,
    files: dict[str, tuple[bytes, int]],
    sources: tuple[Source, ...],
) -> str:
    """Publish one batch after `parent`.

    Args:
        store: the store.
        tenant: whose.
        parent: the manifest that was newest when the batch was made.
        grant_id: grant of the batch.
        ingested_at: ISO 8601 time.
        files: bytes and number of rows, by kind.
        sources: what it was read from; their originals are stored already.

    Returns:
        The batch's name.

    Raises:
        ConflictError: somebody published meanwhile; the batch must be made anew against the newer state.
    """
    digests = {kind: digest_bytes(data) for kind, (data, _) in files.items()}
    batch = digest({"files": digests, "sources": [source.model_dump() for source in sources]})
    stored = {
        kind: StoredFile(name=f"{tenant}/{kind}/{batch}.{KINDS[kind]}", digest=digests[kind], rows=rows)
        for kind, (_, rows) in files.items()
    }
    for kind, (data, _) in files.items():
        store.create(stored[kind].name, data)
        content(store, stored[kind])
    manifest = BatchManifest(
        tenant=tenant,
        batch=batch,
        parent=parent,
        grant_id=grant_id,
        ingested_at=ingested_at,
        files=stored,
        sources=sources,
    )
    data = canonical_json(manifest).encode()
    name = digest_bytes(data)
    store.create_same(f"{tenant}/manifests/{name}.json", data)
    store.swap(pointer(tenant), parent, name)
    return batch


def quarantined(store: Store, manifests: Sequence[BatchManifest]) -> list[dict[str, Any]]:
    """Return every quarantine entry that these manifests name, oldest first.

    An entry holds code, reason, source, number, offset, digest, bytes, and `content_base64` (None for a secret).
    """
    return [
        json.loads(line)
        for manifest in manifests
        if "quarantine" in manifest.files
        for line in lines(store, manifest.files["quarantine"])
    ]


def _changed(name: str) -> IntegrityError:
    return IntegrityError(
        name, rule="its content must be what its manifest names", remedy="restore the file from a backup of the store"
    )
