"""What becomes of models when a right ends: they are marked, and follow the policy that their manifest states.

A checkpoint that saw the data, and each of its descendants, is `affected_withdrawn` or `affected_expired`. The mark is
kept by policy digest, and on every version in the release ledger, which from then on refuses to promote or restore it.
Nothing here claims that a model has unlearned: the mark is never taken off.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import AwareDatetime, Field

from ratchet.contracts.evidence import Evidence
from ratchet.contracts.manifest import Consequence
from ratchet.errors import ConflictError, RightsError
from ratchet.intake import index
from ratchet.loop.lineage import Cause, Lineage
from ratchet.release.ledger import Ledger as ReleaseLedger
from ratchet.release.records import Event, Version
from ratchet.release.review import approve_version
from ratchet.release.states import SERVING, TRANSITIONS, State
from ratchet.rights import Ledger, Right
from ratchet.store import Store, open_store

RULE = "rule:rights"
"""Actor of what follows from a manifest's policy by itself."""
ATTEMPTS = 5
ORDER = (State.CANDIDATE, State.STAGING, State.SUPERSEDED, State.CANARY, State.PRODUCTION)
"""What serves is moved last, so that nothing affected could take its place."""
Ended = Literal["withdrawn", "expired"]


class AffectedPolicy(Evidence, owner="ratchet.loop"):
    """That a policy saw data whose right has ended."""

    tenant: str = Field(description="Tenant of the grant.")
    policy: str = Field(description="Digest of weights and harness.")
    name: str = Field(description="Name of the policy in its experiment.")
    run_id: str = Field(description="Experiment that made it.")
    grant_id: str = Field(description="The grant.")
    state: Literal["affected_withdrawn", "affected_expired"] = Field(description="How the right ended.")
    since: AwareDatetime = Field(description="When it ended.")
    how: str = Field(description="How the policy saw the data.")


class Followed(NamedTuple):
    """What became of one affected version."""

    version: Version
    grant_id: str
    ended: Ended
    policy: Consequence
    """What the manifest that it was registered under asks for."""
    before: State
    state: State
    due: datetime | None
    """When a retraining must have replaced it; None where the policy sets no deadline."""
    retrain: bool
    """Whether it waits for a retraining now."""

    def row(self) -> dict[str, str]:
        """As a table shows it."""
        return {
            "version": self.version.label,
            "model": f"{self.version.tenant}.{self.version.experiment}",
            "rights": f"affected_{self.ended}",
            "grant": self.grant_id,
            "policy": self.policy,
            "state": str(self.state) if self.state == self.before else f"{self.before} -> {self.state}",
            "due": self.due.isoformat(timespec="seconds") if self.due else "",
        }


def mark(home: Path, grant_id: str, at: datetime, lineage: Lineage | None = None) -> list[AffectedPolicy]:
    """Mark every policy that saw data of a grant whose right has ended, and its versions; a mark is made once.

    Returns:
        The marks that stand, old ones included; none while the right holds.
    """
    right = Ledger.at_home(home).effective(grant_id, at)
    if not _ended(right):
        return []
    store, ledger = open_store(home), ReleaseLedger.of(home)
    found = [_marked(store, right, cause) for cause in (lineage or Lineage(home)).causes(grant_id).values()]
    for version, _ in ledger.versions().values():
        for one in found:
            if one.policy == version.policy.digest:
                ledger.mark(version, _kind(right), by=RULE, reason=_reason(one), at=at)
    return found


def follow(home: Path, grant_id: str, at: datetime) -> list[Followed]:
    """Mark what saw data of a grant, and do with every version what its manifest says. May be repeated at any time.

    Returns:
        What became of each affected version that is not at an end already, or that this call ended.
    """
    right = Ledger.at_home(home).effective(grant_id, at)
    marks = {one.policy: one for one in mark(home, grant_id, at)}
    if not marks:
        return []
    ledger = ReleaseLedger.of(home)
    versions = [(version, state) for version, state in ledger.versions().values() if version.policy.digest in marks]
    versions = [(version, state) for version, state in versions if state in ORDER]
    found = []
    for version, state in sorted(versions, key=lambda one: ORDER.index(one[1])):
        policy, due = _policy(version, right)
        target = _target(policy, state, overdue=due is not None and at >= due)
        if target is not None:
            _move(ledger, version, target, _reason(marks[version.policy.digest]), at)
        now = target or state
        waits = policy == "retrain" and target is None and state in SERVING
        found.append(Followed(version, grant_id, _kind(right), policy, state, now, due, waits))
    return found


def follow_all(home: Path, tenant: str, at: datetime) -> list[Followed]:
    """`follow` for every grant of a tenant that has ended."""
    return [one for grant_id in ended_grants(home, tenant, at) for one in follow(home, grant_id, at)]


def ended_grants(home: Path, tenant: str, at: datetime) -> list[str]:
    """Grants of a tenant that are withdrawn or expired at a time."""
    return [right.grant_id for right in Ledger.at_home(home).rights(at, tenant) if _ended(right)]


def marks_of(store: Store, tenant: str, policy: str) -> list[AffectedPolicy]:
    """The marks of one policy, verified."""
    return [AffectedPolicy.reopen(store.read(name), name) for name in store.names(f"{tenant}/affected/{policy}")]


def holds_records(store: Store, tenant: str, grant_id: str) -> bool:
    """Whether the tenant's index still lists trajectories of a grant."""
    return bool((index(store, tenant)["grant_id"] == grant_id).any())


def refuse_affected(home: Path, version: Version, at: datetime) -> None:
    """The door of every promotion: ask the rights behind a version at this moment.

    Raises:
        RightsError: naming the version and the grant that is withdrawn, expired or too narrow by now.
    """
    rights, lineage = Ledger.at_home(home), Lineage(home)
    for grant_id in lineage.grants(version.policy.digest):
        if mark(home, grant_id, at, lineage):
            right = rights.effective(grant_id, at)
            how = lineage.causes(grant_id)[version.policy.digest].how
            raise _refused(version, f"affected_{right.state}", f"grant {grant_id!r} is {right.state}, and it {how}")
    for learner in lineage.chain(version.policy.digest):
        for grant_id in learner.dataset.grant_ids if learner.dataset else ():
            assert learner.dataset is not None
            refusal = rights.effective(grant_id, at).refusal(
                purpose=learner.dataset.purpose, tenant=learner.dataset.tenant, base_model=learner.dataset.base_model
            )
            if refusal:
                raise _refused(version, None, f"grant {grant_id!r}: {refusal[0]}")


def approve(
    home: Path, ledger: ReleaseLedger, version: Version, *, by: str, reason: str, upto: str, at: datetime
) -> list[Event]:
    """Approve a version as `release.review` does, after the rights behind it were asked again.

    Raises:
        RightsError: a right behind the version has ended or no longer covers it; nothing is changed but its mark.
        TransitionError: the ledger refuses.
    """
    refuse_affected(home, version, at)
    return approve_version(open_store(home), ledger, version, by=by, reason=reason, upto=upto, at=at)


def overview(home: Path, tenant: str) -> Iterator[dict[str, str]]:
    """Every affected version of a tenant as the release ledger has it now, as rows of a table."""
    ledger = ReleaseLedger.of(home)
    for owner, experiment in ledger.lines():
        if owner == tenant:
            held = ledger.versions(owner, experiment)
            for identity, event in ledger.affected(owner, experiment).items():
                version, state = held[identity]
                asked = version.release.on_withdrawal if event.kind == "withdrawn" else version.release.on_expiry
                yield {
                    "version": version.label,
                    "model": f"{owner}.{experiment}",
                    "rights": f"affected_{event.kind}",
                    "policy": asked,
                    "state": str(state),
                    "reason": event.reason,
                }


def _ended(right: Right) -> bool:
    return right.state in ("withdrawn", "expired")


def _kind(right: Right) -> Ended:
    return "withdrawn" if right.state == "withdrawn" else "expired"


def _marked(store: Store, right: Right, cause: Cause) -> AffectedPolicy:
    assert right.tenant is not None
    state = f"affected_{_kind(right)}"
    name = f"{right.tenant}/affected/{cause.policy}/{right.grant_id}.{state}.json"
    if not store.exists(name):
        made = AffectedPolicy.issue(
            tenant=right.tenant,
            policy=cause.policy,
            name=cause.name,
            run_id=cause.run_id,
            grant_id=right.grant_id,
            state=state,
            since=right.since,
            how=cause.how,
        )
        store.create(name, made.to_bytes())
    return AffectedPolicy.reopen(store.read(name), name)


def _reason(one: AffectedPolicy) -> str:
    ended = one.state.removeprefix("affected_")
    return f"grant {one.grant_id!r} {ended} on {one.since.isoformat(timespec='seconds')}; {one.how}"


def _policy(version: Version, right: Right) -> tuple[Consequence, datetime | None]:
    release = version.release
    asked = release.on_withdrawal if right.state == "withdrawn" else release.on_expiry
    if asked != "retrain" or right.since is None:
        return asked, None
    return asked, right.since + timedelta(days=release.withdrawal_deadline_days)


def _target(policy: Consequence, state: State, *, overdue: bool) -> State | None:
    """Where a version in `state` goes, or None where it stays."""
    if policy == "roll_back":
        return State.ROLLED_BACK if state in SERVING else None
    if policy == "quarantine" or overdue:
        return State.QUARANTINED if State.QUARANTINED in TRANSITIONS[state] else None
    return None


def _move(ledger: ReleaseLedger, version: Version, target: State, reason: str, at: datetime) -> None:
    """Move a version; who moved the line meanwhile is taken into account, and what is done already is left."""
    for attempt in range(1, ATTEMPTS + 1):
        seq = ledger.current(version.tenant, version.experiment).seq
        if target not in TRANSITIONS[ledger.state(version)]:
            return
        try:
            ledger.transition(version, target, by=RULE, reason=reason, expected_seq=seq, at=at)
            return
        except ConflictError:
            if attempt == ATTEMPTS:
                raise


def _refused(version: Version, seen: str | None, rule: str) -> RightsError:
    return RightsError(
        f"promotion of {version.label}",
        seen=seen,
        rule=f"every right behind a version must hold when it is promoted, but {rule}",
        remedy="train a candidate without this data; this one has not unlearned it",
    )
