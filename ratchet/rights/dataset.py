"""The authorised dataset: the only thing that a trainer accepts, made from records under rights that hold.

Authorisation is all or nothing: one record under a grant that does not permit the use refuses the whole dataset, by
the grant's name. The rights are asked again at trainer start and at every epoch (`recheck`): they can end meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from pydantic import Field

from ratchet.contracts.evidence import Evidence
from ratchet.contracts.manifest import Purpose
from ratchet.errors import IntegrityError, RightsError
from ratchet.rights.events import utc
from ratchet.rights.ledger import Ledger

Record = tuple[str, str]
"""A trajectory digest and the id of the grant that it came in under."""


class AuthorisedDataset(Evidence, owner="ratchet.rights"):
    """Records of one tenant that may be used for one purpose, as of a time."""

    tenant: str = Field(description="Whose data it is; one tenant per dataset.")
    purpose: Purpose = Field(description="What it may be used for.")
    base_model: str = Field(description="Base checkpoint that may learn from it.")
    grant_ids: tuple[str, ...] = Field(min_length=1, description="Grants it rests on, sorted.")
    records: tuple[Record, ...] = Field(min_length=1, description="(trajectory digest, grant id), sorted.")
    ledger_head: str = Field(description="Head of the rights ledger that was asked.")
    authorised_at: datetime = Field(description="UTC time of the authorisation.")
    manifest_digest: str = Field(description="Experiment it was made for.")


def authorise(
    ledger: Ledger,
    records: Iterable[Record],
    *,
    purpose: Purpose,
    tenant: str,
    base_model: str,
    at: datetime,
    manifest_digest: str,
) -> AuthorisedDataset:
    """Authorise records for one purpose.

    Args:
        ledger: the rights ledger; it is read anew first.
        records: (trajectory digest, grant id) pairs, as `intake.records` gives them; their order does not matter.
        purpose: what they are to be used for.
        tenant: who uses them.
        base_model: checkpoint that would learn from them.
        at: now, with a zone.
        manifest_digest: the experiment.

    Raises:
        RightsError: naming the grant that is missing, expired, withdrawn, too narrow or another tenant's; or that there
            are no records at all.
        IntegrityError: the ledger was tampered with.
    """
    ledger.refresh()
    chosen = tuple(sorted({(str(digest), str(grant)) for digest, grant in records}))
    if not chosen:
        raise RightsError("dataset", rule="it needs at least one record", remedy="ingest logs, or widen the filter")
    grants = tuple(sorted({grant for _, grant in chosen}))
    _require(ledger, grants, purpose, tenant, base_model, at)
    return AuthorisedDataset.issue(
        tenant=tenant,
        purpose=purpose,
        base_model=base_model,
        grant_ids=grants,
        records=chosen,
        ledger_head=ledger.head,
        authorised_at=utc(at),
        manifest_digest=manifest_digest,
    )


def recheck(ledger: Ledger, dataset: AuthorisedDataset, at: datetime) -> None:
    """Ask the rights of a dataset again: at trainer start and at every epoch.

    Raises:
        RightsError: as `authorise`, for the rights at `at`.
        IntegrityError: the ledger was tampered with, or is not the one that authorised the dataset.
    """
    ledger.refresh()
    if not ledger.has_head(dataset.ledger_head):
        raise IntegrityError(
            f"dataset {dataset.digest[:12]}",
            seen=dataset.ledger_head,
            rule="the ledger that authorised it must be a beginning of this one",
            remedy="use the ledger it was made with, or authorise the records anew",
        )
    _require(ledger, dataset.grant_ids, dataset.purpose, dataset.tenant, dataset.base_model, at)


def reopen(data: bytes, source: str) -> AuthorisedDataset:
    """Read a stored dataset back, verified. Raises IntegrityError where it was changed."""
    return AuthorisedDataset.reopen(data, source)


def _require(
    ledger: Ledger, grants: tuple[str, ...], purpose: Purpose, tenant: str, base_model: str, at: datetime
) -> None:
    for grant in grants:
        ledger.effective(grant, at).require(purpose=purpose, tenant=tenant, base_model=base_model)
