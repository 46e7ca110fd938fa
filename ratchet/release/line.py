"""One line of the ledger inside one database transaction: the claim by compare-and-swap, and what is appended."""

from __future__ import annotations

from typing import Literal

from pydantic import ValidationError
from sqlalchemy import Connection, Row, Select, select, text, update

from ratchet.contracts.canonical import canonical_json
from ratchet.contracts.canonical import digest as content_digest
from ratchet.errors import ConflictError, IntegrityError, RightsError, TransitionError
from ratchet.release.canary import CanaryWindow, read_window, refuse_unwatched
from ratchet.release.decision import Decision
from ratchet.release.kept import RESTORE, keep_evidence, load_decision, load_evidence, load_version, refuse_edited
from ratchet.release.qualification import Qualification, read_qualification, refuse_unqualified
from ratchet.release.records import Event, Version
from ratchet.release.schema import clock, decisions, events, evidences, heads, versions
from ratchet.release.standing import Standing
from ratchet.release.states import SERVING, State


class Line:
    """The events of one tenant and experiment. `claim` opens it for writing, `read` for reading."""

    def __init__(self, connection: Connection, tenant: str, experiment: str, seq: int, tip: str) -> None:
        """Load the line, whose position is `seq` and whose last event has the digest `tip`."""
        self.connection, self.tenant, self.experiment = connection, tenant, experiment
        self.seq, self.tip = seq, tip
        self.by = self.at = ""
        self.id = 0
        self.events = [
            Event.model_validate_json(body) for body in connection.execute(_bodies(tenant, experiment)).scalars()
        ]
        self.written: list[Event] = []
        self.standing = Standing()
        for event in self.events:
            self.standing.follow(event)

    @property
    def states(self) -> dict[str, State]:
        """State of every version by id."""
        return self.standing.states

    @classmethod
    def read(cls, connection: Connection, tenant: str, experiment: str) -> Line:
        """Open the line for reading."""
        row = _head(connection, tenant, experiment)
        return cls(connection, tenant, experiment, row.seq if row else 0, row.digest if row else "")

    @classmethod
    def claim(
        cls, connection: Connection, tenant: str, experiment: str, expected: int | None, *, by: str, at: str
    ) -> Line:
        """Take the line for this transaction if it still stands at `expected` (None: wherever it stands).

        Raises ConflictError naming who moved it, to what and when.
        """
        connection.execute(
            text("INSERT INTO heads (tenant, experiment, seq, digest) VALUES (:t, :e, 0, '') ON CONFLICT DO NOTHING"),
            {"t": tenant, "e": experiment},
        )
        swap = update(heads).where(heads.c.tenant == tenant, heads.c.experiment == experiment)
        if expected is not None:
            swap = swap.where(heads.c.seq == expected)
        if connection.execute(swap.values(seq=heads.c.seq + 1)).rowcount != 1:
            last = cls.read(connection, tenant, experiment)
            done = f"{last.events[-1].by} {_words(last.events[-1])}" if last.events else "nothing has happened yet"
            raise ConflictError(
                f"position of the release ledger of {tenant}/{experiment}",
                seen=last.seq,
                rule=f"it was expected to be {expected}; {done}",
                remedy="read the ledger again and decide anew",
            )
        row = _head(connection, tenant, experiment)
        assert row is not None
        line = cls(connection, tenant, experiment, row.seq - 1, row.digest)
        if (len(line.events), line.events[-1].digest if line.events else "") != (line.seq, line.tip):
            raise IntegrityError(
                f"release ledger of {tenant}/{experiment}",
                seen=line.seq,
                rule="its last event is not its tip",
                remedy=RESTORE,
            )
        # The row lock on the clock is held until commit: ids are gapless and become visible in order.
        connection.execute(update(clock).values(at=clock.c.at + 1))
        line.id = connection.execute(select(clock.c.at)).scalar_one() - 1
        line.by, line.at = by, at
        return line

    def close(self) -> None:
        """Write the line's new position and tip."""
        mine = (heads.c.tenant == self.tenant) & (heads.c.experiment == self.experiment)
        self.connection.execute(update(heads).where(mine).values(seq=self.seq, digest=self.tip))
        self.connection.execute(update(clock).values(at=self.id))

    def refuse_taken_canary(self, version: Version, state: State) -> None:
        """Raise TransitionError where another version is in canary: two at once could not be told apart."""
        other = self.standing.newest(State.CANARY)
        if state is State.CANARY and other not in (None, version.id):
            raise TransitionError(
                f"canary of {self.tenant}/{self.experiment}",
                seen=(other or "")[:12],
                rule="it holds one version at a time",
                remedy="promote, reject or roll back that one first",
            )

    def refuse_edited(self, version: Version) -> None:
        """Raise IntegrityError where a version's author or release rules are not those it was registered with."""
        refuse_edited(version, next(one for one in self.events if one.version == version.id))

    def refuse_affected(self, version: Version, state: State) -> None:
        """Raise RightsError where a right behind the version has ended, as far as this ledger was told."""
        mark = self.standing.affected.get(version.id)
        if mark is not None:
            raise RightsError(
                f"promotion of {version.label} to {state}",
                seen=f"affected_{mark.kind}",
                rule=f"no version is promoted that learned from data whose right has ended ({mark.reason})",
                remedy="train a candidate without this data; this one has not unlearned it",
            )

    def opened_by(self, version: Version, state: State) -> str | None:
        """Digest of the evidence that a serving state is entered on; None where the state needs none.

        Raises TransitionError: the serving engine has not qualified the version, or its live tasks do not open
        production.
        """
        if state not in SERVING:
            return None
        record = self.qualification(version)
        refuse_unqualified(version, state, record)
        assert record is not None
        if state is State.CANARY:
            return record.digest
        window, seq = self.watched(version)
        known = [event.seq for event in self.events if event.version == version.id and event.upto is State.PRODUCTION]
        refuse_unwatched(version, window, approved=any(approval > seq for approval in known))
        return window.digest if window else record.digest

    def qualification(self, version: Version) -> Qualification | None:
        """The latest serving qualification of a version."""
        mine = (evidences.c.version == version.id) & (evidences.c.kind == Qualification.__name__)
        query = select(evidences.c.digest).where(mine).order_by(evidences.c.id.desc()).limit(1)
        digest = self.connection.execute(query).scalar()
        return read_qualification(load_evidence(self.connection, digest), f"evidence {digest}") if digest else None

    def watched(self, version: Version) -> tuple[CanaryWindow | None, int]:
        """The window noted since a version went where it stands, with its position; (None, 0) where there is none."""
        for event in reversed(self.events):
            if event.version == version.id and event.kind == "moved":
                break
            if event.version == version.id and event.kind == "watched" and event.evidence:
                data = load_evidence(self.connection, event.evidence)
                return read_window(data, f"evidence {event.evidence}"), event.seq
        return None, 0

    def latest_decision(self, version: str) -> str | None:
        """Digest of the decision recorded last on a version."""
        found = [event.decision for event in self.events if event.version == version and event.kind == "decided"]
        return found[-1] if found else None

    def decision_on(self, version: Version) -> Decision:
        """The decision recorded last on a version. Raises TransitionError where there is none."""
        found = self.latest_decision(version.id)
        if found is None:
            raise TransitionError(
                version.label, rule="it has no decision of the gate yet", remedy="run its evaluation and the gate first"
            )
        return load_decision(self.connection, found)

    def version(self, identity: str) -> Version:
        """The version with that id."""
        return load_version(self.connection, identity)

    # Appending

    def enter(self, version: Version) -> Event:
        """Append the registration of a version."""
        self.connection.execute(
            versions.insert().values(
                id=version.id, tenant=version.tenant, experiment=version.experiment, body=canonical_json(version)
            )
        )
        return self._append(version, "registered", State.CANDIDATE, "", content=content_digest(version))

    def decide(self, version: Version, decision: Decision) -> Event:
        """Append a decision; the state stays."""
        self._keep(decision)
        return self._append(version, "decided", self.states[version.id], "; ".join(decision.reasons), decision)

    def approve(self, version: Version, decision: Decision, upto: State, reason: str) -> Event:
        """Append an approval; the state stays."""
        return self._append(version, "approved", self.states[version.id], reason, decision, upto)

    def move(
        self, version: Version, state: State, reason: str, decision: Decision | None, evidence: str | None = None
    ) -> Event:
        """Append a move; `evidence` is the digest of what opened it."""
        if decision is not None:
            self._keep(decision)
        return self._append(version, "moved", state, reason, decision, evidence=evidence)

    def watch(self, version: Version, window: CanaryWindow) -> Event:
        """Append what live tasks came to; the state stays."""
        keep_evidence(self.connection, version, window)
        return self._append(version, "watched", self.states[version.id], window.reason, evidence=window.digest)

    def mark(self, version: Version, kind: Literal["withdrawn", "expired"], reason: str) -> bool:
        """Append that a right behind a version ended, unless that very thing is known; the state stays."""
        if any((one.version, one.kind, one.reason) == (version.id, kind, reason) for one in self.events):
            return False
        self._append(version, kind, self.states[version.id], reason)
        return True

    def restore(self, version: Version, reason: str) -> Event:
        """Append the return of the previous version to production."""
        return self._append(version, "moved", State.PRODUCTION, reason)

    def _keep(self, decision: Decision) -> None:
        known = select(decisions.c.digest).where(decisions.c.digest == decision.digest)
        if self.connection.execute(known).scalar() is None:
            body = decision.to_bytes().decode()
            self.connection.execute(decisions.insert().values(digest=decision.digest, body=body))

    def _append(
        self,
        version: Version,
        kind: str,
        state: State,
        reason: str,
        decision: Decision | None = None,
        upto: State | None = None,
        evidence: str | None = None,
        content: str | None = None,
    ) -> Event:
        event = Event.model_validate(
            {
                "id": self.id + 1,
                "tenant": self.tenant,
                "experiment": self.experiment,
                "seq": self.seq + 1,
                "version": version.id,
                "kind": kind,
                "before": self.states.get(version.id),
                "state": state,
                "upto": upto,
                "by": self.by,
                "reason": reason,
                "at": self.at,
                "decision": decision.digest if decision else None,
                "evidence": evidence,
                "content": content,
                "previous": self.tip,
            }
        )
        self.connection.execute(
            events.insert().values(
                id=event.id,
                tenant=event.tenant,
                experiment=event.experiment,
                seq=event.seq,
                version=event.version,
                kind=event.kind,
                state=str(event.state),
                digest=event.digest,
                body=canonical_json(event),
            )
        )
        self.id, self.seq, self.tip = event.id, event.seq, event.digest
        self.events.append(event)
        self.written.append(event)
        self.standing.follow(event)
        return event

    @classmethod
    def verify(cls, connection: Connection, tenant: str, experiment: str) -> int:
        """Recompute the chain and what its events name; returns its length.

        Raises IntegrityError naming the first event, version, decision or evidence that is not what it was.
        """
        culprit = f"release ledger of {tenant}/{experiment}"
        rows = connection.execute(
            select(events).where(events.c.tenant == tenant, events.c.experiment == experiment).order_by(events.c.seq)
        ).all()
        tip = ""
        for position, row in enumerate(rows, start=1):
            event = Event.model_validate_json(row.body)
            stated = (row.id, row.seq, row.version, row.kind, row.state, row.digest)
            if (
                stated != (event.id, position, event.version, event.kind, str(event.state), event.digest)
                or event.previous != tip
                or event.seq != position
            ):
                raise IntegrityError(
                    culprit, seen=f"event {row.seq}", rule="it was changed or does not follow", remedy=RESTORE
                )
            tip = event.digest
        head = _head(connection, tenant, experiment)
        if head is None or (head.seq, head.digest) != (len(rows), tip):
            raise IntegrityError(culprit, seen=f"{len(rows)} events", rule="its end was removed", remedy=RESTORE)
        try:
            for event in map(Event.model_validate_json, (row.body for row in rows)):
                if event.kind == "registered":
                    refuse_edited(load_version(connection, event.version), event)
                if event.decision:
                    load_decision(connection, event.decision)
                if event.evidence:
                    load_evidence(connection, event.evidence)
        except (TransitionError, ValidationError) as error:
            rule = f"what its events name is kept beside them ({error})"
            raise IntegrityError(culprit, rule=rule, remedy=RESTORE) from None
        return len(rows)


def _bodies(tenant: str, experiment: str) -> Select[tuple[str]]:
    mine = (events.c.tenant == tenant) & (events.c.experiment == experiment)
    return select(events.c.body).where(mine).order_by(events.c.seq)


def _head(connection: Connection, tenant: str, experiment: str) -> Row[tuple[int, str]] | None:
    mine = (heads.c.tenant == tenant) & (heads.c.experiment == experiment)
    return connection.execute(select(heads.c.seq, heads.c.digest).where(mine)).one_or_none()


def _words(event: Event) -> str:
    what = f"{event.kind} version {event.version[:12]}" + (f" to {event.state}" if event.kind == "moved" else "")
    return f"{what} at {event.at}"
