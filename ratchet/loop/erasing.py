"""Erasure of a grant's data: what it would remove, the removal, and the certificate that says what was removed.

Only the data of a withdrawn or expired grant is erased, and none under a legal hold; the rights ledger asks that under
its lock when the erasure is noted in it. What is removed is written down first (hashes and sizes, no names and no
content), so that an erasure that was interrupted goes on where it stopped and its certificate misses nothing. Doing it
again finds nothing, and gives the same certificate.

Places that other tools own (a tracking server, the storage of an orchestrator) are emptied by hooks that the caller
passes; where one fails, the erasure is not complete and no certificate is made.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, Protocol

from pydantic import AwareDatetime, Field

from ratchet.contracts.canonical import canonical_json, digest_bytes
from ratchet.contracts.evidence import Evidence
from ratchet.contracts.model import Contract
from ratchet.errors import IntegrityError, RightsError
from ratchet.intake import erase as intake
from ratchet.intake.keys import folder_of
from ratchet.loop import places
from ratchet.loop.affected import mark
from ratchet.loop.places import Item, Scope
from ratchet.rights import Event, Ledger, Right
from ratchet.store import Store, open_store

STATEMENT = "Weights are no content and were not erased; policies that saw the data are marked, none has unlearned it."


class Purge(Protocol):
    """Empties a place that another tool owns."""

    def listed(self, scope: Scope) -> list[Item]:
        """What it would remove."""

    def purge(self, scope: Scope) -> None:
        """Remove it. May be repeated. Raises RatchetError where that is not possible now."""


class ErasedObject(Contract):
    """One thing that was removed, without its name, which could be content."""

    kind: str = Field(description="What kind of thing it was.")
    name_sha256: str = Field(description="SHA-256 of its name.")
    size: int = Field(ge=0, description="Bytes.")
    content_sha256: str | None = Field(description="SHA-256 of its content, where it was known.")


class ErasureCertificate(Evidence, owner="ratchet.loop"):
    """That the data of a grant was erased: hashes and counts, no content."""

    tenant: str = Field(description="Whose data it was.")
    grant_id: str = Field(description="Grant that it came in under.")
    right: str = Field(description="`withdrawn` or `expired`.")
    since: AwareDatetime = Field(description="When the right ended.")
    by: str = Field(description="Person or rule that is accountable for the erasure.")
    reason: str = Field(description="Why, in words.")
    at: AwareDatetime = Field(description="When it was complete.")
    counts: dict[str, int] = Field(description="Number of things removed, by kind.")
    size: int = Field(ge=0, description="Bytes removed.")
    objects: tuple[ErasedObject, ...] = Field(description="Everything that was removed.")
    affected: tuple[str, ...] = Field(description="Digests of the policies that saw the data, sorted.")
    statement: str = Field(description="What this does not say of models.")


class Plan(NamedTuple):
    """What an erasure would remove."""

    scope: Scope
    right: Right
    items: list[Item]

    @property
    def size(self) -> int:
        """Bytes in all."""
        return sum(item.size for item in self.items)


class Erasure(NamedTuple):
    """What an erasure did."""

    certificate: ErasureCertificate
    removed: int
    """Things removed by this call; 0 where all was done before."""


def plan(home: Path, grant_id: str, at: datetime, purges: Sequence[Purge] = ()) -> Plan:
    """List everything that an erasure would remove, with its size and why.

    Raises:
        RightsError: the ledger knows no such grant, its right still holds, or a legal hold stands.
    """
    ledger = Ledger.at_home(home)
    right = ledger.effective(grant_id, at)
    refuse(right)
    assert right.tenant is not None
    since = ledger.history(grant_id)[0].at.timestamp()
    scope = Scope(home.resolve(), right.tenant, grant_id, since, places.touched(home, right.tenant, grant_id))
    if _is_done(open_store(home), scope, right):
        return Plan(scope, right, [])
    items = [item for purge in purges for item in purge.listed(scope)]
    return Plan(scope, right, [*items, *places.listed(scope), *_intake(scope)])


def refuse(right: Right) -> None:
    """Raise RightsError, in words, where the data of a grant may not be erased."""
    if right.state == "missing":
        raise RightsError(
            f"erasure of grant {right.grant_id!r}",
            rule="the ledger knows no such grant",
            remedy="see `ratchet rights list`",
        )
    right.require_ended()


def erase(home: Path, grant_id: str, *, by: str, reason: str, at: datetime, purges: Sequence[Purge] = ()) -> Erasure:
    """Erase the data of a grant everywhere, mark the policies that saw it, and certify it.

    Args:
        home: the home folder.
        grant_id: the grant.
        by: person or rule.
        reason: why, in words.
        at: now, with a zone.
        purges: hooks for places that other tools own; they come first, while the store still says what to look for.

    Raises:
        RightsError: as `plan`.
        RatchetError: a hook could not empty its place; call again when it can.
        IntegrityError: something is still there afterwards.
    """
    found = plan(home, grant_id, at, purges)
    store, ledger, scope = open_store(home), Ledger.at_home(home), found.scope
    affected = mark(home, grant_id, at)
    if _is_done(store, scope, found.right):
        return Erasure(certificates(store, found.right)[-1], 0)
    _note(ledger, found.right, by, at, f"begun: {reason}")
    if found.items:
        _begin(store, scope, found.items)
    for purge in purges:
        purge.purge(scope)
    places.emptied(scope)
    # The trajectories come last: what else is about the grant is found through them.
    intake.erase(store, home, tenant=scope.tenant, grant_id=grant_id, at=at)
    left = [item for item in plan(home, grant_id, at, purges).items if item.kind not in places.REFILLED]
    if left:
        raise IntegrityError(
            f"erasure of grant {grant_id!r}",
            seen=f"{len(left)} things left, the first is {left[0].kind} {left[0].name}",
            rule="nothing of it may be left",
            remedy="end what is still writing (a running loop, an ingest), then erase again",
        )
    made = _certify(store, found, by=by, reason=reason, at=at, affected=sorted({one.policy for one in affected}))
    _note(ledger, found.right, by, at, f"certificate {made.digest}: {len(made.objects)} objects, {made.size} bytes")
    store.delete_all(f"{_place(scope.tenant, grant_id)}/begun")
    return Erasure(made, len(found.items))


def certificates(store: Store, right: Right) -> list[ErasureCertificate]:
    """The certificates of a grant's erasures, verified, oldest first."""
    base = f"{_place(str(right.tenant), right.grant_id)}/certificates"
    found = [ErasureCertificate.reopen(store.read(name), name) for name in store.names(base)]
    return sorted(found, key=lambda one: one.at)


def is_due(home: Path, right: Right) -> bool:
    """Whether a grant has ended, nothing forbids its erasure, and data of it is still there or half erased."""
    if right.held or right.state in ("active", "missing"):
        return False
    scope = Scope(home.resolve(), str(right.tenant), right.grant_id, 0.0, ())
    return bool(_begun(open_store(home), scope)) or _own(scope)


def _is_done(store: Store, scope: Scope, right: Right) -> bool:
    """Whether there is a certificate, and nothing of the grant's own came back since."""
    return bool(certificates(store, right)) and not _begun(store, scope) and not _own(scope)


def _own(scope: Scope) -> bool:
    """Whether any data of the grant itself is there."""
    return any(item.kind in places.OWN for item in places.listed(scope)) or bool(_intake(scope))


def _intake(scope: Scope) -> list[Item]:
    found = intake.erasable(open_store(scope.home), scope.home, tenant=scope.tenant, grant_id=scope.grant_id)
    return [Item(f"intake {one.kind}", one.name, one.size, one.why, one.digest) for one in found]


def _place(tenant: str, grant_id: str) -> str:
    return f"{tenant}/erasures/{folder_of(grant_id)}"


def _begin(store: Store, scope: Scope, items: Sequence[Item]) -> None:
    """Write down what is about to be removed: hashes and sizes only."""
    body = canonical_json([_hashed(item) for item in items]).encode()
    store.create(f"{_place(scope.tenant, scope.grant_id)}/begun/{digest_bytes(body)}.json", body)


def _begun(store: Store, scope: Scope) -> list[ErasedObject]:
    """What erasures that never came to their certificate had set out to remove, each thing once."""
    names = store.names(f"{_place(scope.tenant, scope.grant_id)}/begun")
    found = [ErasedObject.model_validate(one) for name in names for one in json.loads(store.read(name))]
    return list({(one.kind, one.name_sha256): one for one in found}.values())


def _hashed(item: Item) -> ErasedObject:
    name = digest_bytes(item.name.encode("utf-8", "surrogatepass"))
    return ErasedObject(kind=item.kind, name_sha256=name, size=item.size, content_sha256=item.digest)


def _note(ledger: Ledger, right: Right, by: str, at: datetime, reason: str) -> None:
    assert right.tenant is not None
    ledger.append(Event(kind="erase", grant_id=right.grant_id, tenant=right.tenant, by=by, at=at, reason=reason))


def _certify(
    store: Store, found: Plan, *, by: str, reason: str, at: datetime, affected: Sequence[str]
) -> ErasureCertificate:
    objects = sorted(_begun(store, found.scope), key=lambda one: (one.kind, one.name_sha256))
    made = ErasureCertificate.issue(
        tenant=found.scope.tenant,
        grant_id=found.scope.grant_id,
        right=found.right.state,
        since=found.right.since,
        by=by,
        reason=reason,
        at=at,
        counts=dict(sorted(Counter(one.kind for one in objects).items())),
        size=sum(one.size for one in objects),
        objects=tuple(objects),
        affected=tuple(affected),
        statement=STATEMENT,
    )
    place = _place(found.scope.tenant, found.scope.grant_id)
    store.create_same(f"{place}/certificates/{made.digest}.json", made.to_bytes())
    return made
