"""Ingest: whole folders and files of logs into the canonical trajectory store, under one grant.

The grant is asked first; without a right nothing is read. Every record is then stored whole, with its anomalies, or
quarantined whole with reason, source, offset and digest. A record that holds a secret is quarantined without its
content, and the original of a source in which one was found is not stored. Ingesting the same again adds nothing.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from pydantic import Field

from ratchet.contracts.canonical import canonical_json
from ratchet.contracts.model import Contract
from ratchet.errors import IntakeError
from ratchet.intake import published
from ratchet.intake.batch import BatchWriter, Part
from ratchet.intake.formats import named
from ratchet.intake.gather import Gathering
from ratchet.intake.keys import Keys
from ratchet.intake.rows import EVENT_COLUMNS, INDEX_COLUMNS, TRAJECTORY_COLUMNS, event_rows, index_row, table
from ratchet.intake.secrets import SecretScanner
from ratchet.rights import Ledger, Right
from ratchet.store import Store


class IntakeReport(Contract):
    """What one ingest did: `read = stored + duplicates + quarantined`."""

    tenant: str = Field(description="Whose data it is.")
    grant_id: str = Field(description="Grant it came in under.")
    sources: int = Field(ge=0, description="Files that were looked at.")
    read: int = Field(ge=0, description="Records found, readable or not.")
    stored: int = Field(ge=0, description="Trajectories that are new in the store.")
    duplicates: int = Field(ge=0, description="Trajectories that the store or this ingest had already.")
    quarantined: int = Field(ge=0, description="Pieces that were rejected, known ones included.")
    reasons: Counter[str] = Field(description="Rejected pieces by reason code.")
    anomalies: Counter[str] = Field(description="Quirks kept, by code, over all occurrences in records that were read.")
    secrets_found: int = Field(ge=0, description="Records in which a secret was found.")
    formats: Counter[str] = Field(description="Sources by format.")
    batch: str | None = Field(description="Name of the batch that was published; None where nothing was new.")


def ingest(
    home_store: Store,
    ledger: Ledger,
    sources: Sequence[Path],
    *,
    tenant: str,
    grant_id: str,
    at: datetime,
    format: str = "auto",
    progress: Callable[[int], object] | None = None,
    canaries: Sequence[str] = (),
) -> IntakeReport:
    """Read logs into the store.

    Args:
        home_store: the store.
        ledger: the rights ledger.
        sources: files, and folders that are walked in sorted order; links and names that begin with a dot are passed
            over.
        tenant: whose data it is.
        grant_id: the grant it comes in under.
        at: now, with a zone.
        format: `auto`, or the name of a registered format.
        progress: called with the number of records since the last call.
        canaries: strings of the tenant that must never come in.

    Raises:
        RightsError: the grant is missing, expired, withdrawn or another tenant's.
        IntakeError: a source does not exist or cannot be read, or the format is unknown; nothing was stored.
        IntegrityError: ledger or store were changed by another hand.
    """
    started = time.monotonic()
    published.pointer(tenant)
    if format != "auto":
        named(format)
    _right(ledger, grant_id, tenant, at)
    files = [file for source in sources for file in _walk(Path(source))]
    gathered = Gathering(tenant, grant_id, SecretScanner(canaries), progress)
    for path, name in files:
        gathered.source(_bytes(path), name, format)
    # Reading may have taken long: a withdrawal or the end of the right meanwhile still counts.
    right = _right(ledger, grant_id, tenant, at + timedelta(seconds=time.monotonic() - started))
    # The keys lie beside the ledger, in the home that the store belongs to.
    keys = Keys(ledger.path.parent.parent)
    batch, stored = _publish(home_store, gathered, at, right, keys)
    return IntakeReport(
        tenant=tenant,
        grant_id=grant_id,
        sources=len(files),
        read=gathered.read,
        stored=stored,
        duplicates=gathered.duplicates + len(gathered.trajectories) - stored,
        quarantined=sum(gathered.reasons.values()),
        reasons=gathered.reasons,
        anomalies=gathered.anomalies,
        secrets_found=gathered.secrets,
        formats=gathered.formats,
        batch=batch,
    )


def _right(ledger: Ledger, grant_id: str, tenant: str, at: datetime) -> Right:
    """Return the grant's right; to be stored, data needs a live grant of its tenant, whatever its purposes."""
    ledger.refresh()
    right = ledger.effective(grant_id, at)
    right.require(purpose=None, tenant=tenant)
    return right


def _walk(source: Path) -> list[tuple[Path, str]]:
    if source.is_file():
        return [(source, source.name)]
    if source.is_dir():
        # A link could lead to another tenant's files.
        found = sorted(path for path in source.rglob("*") if path.is_file() and not path.is_symlink())
        names = [(path, path.relative_to(source)) for path in found]
        return [(path, str(name)) for path, name in names if not any(part.startswith(".") for part in name.parts)]
    raise IntakeError(str(source), rule="it must be a file or a folder", remedy="check the path")


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise IntakeError(
            str(path),
            rule=f"it must be readable ({error.strerror})",
            remedy="nothing was stored; mend it and try again",
        ) from None


def _publish(store: Store, gathered: Gathering, at: datetime, right: Right, keys: Keys) -> tuple[str | None, int]:
    """Publish what the store does not have yet; returns (batch or None, number of trajectories in it)."""
    items = list(gathered.trajectories.items())
    documents = [
        {"digest": digest, "document": canonical_json(item.model_dump(mode="json", exclude_none=True))}
        for digest, (item, _) in items
    ]
    part = Part(
        trajectories=table(documents, TRAJECTORY_COLUMNS),
        index=table(
            [index_row(item, digest, place, right.retention_until) for digest, (item, place) in items], INDEX_COLUMNS
        ),
        events=table([row for digest, (item, _) in items for row in event_rows(item, digest)], EVENT_COLUMNS),
        quarantine=list(gathered.quarantine.values()),
    )
    with BatchWriter(store, keys, tenant=gathered.tenant, grant_id=gathered.grant_id) as writer:
        writer.add(part)
        sources = [
            source.model_copy(update={"raw": writer.raw(gathered.originals[source.raw], source.digest)})
            if source.raw
            else source
            for source in gathered.sources
        ]
        batch = writer.publish(at, sources)
        return batch, writer.stored
