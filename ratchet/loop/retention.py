"""The daily sweep of a tenant's rights: grants that ended, what follows for models, and whose data is due for erasure.

Whether due data is erased at once or only listed is said by the manifest of the tenant's newest experiment
(`release.erase_ended_data`). What could not be erased today is told, and tried again tomorrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from ratchet.errors import RatchetError
from ratchet.loop.affected import Followed, follow, mark
from ratchet.loop.context import Stage, stage
from ratchet.loop.erasing import Purge, certificates, erase, is_due
from ratchet.loop.retraining import newest
from ratchet.rights import Ledger, Right
from ratchet.store import open_store

RULE = "rule:retention"
"""Actor of an erasure that the manifest asks for."""


def sweep(home: Path, tenant: str, at: datetime, purges: Sequence[Purge] = ()) -> tuple[Stage, list[Followed]]:
    """Go through every grant of a tenant that has ended by `at`.

    Args:
        home: the home folder.
        tenant: whose grants.
        at: now, with a zone.
        purges: hooks for an erasure, see `erasing.erase`.

    Returns:
        The stage, with a row per ended grant, and what became of affected versions.
    """
    manifest = newest(home, tenant)
    by_itself = manifest is not None and manifest.release.erase_ended_data
    rows, followed = [], []
    for right in Ledger.at_home(home).rights(at, tenant):
        if right.state in ("withdrawn", "expired"):
            followed += follow(home, right.grant_id, at)
            rows.append(
                {
                    "grant": right.grant_id,
                    "state": right.state,
                    "since": right.since.isoformat(timespec="seconds") if right.since else None,
                    "affected policies": len(mark(home, right.grant_id, at)),
                    "data": _data(home, right, at, purges, by_itself),
                }
            )
    due = sum(row["data"] == DUE for row in rows)
    summary = f"{len(rows)} grants have ended, {len(followed)} versions are affected, data of {due} is due for erasure"
    return stage("retention_sweep", False, summary, rows, rows, ended=len(rows), due=due), followed


DUE = "due for erasure: `ratchet rights erase`"


def _data(home: Path, right: Right, at: datetime, purges: Sequence[Purge], by_itself: bool) -> str:
    """What stands or became of the data of an ended grant, in words."""
    if is_due(home, right):
        if not by_itself:
            return DUE
        try:
            done = erase(home, right.grant_id, by=RULE, reason=f"the right {right.state}", at=at, purges=purges)
        except RatchetError as error:
            return f"could not be erased: {error}"
        return f"erased now, certificate {done.certificate.digest[:12]}"
    if right.held:
        return "kept under a legal hold"
    done_before = certificates(open_store(home), right)
    return f"erased on {done_before[-1].at.isoformat(timespec='seconds')}" if done_before else "none is left"
