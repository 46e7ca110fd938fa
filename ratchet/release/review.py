"""What waits for a person's answer, and the answer: the ledger first, then certificate and evidence that follow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ratchet.errors import RatchetError, TransitionError
from ratchet.release.authority import refuse_stale, rule_reaches
from ratchet.release.certificate import certificate_name, certify, write_certificate
from ratchet.release.decision import Decision
from ratchet.release.evidence import latest_bundle, with_approvals, write_bundle
from ratchet.release.keys import configured_signer
from ratchet.release.ledger import Ledger
from ratchet.release.qualification import refuse_unqualified
from ratchet.release.records import Event, Version
from ratchet.release.signing import refuse_unsigned, sign_bundle
from ratchet.release.states import State, rank
from ratchet.store import Store

if TYPE_CHECKING:
    from securesystemslib.signer import Signer


def waiting(ledger: Ledger, tenant: str, experiment: str) -> Iterator[tuple[Version, Decision]]:
    """The versions before canary that go no further without a person, with the decision that the person answers.

    Left out is what no answer could carry: production has moved on since the candidate was compared with it.
    """
    serving = ledger.current(tenant, experiment).production
    for version, state in ledger.versions(tenant, experiment).values():
        decision = ledger.decision(version)
        if decision is None or decision.state == "reject" or not 0 <= rank(state) < rank(State.CANARY):
            continue
        reached = [rule_reaches(version, decision), *(one.upto for one in ledger.approvals(version, decision))]
        if any(limit is not None and rank(limit) >= rank(State.CANARY) for limit in reached):
            continue
        try:
            refuse_stale(version, decision, serving)
        except TransitionError:
            continue
        yield version, decision


def closed_doors(ledger: Ledger, version: Version) -> list[str]:
    """What keeps a version out of canary beside a person's answer, each with its remedy; empty where nothing does."""
    holder = ledger.current(version.tenant, version.experiment).canary
    doors: tuple[Callable[[], None], ...] = (
        lambda: refuse_unqualified(version, State.CANARY, ledger.qualification(version)),
        lambda: refuse_unsigned(ledger.home, version, ledger.decision(version)),
    )
    found = []
    for door in doors:
        try:
            door()
        except RatchetError as error:
            found.append(str(error))
    if holder is not None and holder.id != version.id:
        found.append(f"{holder.label} is in canary, which holds one version at a time; promote, reject or roll it back")
    return found


def already(ledger: Ledger, version: Version, answer: str, *, by: str, reason: str) -> bool:
    """Whether this very answer (`approve` or `reject`) on the version's latest decision is in the ledger."""
    decision, name = ledger.decision(version), " ".join(by.split())
    for event in ledger.history(version.tenant, version.experiment):
        if (event.version, event.by, event.reason) == (version.id, name, reason):
            if answer == "approve" and event.kind == "approved" and decision and event.decision == decision.digest:
                return True
            if answer == "reject" and event.kind == "moved" and event.state is State.REJECTED:
                return True
    return False


def approve_version(
    store: Store,
    ledger: Ledger,
    version: Version,
    *,
    by: str,
    reason: str,
    upto: State | str = State.CANARY,
    at: datetime | None = None,
) -> list[Event]:
    """Approve a version up to a state, promote it there, and renew its certificate and evidence bundle.

    The new bundle is signed where this machine has a key; else the signature of the one before still counts.

    Raises:
        TransitionError: the ledger refuses; nothing is then changed.
        SignatureError: the manifest demands a signature and none counts, or the key of this machine cannot be used;
            nothing is then changed.
    """
    moment = at or datetime.now(UTC)
    signer = configured_signer(ledger.home) if ledger.home else None
    events = ledger.approve(version, by=by, reason=reason, upto=upto, at=moment)
    _certify(store, ledger, version, by, moment, signer)
    return events


def complete_approval(store: Store, ledger: Ledger, version: Version, *, by: str, at: datetime) -> None:
    """Write what an approval that was killed after the ledger had moved left out; nothing where it is there."""
    decision = ledger.decision(version)
    if decision is not None and not store.exists(certificate_name(version.id, decision.digest)):
        _certify(store, ledger, version, by, at, configured_signer(ledger.home) if ledger.home else None)


def _certify(store: Store, ledger: Ledger, version: Version, by: str, at: datetime, signer: Signer | None) -> None:
    decision = ledger.decision(version)
    assert decision is not None
    approvals = ledger.approvals(version, decision)
    certificate = write_certificate(store, certify(version, decision, {}, approvals=approvals, by=by, at=at))
    bundle = latest_bundle(store, version.id)
    if bundle is not None and bundle.decision_digest == decision.digest:
        renewed = with_approvals(bundle, approvals, certificate.digest)
        write_bundle(store, renewed)
        if signer:
            sign_bundle(store, renewed, signer, at=at)
