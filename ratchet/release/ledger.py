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
from ratchet.release.authority import approvals_of, refuse_approver, refuse_unauthorised, rule_reaches
from ratchet.release.decision import Decision
from ratchet.release.line import Line, load_version
from ratchet.release.records import Event, Incident, Slots, Version
from ratchet.release.schema import events, heads, incidents, open_engine, writing
from ratchet.release.states import State

GATE = "rule:gate"
"""Actor of what the gate does by itself, under the rule that the owner authorised in the manifest."""


class Ledger:
    """Append-only release ledger at a database URL (SQLite or Postgres)."""

    def __init__(self, url: str) -> None:
        """Open the ledger and make its tables where they are missing."""
        self.url = url
        self._engine = open_engine(url)

    @classmethod
    def of(cls, home: str | Path) -> Ledger:
        """The ledger of a home folder: `RATCHET_LEDGER_URL` where that is set, else `<home>/release.db`."""
        folder = Path(home).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        return cls(os.environ.get("RATCHET_LEDGER_URL") or f"sqlite:///{folder / 'release.db'}")

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
            line.approve(entry, decision, limit, reason)
            self._advance(line, entry, limit, reason, decision)
            return line.written

    def reject(self, version: Version | str, *, by: str, reason: str, at: datetime | None = None) -> Event:
        """Reject a candidate, a staged version or a canary. Needs no decision."""
        entry = self._entry(version)
        with self._line(entry.tenant, entry.experiment, None, by, at) as line:
            return self._move(line, entry, State.REJECTED, reason, None)

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

    # What reads it

    def current(self, tenant: str, experiment: str) -> Slots:
        """Which version stands in which slot, and the position of the line that this is true of."""
        with self._engine.connect() as connection, connection.begin():
            line = Line.read(connection, tenant, experiment)
            named = {slot: line.version(identity) for slot, identity in line.standing.slots().items() if identity}
            return Slots(seq=line.seq, **named)

    def affected(self, tenant: str, experiment: str) -> dict[str, Event]:
        """Versions behind which a right has ended, by id, with the event that says so."""
        with self._engine.connect() as connection, connection.begin():
            return Line.read(connection, tenant, experiment).standing.affected

    def state(self, version: Version | str) -> State:
        """Where one version stands."""
        entry = self._entry(version)
        with self._engine.connect() as connection, connection.begin():
            return Line.read(connection, entry.tenant, entry.experiment).states[entry.id]

    def version(self, identity: str) -> Version:
        """The version with that full id. Raises TransitionError where there is none."""
        with self._engine.connect() as connection:
            return load_version(connection, identity)

    def versions(self, tenant: str | None = None, experiment: str | None = None) -> dict[str, tuple[Version, State]]:
        """All versions by id with their states, in the order in which they were registered."""
        reached = {event.version: event.state for event in self.history(tenant, experiment)}
        with self._engine.connect() as connection:
            return {identity: (load_version(connection, identity), state) for identity, state in reached.items()}

    def find(self, text: str, *, tenant: str | None = None, experiment: str | None = None) -> Version:
        """Find one version by the start of its id or of its policy digest (6 digits or more), or by its policy's name.

        Where several carry the name, the one that is not at an end (rejected, rolled back, quarantined, superseded) is
        meant. Raises TransitionError where none or more than one fits.
        """
        known = self.versions(tenant, experiment)
        fits = [
            (version, state)
            for version, state in known.values()
            if version.policy.name == text
            or (len(text) >= 6 and (version.id.startswith(text) or version.policy.digest.startswith(text)))
        ]
        live = [(version, state) for version, state in fits if states.rank(state) >= 0]
        fits = live if len(live) == 1 else fits
        if len(fits) != 1:
            names = ", ".join(f"{version.id[:12]} {version.policy.name} {state}" for version, state in fits)
            raise TransitionError(
                f"version {text!r}",
                rule=f"it must name exactly one version, and names {names or 'none'}",
                remedy="give the start of an id that `ratchet history` shows",
            )
        return fits[0][0]

    def decision(self, version: Version | str) -> Decision | None:
        """The latest decision recorded on a version."""
        entry = self._entry(version)
        with self._engine.connect() as connection, connection.begin():
            line = Line.read(connection, entry.tenant, entry.experiment)
            return line.decision_on(entry) if line.latest_decision(entry.id) else None

    def approvals(self, version: Version | str, decision: Decision) -> list[Event]:
        """The approvals that persons gave to `decision` on a version."""
        entry = self._entry(version)
        return approvals_of(self.history(entry.tenant, entry.experiment), entry.id, decision.digest)

    def history(self, tenant: str | None = None, experiment: str | None = None) -> list[Event]:
        """All events, oldest first."""
        query = select(events.c.body).order_by(events.c.id)
        if tenant is not None:
            query = query.where(events.c.tenant == tenant)
        if experiment is not None:
            query = query.where(events.c.experiment == experiment)
        return self._events(query)

    def events_since(self, cursor: int) -> list[Event]:
        """Events with an id above `cursor`, oldest first. Ids have no gaps and appear in order, so none is missed."""
        return self._events(select(events.c.body).where(events.c.id > cursor).order_by(events.c.id))

    def incidents(self, tenant: str | None = None, experiment: str | None = None) -> list[Incident]:
        """All incidents, oldest first."""
        query = select(incidents.c.body).order_by(incidents.c.id)
        if tenant is not None:
            query = query.where(incidents.c.tenant == tenant)
        if experiment is not None:
            query = query.where(incidents.c.experiment == experiment)
        with self._engine.connect() as connection:
            return [Incident.model_validate_json(body) for body in connection.execute(query).scalars()]

    def lines(self) -> list[tuple[str, str]]:
        """Every tenant and experiment that has a line."""
        query = select(heads.c.tenant, heads.c.experiment).order_by(heads.c.tenant, heads.c.experiment)
        with self._engine.connect() as connection:
            return [(row.tenant, row.experiment) for row in connection.execute(query)]

    def verify(self) -> int:
        """Recompute the chain of every line and return the number of events.

        Raises:
            IntegrityError: naming the first event that was changed, removed or put in between.
        """
        with self._engine.connect() as connection, connection.begin():
            return sum(Line.verify(connection, *key) for key in self.lines())

    # Inside

    def _move(self, line: Line, version: Version, state: State, reason: str, decision: Decision | None) -> Event:
        before = line.states[version.id]
        states.check(version.label, before, state)
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
        serving = line.standing.newest(State.PRODUCTION)
        if state in states.PROMOTIONS:
            line.refuse_affected(version, state)
            approvals = approvals_of(line.events, version.id, decision.digest if decision else "")
            refuse_unauthorised(version, state, decision, approvals)
            line.refuse_taken_canary(version, state)
            if state is State.PRODUCTION and serving is not None:
                self._refuse_stale(version, decision, line.version(serving))
                line.move(line.version(serving), State.SUPERSEDED, f"by {version.label}", decision)
        event = line.move(version, state, reason, decision)
        if before is State.PRODUCTION:
            previous = line.standing.restorable()
            if previous is not None:
                line.restore(line.version(previous), f"{version.label} was {state}: {reason}")
        return event

    def _advance(self, line: Line, version: Version, limit: State | None, reason: str, decision: Decision) -> None:
        for state in states.PROMOTIONS:
            if limit is not None and states.rank(line.states[version.id]) < states.rank(state) <= states.rank(limit):
                self._move(line, version, state, reason, decision)

    @staticmethod
    def _refuse_stale(version: Version, decision: Decision | None, serving: Version) -> None:
        if decision is not None and decision.incumbent_digest != serving.policy.digest:
            raise TransitionError(
                f"decision on {version.label} against {decision.incumbent} ({decision.incumbent_digest[:12]})",
                rule=f"production now holds {serving.label}, which the candidate was not compared with",
                remedy="evaluate the candidate against it and decide anew",
            )

    def _entry(self, version: Version | str) -> Version:
        return self.version(version if isinstance(version, str) else version.id)

    def _events(self, query: object) -> list[Event]:
        with self._engine.connect() as connection:
            return [Event.model_validate_json(body) for body in connection.execute(query).scalars()]  # type: ignore[call-overload]

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
