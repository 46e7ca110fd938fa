"""A person's answer to a release: the ledger first, then the certificate and evidence that follow from it."""

from __future__ import annotations

from datetime import UTC, datetime

from ratchet.release.certificate import certify, write_certificate
from ratchet.release.evidence import latest_bundle, with_approvals, write_bundle
from ratchet.release.ledger import Ledger
from ratchet.release.records import Event, Version
from ratchet.release.states import State
from ratchet.store import Store


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

    Raises:
        TransitionError: the ledger refuses; nothing is then changed.
    """
    moment = at or datetime.now(UTC)
    events = ledger.approve(version, by=by, reason=reason, upto=upto, at=moment)
    decision = ledger.decision(version)
    assert decision is not None
    approvals = ledger.approvals(version, decision)
    certificate = write_certificate(store, certify(version, decision, {}, approvals=approvals, by=by, at=moment))
    bundle = latest_bundle(store, version.id)
    if bundle is not None and bundle.decision_digest == decision.digest:
        write_bundle(store, with_approvals(bundle, approvals, certificate.digest))
    return events
