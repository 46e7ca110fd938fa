"""The fold: from the events of a grant to the right at a time.

Events can only take away from a grant: `narrow` intersects, `expire` ends it at its time, `withdraw` is final;
`legal_hold` forbids erasure and never prolongs a right. So the right does not depend on the order of what follows the
grant, and what a prefix of the events left standing can be kept and taken on from there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from ratchet.rights.events import Event, Right, utc


@dataclass
class Standing:
    """What the events so far leave of a grant, before it is asked at a time."""

    tenant: str
    granted_at: datetime
    purposes: frozenset[str]
    base_models: frozenset[str]
    ends: datetime | None
    withdrawn: datetime | None = None
    held: bool = False

    @classmethod
    def of(cls, granted: Event) -> Self:
        """Start from the event that granted it."""
        return cls(
            tenant=granted.tenant,
            granted_at=granted.at,
            purposes=frozenset(granted.purposes or ()),
            base_models=frozenset(granted.base_models or ()),
            ends=granted.retention_until,
        )

    def take(self, event: Event) -> None:
        """Take away what the event takes away; the grant itself takes nothing."""
        if event.kind == "narrow":
            if event.purposes is not None:
                self.purposes &= frozenset(event.purposes)
            self.base_models = _fewer(self.base_models, event.base_models)
            self.ends = _earlier(self.ends, event.retention_until)
        elif event.kind == "expire":
            self.ends = _earlier(self.ends, event.at)
        elif event.kind == "withdraw":
            self.withdrawn = _earlier(self.withdrawn, event.at)
        elif event.kind == "legal_hold":
            self.held = bool(event.hold)

    def right(self, grant_id: str, at: datetime) -> Right:
        """Return the right at a time (UTC) that no event taken so far lies after. Expiry is `at >= ends`."""
        expired = self.ends is None or at >= self.ends
        return Right(
            grant_id=grant_id,
            tenant=self.tenant,
            state="withdrawn" if self.withdrawn else "expired" if expired else "active",
            purposes=tuple(sorted(self.purposes)),
            base_models=tuple(sorted(self.base_models)),
            retention_until=self.ends,
            held=self.held,
            since=self.withdrawn or (self.ends if expired else self.granted_at),
        )


def fold(grant_id: str, events: Iterable[Event], at: datetime) -> Right:
    """Fold the events of one grant into the right at a time.

    Args:
        grant_id: the grant.
        events: its events; those after `at` are ignored.
        at: the time, with a zone.

    Raises:
        RightsError: `at` has no zone.
    """
    at = utc(at)
    counted = [event for event in events if event.grant_id == grant_id and event.at <= at]
    granted = next((event for event in counted if event.kind == "grant"), None)
    if granted is None:
        return Right(grant_id=grant_id)
    standing = Standing.of(granted)
    for event in counted:
        standing.take(event)
    return standing.right(grant_id, at)


def _fewer(bases: frozenset[str], remaining: tuple[str, ...] | None) -> frozenset[str]:
    """Intersect base models, where `*` stands for all of them."""
    if remaining is None or "*" in remaining:
        return bases
    return frozenset(remaining) if "*" in bases else bases & frozenset(remaining)


def _earlier(one: datetime | None, other: datetime | None) -> datetime | None:
    return min((time for time in (one, other) if time is not None), default=None)
