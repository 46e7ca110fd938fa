"""Ingest: whole folders and files of logs into the canonical trajectory store, under one grant.

The grant is asked first; without a right nothing is read. Every record is then stored whole, with its anomalies, or
quarantined whole with reason, source, offset and digest. A record that holds a secret is quarantined without its
content, and the original of a source in which one was found is not stored. Ingesting the same again adds nothing.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import Field

from ratchet.contracts.canonical import canonical_json, digest_bytes
from ratchet.contracts.model import Contract
from ratchet.contracts.trajectory import Trajectory
from ratchet.errors import ConflictError, IntakeError
from ratchet.intake import published
from ratchet.intake.formats import Format, named, recognise
from ratchet.intake.published import Source
from ratchet.intake.read import digests
from ratchet.intake.records import Record, Rejected, Unreadable
from ratchet.intake.rows import EVENT_COLUMNS, INDEX_COLUMNS, event_rows, index_row, parquet
from ratchet.intake.secrets import SecretScanner
from ratchet.intake.validate import trajectory_of
from ratchet.rights import Ledger, Right
from ratchet.rights.events import utc
from ratchet.store import Store

KEPT_CONTENT_BYTES = 1 << 20
"""Longest rejected piece whose content is kept in quarantine beside its reason."""
_ATTEMPTS = 20


class IntakeReport(Contract):
    """What one ingest did. `read = stored + duplicates + quarantined` unless a quarantined piece was known already."""

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


@dataclass
class _Gathered:
    """Everything read, before it is compared with the store."""

    trajectories: dict[str, tuple[Trajectory, dict[str, Any]]] = field(default_factory=dict)
    quarantine: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    sources: list[Source] = field(default_factory=list)
    originals: dict[str, bytes] = field(default_factory=dict)
    read: int = 0
    duplicates: int = 0
    secrets: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    anomalies: Counter[str] = field(default_factory=Counter)
    formats: Counter[str] = field(default_factory=Counter)


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
    published.pointer(tenant)
    reader = None if format == "auto" else named(format)
    right = _right(ledger, grant_id, tenant, at)
    files = [file for source in sources for file in _walk(Path(source))]
    gathered = _Gathered()
    scanner = SecretScanner(canaries)
    for path, name in files:
        _gather(gathered, _bytes(path), name, reader, format, scanner, tenant, grant_id, progress)
    _right(ledger, grant_id, tenant, at)
    batch, stored = _publish(home_store, gathered, tenant, grant_id, at, right)
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


def _gather(
    into: _Gathered,
    data: bytes,
    name: str,
    reader: Format | None,
    format: str,
    scanner: SecretScanner,
    tenant: str,
    grant_id: str,
    progress: Callable[[int], object] | None,
) -> None:
    file_digest = digest_bytes(data)
    if reader is None:
        candidates = recognise(data, name)
        if len(candidates) != 1:
            reason = "no reader recognises it" if not candidates else f"it could be {' or '.join(candidates)}"
            code = "unrecognised_format" if not candidates else "ambiguous_format"
            into.read += 1
            found = scanner.raw(data)
            into.secrets += bool(found)
            _quarantine(into, Rejected(0, 0, data, code, f"{reason}; name its format"), name, found)
            into.sources.append(Source(name=name, digest=file_digest, format=None, raw=None))
            into.formats["unrecognised"] += 1
            return
        format, reader = candidates[0], named(candidates[0])
    into.formats[format] += 1
    # The original is kept where no secret and no other tenant's record is in it.
    clean = not scanner.raw(data)
    before = len(into.trajectories)
    for item in _read(reader, data, name):
        into.read += 1
        secrets = scanner.record(item.raw, [item.document, item.claims] if isinstance(item, Record) else None)
        clean = clean and not secrets
        into.secrets += bool(secrets)
        if isinstance(item, Rejected) or secrets:
            _quarantine(into, item, name, secrets)
        else:
            clean = _keep(into, item, name, format, tenant, grant_id) and clean
        if progress:
            progress(1)
    kept = clean and len(into.trajectories) > before
    into.sources.append(
        Source(name=name, digest=file_digest, format=format, raw=f"{tenant}/raw/{file_digest}" if kept else None)
    )
    if kept:
        into.originals[f"{tenant}/raw/{file_digest}"] = data


def _read(reader: Format, data: bytes, name: str) -> Iterator[Record | Rejected]:
    """Read a source; readers are plug-ins, and one that fails costs its source and not the others."""
    number = 0
    try:
        for item in reader.read(data, name):
            yield item
            number += 1
    except Exception as error:
        yield Rejected(
            number, 0, data, "reader_failed", f"its reader failed after {number} records ({type(error).__name__})"
        )


def _keep(into: _Gathered, record: Record, name: str, format: str, tenant: str, grant_id: str) -> bool:
    """Keep a record, or quarantine it; returns whether its content may be stored by this tenant at all."""
    try:
        trajectory = trajectory_of(record, tenant=tenant, grant_id=grant_id)
    except Unreadable as error:
        _quarantine(into, Rejected(record.number, record.offset, record.raw, error.code, error.reason), name, set())
        return not error.code.startswith("foreign_")
    into.anomalies.update(record.anomalies)
    digest = trajectory.digest
    if digest in into.trajectories:
        into.duplicates += 1
        return True
    place = {"source": f"{name}#{record.number}", "offset": record.offset, "format": format}
    into.trajectories[digest] = (trajectory, place)
    return True


def _quarantine(into: _Gathered, item: Record | Rejected, name: str, secrets: set[str]) -> None:
    """Set a piece aside: without its content where that holds a secret or is another tenant's."""
    piece = digest_bytes(item.raw)
    code = "secret" if secrets or isinstance(item, Record) else item.code
    reason = (
        f"a secret was found by {', '.join(sorted(secrets))}" if secrets or isinstance(item, Record) else item.reason
    )
    into.reasons[code] += 1
    keep = not secrets and not code.startswith("foreign_") and len(item.raw) <= KEPT_CONTENT_BYTES
    into.quarantine.setdefault(
        (piece, code),
        {
            "code": code,
            "reason": reason,
            "source": name,
            "number": item.number,
            "offset": item.offset,
            "digest": piece,
            "bytes": len(item.raw),
            "content_base64": base64.b64encode(item.raw).decode() if keep else None,
        },
    )


def _publish(
    store: Store, gathered: _Gathered, tenant: str, grant_id: str, at: datetime, right: Right
) -> tuple[str | None, int]:
    """Publish what the store does not have yet; returns (batch or None, number of trajectories in it)."""
    assert right.retention_until is not None
    for _ in range(_ATTEMPTS):
        parent = store.pointer(published.pointer(tenant))
        manifests = published.chain(store, tenant, parent) if parent else []
        known = digests(store, manifests)
        set_aside = {(entry["digest"], entry["code"]) for entry in published.quarantined(store, manifests)}
        fresh = {digest: item for digest, item in gathered.trajectories.items() if digest not in known}
        aside = [entry for key, entry in gathered.quarantine.items() if key not in set_aside]
        if not fresh and not aside:
            return None, 0
        documents = [canonical_json(item.model_dump(mode="json", exclude_none=True)) for item, _ in fresh.values()]
        rows = [index_row(item, digest, place, right.retention_until) for digest, (item, place) in fresh.items()]
        events = [row for digest, (item, _) in fresh.items() for row in event_rows(item, digest)]
        files = {
            "trajectories": ("".join(document + "\n" for document in documents).encode(), len(documents)),
            "index": (parquet(rows, INDEX_COLUMNS), len(rows)),
            "events": (parquet(events, EVENT_COLUMNS), len(events)),
            "quarantine": ("".join(canonical_json(entry) + "\n" for entry in aside).encode(), len(aside)),
        }
        for name, data in gathered.originals.items():
            store.create(name, data)
        try:
            batch = published.publish(
                store,
                tenant,
                parent=parent,
                grant_id=grant_id,
                ingested_at=utc(at).isoformat(),
                files={kind: file for kind, file in files.items() if file[1]},
                sources=tuple(gathered.sources),
            )
        except ConflictError:
            continue
        return batch, len(fresh)
    raise ConflictError(
        published.pointer(tenant),
        rule=f"it moved {_ATTEMPTS} times while this batch was being published",
        remedy="ingest again when the other writers are done",
    )
