"""Intake of what lies in a tenant's landing folder, and the state of its rights. By tenant, not by experiment."""

from __future__ import annotations

import hashlib
from collections import Counter
from datetime import datetime
from pathlib import Path

from ratchet.contracts.canonical import digest
from ratchet.intake import IntakeReport, ingest
from ratchet.loop.context import Stage, stage
from ratchet.progress import say
from ratchet.rights import Ledger
from ratchet.store import open_store


def ingest_landing(home: Path, tenant: str, at: datetime) -> Stage:
    """Take in every file under `<home>/landing/<tenant>/<grant>/` that was not taken in before, grant by grant.

    Raises:
        RightsError: a grant that a folder names is not valid.
    """
    store, ledger = open_store(home), Ledger.at_home(home)
    totals: Counter[str] = Counter()
    rows = []
    base = home / "landing" / tenant
    for folder in sorted(path for path in base.iterdir() if path.is_dir()) if base.exists() else []:
        fresh = {path: _mark(tenant, folder.name, path) for path in sorted(folder.rglob("*")) if _finished(path)}
        fresh = {path: mark for path, mark in fresh.items() if not store.exists(mark)}
        if not fresh:
            continue
        say(f"  intake: {len(fresh)} new files of {tenant} under {folder.name}")
        report = ingest(store, ledger, list(fresh), tenant=tenant, grant_id=folder.name, at=at)
        for mark in fresh.values():
            # The mark is its name: a file's own name may hold what must not be stored.
            store.create(mark, b"")
        totals.update(
            stored=report.stored, duplicates=report.duplicates, quarantined=report.quarantined, read=report.read
        )
        rows.append(_row(report))
    summary = (
        f"{totals['stored']} stored, {totals['duplicates']} known, {totals['quarantined']} quarantined"
        if rows
        else "nothing new in the landing folder"
    )
    head = store.pointer(f"{tenant}/refs/trajectories") or ""
    return stage("trajectories", not rows, summary, digest(head), rows, **totals)


def rights_state(home: Path, tenant: str, at: datetime) -> Stage:
    """Show every grant of a tenant as it stands at a moment; the ledger's chain is verified on the way."""
    ledger = Ledger.at_home(home)
    rows = [right.model_dump(mode="json") for right in ledger.rights(at, tenant)]
    active = sum(row["state"] == "active" for row in rows)
    return stage("rights_ledger", False, f"{active} of {len(rows)} grants active", ledger.head, rows, active=active)


def _finished(path: Path) -> bool:
    """Whether a file is meant to be read: one that is still being written has a hidden name."""
    return path.is_file() and not path.name.startswith(".")


def _mark(tenant: str, grant_id: str, path: Path) -> str:
    with path.open("rb") as file:
        return f"{tenant}/landed/{grant_id}/{hashlib.file_digest(file, 'sha256').hexdigest()}"


def _row(report: IntakeReport) -> dict[str, object]:
    counted = ("anomalies", "reasons", "formats", "dropped", "personal")
    row = report.model_dump(mode="json", exclude={*counted, "batches", "seconds", "workers"})
    counts = {name: getattr(report, name) for name in counted}
    return row | {
        "batch": report.batch,
        **{
            name: ", ".join(f"{code} {count}" for code, count in sorted(found.items()))
            for name, found in counts.items()
        },
    }
