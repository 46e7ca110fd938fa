"""What one ingest did, in figures."""

from __future__ import annotations

from collections import Counter

from pydantic import Field

from ratchet.contracts.model import Contract


class IntakeReport(Contract):
    """What one ingest did: `read = stored + duplicates + quarantined`."""

    tenant: str = Field(description="Whose data it is.")
    grant_id: str = Field(description="Grant it came in under.")
    sources: int = Field(ge=0, description="Files that were looked at.")
    bytes: int = Field(ge=0, description="Their size.")
    read: int = Field(ge=0, description="Records found, readable or not.")
    stored: int = Field(ge=0, description="Trajectories that are new in the store.")
    duplicates: int = Field(ge=0, description="Trajectories that the store or this ingest had already.")
    quarantined: int = Field(ge=0, description="Pieces that were rejected, known ones included.")
    reasons: Counter[str] = Field(description="Rejected pieces by reason code.")
    anomalies: Counter[str] = Field(description="Quirks kept, by code, over all occurrences in records that were read.")
    dropped: Counter[str] = Field(description="What the stored form has no place for, by field, over all records.")
    secrets_found: int = Field(ge=0, description="Records in which a secret was found.")
    personal_found: int = Field(ge=0, description="Records in which personal data was found.")
    personal: Counter[str] = Field(description="Distinct values of personal data in a record, by kind, over all.")
    formats: Counter[str] = Field(description="Sources by format.")
    batches: tuple[str, ...] = Field(description="Names of the batches that were published.")
    seconds: float = Field(ge=0, description="Wall clock.")
    workers: int = Field(ge=1, description="Processes that judged.")

    @property
    def batch(self) -> str | None:
        """Name of the last batch; None where nothing was new."""
        return self.batches[-1] if self.batches else None
