"""The events of a training right, and the right itself: what a grant permits at one time.

Deny by default: a grant that the ledger does not know permits nothing. Not covered: who may write which event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Literal

from pydantic import Field, field_validator

from ratchet.contracts.manifest import Purpose
from ratchet.contracts.model import Contract
from ratchet.errors import RightsError

Clock = Callable[[], datetime]
Kind = Literal["grant", "narrow", "withdraw", "expire", "legal_hold", "erase"]
"""`erase` notes that the data of an ended grant is being, or was, erased; it changes no right."""
State = Literal["missing", "active", "expired", "withdrawn"]


def utc_now() -> datetime:
    """The one clock: now, in UTC."""
    return datetime.now(UTC)


def utc(at: datetime) -> datetime:
    """Return `at` in UTC. Raises RightsError for a time without a zone, which could mean any."""
    if at.tzinfo is None:
        raise RightsError(
            "time", seen=at.isoformat(), rule="it must carry a time zone", remedy="pass an aware time, e.g. in UTC"
        )
    return at.astimezone(UTC)


class Event(Contract):
    """One line of the ledger. Fields that the kind does not set are None and take nothing away."""

    kind: Kind = Field(description="What happened.")
    grant_id: str = Field(min_length=1, description="Grant it is about.")
    tenant: str = Field(min_length=1, description="Whose grant that is.")
    purposes: tuple[Purpose, ...] | None = Field(default=None, description="Purposes granted, or what remains of them.")
    base_models: tuple[str, ...] | None = Field(
        default=None, description="Base checkpoints granted, or what remains of them; `*` for all."
    )
    retention_until: datetime | None = Field(default=None, description="UTC time at which the right ends.")
    hold: bool | None = Field(default=None, description="Legal hold: True places it, False lifts it.")
    by: str = Field(min_length=1, description="Person or rule that is accountable for the event.")
    at: datetime = Field(description="UTC time from which it counts.")
    reason: str = Field(default="", description="Why, in words.")

    @field_validator("at", "retention_until")
    @classmethod
    def _in_utc(cls, value: datetime | None) -> datetime | None:
        if value is not None and value.tzinfo is None:
            raise ValueError("a time in the ledger must carry a time zone")
        return value.astimezone(UTC) if value is not None else None


class Right(Contract):
    """What a grant permits at one time."""

    grant_id: str = Field(description="Grant it is about.")
    tenant: str | None = Field(default=None, description="Whose grant it is; None where the ledger does not know it.")
    state: State = Field(default="missing", description="Only `active` permits anything.")
    purposes: tuple[Purpose, ...] = Field(default=(), description="Purposes that remain, sorted.")
    base_models: tuple[str, ...] = Field(default=(), description="Base checkpoints that remain, sorted; `*` for all.")
    retention_until: datetime | None = Field(default=None, description="UTC time at which the right ends.")
    held: bool = Field(default=False, description="Whether a legal hold forbids erasure.")
    since: datetime | None = Field(default=None, description="When the present state began; None where missing.")

    def refusal(self, *, purpose: Purpose | None, tenant: str, base_model: str | None = None) -> tuple[str, str] | None:
        """Return (rule broken, remedy), or None where the right permits the use.

        Args:
            purpose: what the data is to be used for; None asks whether any purpose remains, as intake must.
            tenant: who wants to use it.
            base_model: checkpoint that would learn from it, or None where nothing learns.
        """
        anew = "obtain a new grant under a new id"
        if self.state == "missing":
            return "the ledger knows no such grant, and what is not granted is denied", "record a grant for this data"
        if self.tenant != tenant:
            return f"it belongs to another tenant than {tenant!r}", "use data of this tenant alone"
        if self.state == "withdrawn":
            return f"it was withdrawn on {_when(self.since)}", f"drop its records, or {anew}"
        if self.state == "expired":
            return f"it expired on {_when(self.retention_until)}", f"drop its records, or {anew}"
        if purpose is None and not self.purposes:
            return "it was narrowed until no purpose remained", anew
        if purpose is not None and purpose not in self.purposes:
            return f"it does not cover the purpose {purpose!r} (it covers {_list(self.purposes)})", anew
        if base_model is not None and not {"*", base_model} & set(self.base_models):
            return f"it does not cover the base model {base_model!r} (it covers {_list(self.base_models)})", anew
        return None

    def require(self, *, purpose: Purpose | None, tenant: str, base_model: str | None = None) -> None:
        """Raise RightsError naming the grant where the right does not permit the use."""
        refused = self.refusal(purpose=purpose, tenant=tenant, base_model=base_model)
        if refused:
            raise RightsError(f"grant {self.grant_id!r}", rule=refused[0], remedy=refused[1])

    def require_ended(self) -> None:
        """Raise RightsError where the data of the grant may not be erased: its right, or a legal hold, still stands."""
        name = f"erasure of grant {self.grant_id!r}"
        if self.held:
            raise RightsError(
                name, rule="a legal hold forbids it", remedy="have it lifted: `ratchet rights hold GRANT --lift`"
            )
        if self.state == "active":
            raise RightsError(
                name,
                seen=self.state,
                rule="only the data of a withdrawn or expired grant is erased",
                remedy="withdraw the grant first, or wait until it expires",
            )


def _when(at: datetime | None) -> str:
    return at.isoformat(timespec="seconds") if at else "an unknown day"


def _list(names: Iterable[str]) -> str:
    return ", ".join(names) or "nothing"
