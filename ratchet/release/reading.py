"""What reads the release ledger: slots, states, versions, decisions, history, incidents, and the check of its chain."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Select, select

from ratchet.errors import TransitionError
from ratchet.release import states
from ratchet.release.authority import approvals_of
from ratchet.release.canary import CanaryWindow
from ratchet.release.decision import Decision
from ratchet.release.kept import load_evidence, load_version
from ratchet.release.line import Line
from ratchet.release.qualification import Qualification
from ratchet.release.records import Event, Incident, Slots, Version
from ratchet.release.schema import events, heads, incidents, open_engine
from ratchet.release.states import State


class LedgerReader:
    """The reading half of the ledger."""

    def __init__(self, url: str, home: Path | None = None) -> None:
        """Open the ledger and make its tables where they are missing; signatures are looked for in the home's store."""
        self.url, self.home = url, home
        self._engine = open_engine(url)

    def current(self, tenant: str, experiment: str) -> Slots:
        """Which version stands in which slot, and the position of the line that this is true of."""
        with self._engine.connect() as connection, connection.begin():
            line = Line.read(connection, tenant, experiment)
            named = {slot: line.version(identity) for slot, identity in line.standing.slots().items() if identity}
            return Slots(seq=line.seq, **named)

    def position(self, tenant: str, experiment: str) -> int:
        """Position of the line, 0 where nothing happened yet: cheap enough to ask many times a second."""
        query = select(heads.c.seq).where(heads.c.tenant == tenant, heads.c.experiment == experiment)
        with self._engine.connect() as connection:
            return connection.execute(query).scalar() or 0

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

    def qualification(self, version: Version | str) -> Qualification | None:
        """The latest serving qualification of a version, passed or not, verified by digest."""
        entry = self._entry(version)
        with self._engine.connect() as connection, connection.begin():
            return Line.read(connection, entry.tenant, entry.experiment).qualification(entry)

    def window(self, version: Version | str) -> CanaryWindow | None:
        """What live tasks came to since the version went where it stands, verified; None where nothing was noted."""
        entry = self._entry(version)
        with self._engine.connect() as connection, connection.begin():
            return Line.read(connection, entry.tenant, entry.experiment).watched(entry)[0]

    def evidence(self, digest: str) -> bytes:
        """The stored bytes of a qualification or canary window. Raises TransitionError where there is none."""
        with self._engine.connect() as connection:
            return load_evidence(connection, digest)

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

    def _entry(self, version: Version | str) -> Version:
        return self.version(version if isinstance(version, str) else version.id)

    def _events(self, query: Select[tuple[str]]) -> list[Event]:
        with self._engine.connect() as connection:
            return [Event.model_validate_json(body) for body in connection.execute(query).scalars()]
