"""The release ledger: the truth about which version stands where, who put it there and on which decision.

Every change is one transaction: a compare-and-swap of the line's position (`UPDATE ... WHERE seq = :expected`), then
event rows that the database keeps from being changed. Of two racing promoters exactly one wins; the other is told who
was first and when. What opens a promotion is in `authority.py`; how the rows are kept is in `line.py` and `schema.py`.

A rollback needs this database alone: no tracking server, no training code, no network.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from sqlalchemy import select

from ratchet.contracts.manifest import Manifest
from ratchet.contracts.policy import Policy
from ratchet.errors import TransitionError
from ratchet.release import states
from ratchet.release.authority import (
    approvals_of,
    refuse_approver,
    refuse_stale,
    refuse_unauthorised,
    rule_reaches,
)
from ratchet.release.canary import CanaryWindow, refuse_foreign_window
from ratchet.release.decision import Decision
from ratchet.release.kept import keep_evidence
from ratchet.release.line import Line
from ratchet.release.qualification import Qualification, refuse_foreign, refuse_unqualified
from ratchet.release.reading import LedgerReader
from ratchet.release.records import Event, Incident, Version
from ratchet.release.schema import incidents, writing
from ratchet.release.signing import refuse_unsigned
from ratchet.release.states import State

GATE = "rule:gate"
"""Actor of what the gate does by itself, under the rule that the owner authorised in the manifest."""


class Ledger(LedgerReader):
    """Append-only release ledger at a database URL (SQLite or Postgres); what only reads it is in its base."""

    @classmethod
    def of(cls, home: str | Path) -> Ledger:
        """The ledger of a home folder: `RATCHET_LEDGER_URL` where that is set, else `<home>/release.db`."""
        folder = Path(home).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        return cls(os.environ.get("RATCHET_LEDGER_URL") or f"sqlite:///{folder / 'release.db'}", folder)

    # What changes the line

    def register(self, manifest: Manifest, policy: Policy, *, by: str, at: datetime | None = None) -> Version:
        """Enter `policy` as a candidate under `manifest`; entering it again changes nothing."""
        version = Version.of(manifest, policy)
        with self._line(version.tenant, version.experiment, None, by, at) as line:
            if version.id not in line.states:
                line.enter(version)
        return version

    def transition(
        self,
        version: Version | str,
        state: State | str,
        *,
        by: str,
        reason: str = "",
        decision: Decision | None = None,
        expected_seq: int,
        at: datetime | None = None,
    ) -> Event:
        """Move one version to one state, and return the event of that move.

        A promotion to production supersedes the version that was there; taking the version in production out of it
        (`rolled_back`, `quarantined`) puts the previous one back; both in the same transaction.

        Args:
            version: the version or its id.
            state: where it goes.
            by: person, or `rule:NAME`.
            reason: why, in words; needed for rejected, rolled_back and quarantined.
            decision: the gate's decision; every promotion needs it, nothing else does.
            expected_seq: position of the line that the caller decided on (`current(...).seq`).
            at: time of the event; now by default.

        Raises:
            ConflictError: somebody else moved the line first; names who, what and when.
            TransitionError: the table does not lead there, or the decision does not carry it.
        """
        entry = self._entry(version)
        with self._line(entry.tenant, entry.experiment, expected_seq, by, at) as line:
            return self._move(line, entry, State(state), reason, decision)

    def apply(
        self, version: Version | str, decision: Decision, *, by: str = GATE, at: datetime | None = None
    ) -> list[Event]:
        """Record a decision and do what it says: reject, wait for a person, or promote as far as the rule reaches.

        Applying the same decision again does nothing and returns an empty list.
        """
        entry = self._entry(version)
        with self._line(entry.tenant, entry.experiment, None, by, at) as line:
            refuse_unauthorised(entry, None, decision, [])
            if line.latest_decision(entry.id) == decision.digest:
                return []
            line.decide(entry, decision)
            if decision.state == "reject":
                if line.states[entry.id] is not State.REJECTED:
                    self._move(line, entry, State.REJECTED, "; ".join(decision.reasons), decision)
            else:
                self._advance(line, entry, rule_reaches(entry, decision), "every rule of the gate passed", decision)
            return line.written

    def approve(
        self,
        version: Version | str,
        *,
        by: str,
        reason: str,
        upto: State | str = State.CANARY,
        expected_seq: int | None = None,
        at: datetime | None = None,
    ) -> list[Event]:
        """Record a person's approval of the version's latest decision, and promote the version up to `upto`.

        Raises:
            TransitionError: there is no decision, it is a rejection, the approver is a rule or (four eyes) the author
                of the run, or the table does not lead on.
        """
        entry, limit = self._entry(version), State(upto)
        with self._line(entry.tenant, entry.experiment, expected_seq, by, at) as line:
            decision = line.decision_on(entry)
            refuse_approver(entry, decision, by, reason, limit)
            seen = line.states[entry.id]
            if states.rank(seen) < 0 or states.rank(seen) >= states.rank(limit):
                states.check(entry.label, seen, limit)
            refuse_stale(entry, decision, _serving(line))
            line.approve(entry, decision, limit, reason)
            self._advance(line, entry, limit, reason, decision)
            if states.rank(line.states[entry.id]) < states.rank(State.CANARY):
                refuse_unqualified(entry, limit, line.qualification(entry))
            return line.written

    def reject(self, version: Version | str, *, by: str, reason: str, at: datetime | None = None) -> Event:
        """Reject a candidate, a staged version or a canary. Needs no decision."""
        entry = self._entry(version)
        with self._line(entry.tenant, entry.experiment, None, by, at) as line:
            return self._move(line, entry, State.REJECTED, reason, None)

    def qualify(self, record: Qualification) -> None:
        """Keep a serving qualification. The latest one of a version counts, passed or not."""
        entry = self._entry(record.version)
        refuse_foreign(entry, record)
        with writing(self._engine) as connection, connection.begin():
            keep_evidence(connection, entry, record)

    def watch(self, window: CanaryWindow, *, by: str, at: datetime | None = None) -> list[Event]:
        """Note once what live tasks came to; roll the version back where the owner's rule says so beforehand.

        Returns:
            The events; none where this stay of the version has its note already.

        Raises:
            TransitionError: the window is not a closed one of a version that stands there now.
        """
        entry = self._entry(window.version)
        with self._line(entry.tenant, entry.experiment, None, by, at) as line:
            state = line.states[entry.id]
            if line.watched(entry)[0] is not None:
                return []
            refuse_foreign_window(entry, window, state)
            line.watch(entry, window)
            if window.verdict == "roll_back" and entry.release.on_regression == "roll_back":
                self._move(line, entry, State.ROLLED_BACK, window.reason, None)
            return line.written

    def advance(self, version: Version | str, *, by: str = GATE, at: datetime | None = None) -> list[Event]:
        """Promote a version whose door was closed before, as far as the rule and the approvals given reach."""
        entry = self._entry(version)
        with self._line(entry.tenant, entry.experiment, None, by, at) as line:
            decision = line.decision_on(entry)
            reached = [rule_reaches(entry, decision)] if decision.state == "promote" else []
            reached += [event.upto for event in approvals_of(line.events, entry.id, decision.digest)]
            limit = max((state for state in reached if state), key=states.rank, default=None)
            self._advance(line, entry, limit, "what it waited for has come", decision)
            return line.written

    def rollback(
        self,
        tenant: str,
        experiment: str,
        *,
        by: str,
        reason: str,
        expected_seq: int | None = None,
        at: datetime | None = None,
    ) -> tuple[Event, Version | None]:
        """Take the version in production out of it and put the previous one back, in one transaction.

        Returns:
            The event of the roll back, and the version now in production (None: there was none before, so the baseline
            serves again).
        """
        with self._line(tenant, experiment, expected_seq, by, at) as line:
            serving = line.standing.newest(State.PRODUCTION)
            if serving is None:
                raise TransitionError(
                    f"production of {tenant}/{experiment}",
                    rule="there is no version in it that could be rolled back",
                    remedy="see `ratchet history`; a canary is rejected, or rolled back by its own transition",
                )
            event = self._move(line, line.version(serving), State.ROLLED_BACK, reason, None)
            restored = line.standing.newest(State.PRODUCTION)
            return event, line.version(restored) if restored else None

    def mark(
        self,
        version: Version | str,
        kind: Literal["withdrawn", "expired"],
        *,
        by: str,
        reason: str,
        at: datetime | None = None,
    ) -> bool:
        """Note that a right behind a version ended: from now on it is refused promotion and is never restored.

        The version stays where it stands. A mark with the same words is made once; returns whether it is new.
        """
        entry = self._entry(version)
        with self._line(entry.tenant, entry.experiment, None, by, at) as line:
            return line.mark(entry, kind, reason)

    def report(self, incident: Incident) -> bool:
        """Keep an incident. An unrepaired one that is already the last of its kind is not repeated; returns if kept."""
        where = (incidents.c.tenant == incident.tenant) & (incidents.c.experiment == incident.experiment)
        with writing(self._engine) as connection, connection.begin():
            rows = connection.execute(
                select(incidents.c.body).where(where).order_by(incidents.c.id.desc()).limit(100)
            ).scalars()
            for body in rows:
                known = Incident.model_validate_json(body)
                if (known.what, known.seen, known.expected) == (incident.what, incident.seen, incident.expected):
                    if not known.repaired and not incident.repaired:
                        return False
                    break
            connection.execute(
                incidents.insert().values(
                    tenant=incident.tenant,
                    experiment=incident.experiment,
                    repaired=incident.repaired,
                    body=incident.model_dump_json(),
                )
            )
        return True

    # Inside

    def _move(self, line: Line, version: Version, state: State, reason: str, decision: Decision | None) -> Event:
        before = line.states[version.id]
        states.check(version.label, before, state)
        line.refuse_edited(version)
        if state is State.SUPERSEDED:
            raise TransitionError(
                f"transition of {version.label} to superseded",
                rule="a version is superseded by the promotion of another one",
                remedy="promote that one, or roll this one back",
            )
        if state in states.NEEDS_REASON and not reason.strip():
            raise TransitionError(
                f"transition of {version.label} to {state}", rule="it needs a reason", remedy="say why in words"
            )
        if decision is not None:
            refuse_unauthorised(version, None, decision, [])
        serving, evidence = _serving(line), None
        if state in states.PROMOTIONS:
            line.refuse_affected(version, state)
            approvals = approvals_of(line.events, version.id, decision.digest if decision else "")
            refuse_unauthorised(version, state, decision, approvals)
            refuse_unsigned(self.home, version, decision)
            line.refuse_taken_canary(version, state)
            if decision is not None:
                refuse_stale(version, decision, serving)
            evidence = line.opened_by(version, state)
            if state is State.PRODUCTION and serving is not None:
                line.move(serving, State.SUPERSEDED, f"by {version.label}", decision)
        event = line.move(version, state, reason, decision, evidence)
        if before is State.PRODUCTION:
            previous = line.standing.restorable()
            if previous is not None:
                line.restore(line.version(previous), f"{version.label} was {state}: {reason}")
        return event

    def _advance(self, line: Line, version: Version, limit: State | None, reason: str, decision: Decision) -> None:
        """Promote up to `limit`, as far as the doors of the serving states are open."""
        for state in states.PROMOTIONS:
            if limit is not None and states.rank(line.states[version.id]) < states.rank(state) <= states.rank(limit):
                try:
                    line.opened_by(version, state)
                except TransitionError:
                    return
                self._move(line, version, state, reason, decision)

    @contextlib.contextmanager
    def _line(
        self, tenant: str, experiment: str, expected_seq: int | None, by: str, at: datetime | None
    ) -> Iterator[Line]:
        """One writing transaction on a line; it is undone whole where anything raises."""
        if not by.strip():
            raise TransitionError("the actor", seen=by, rule="it must be named", remedy="say who does this")
        moment = (at or datetime.now(UTC)).isoformat()
        with writing(self._engine) as connection, connection.begin() as transaction:
            line = Line.claim(connection, tenant, experiment, expected_seq, by=" ".join(by.split()), at=moment)
            yield line
            if line.written:
                line.close()
            else:
                transaction.rollback()


def _serving(line: Line) -> Version | None:
    """The version in production of a line that is claimed."""
    held = line.standing.newest(State.PRODUCTION)
    return line.version(held) if held else None
