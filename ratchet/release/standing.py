"""Which version stands where, computed from events alone: now, or at any earlier position of a line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ratchet.release.records import Event
from ratchet.release.states import State


class Standing:
    """States and slots after the events that were followed so far."""

    def __init__(self) -> None:
        """Start before the first event."""
        self.states: dict[str, State] = {}
        self.affected: dict[str, Event] = {}
        """Versions that learned from data whose right has ended, with the event that says so; withdrawal outweighs."""
        self._entered: dict[str, int] = {}

    def follow(self, event: Event) -> None:
        """Take in the next event of the line."""
        self.states[event.version] = event.state
        if event.kind in ("registered", "moved"):
            self._entered[event.version] = event.seq
        if event.kind == "withdrawn" or (event.kind == "expired" and event.version not in self.affected):
            self.affected[event.version] = event

    def newest(self, state: State) -> str | None:
        """Id of the version that entered `state` last, of those that are in it."""
        found = [version for version, seen in self.states.items() if seen is state]
        return max(found, key=self._entered.__getitem__, default=None)

    def restorable(self) -> str | None:
        """Id of the version that a rollback would put back: superseded last, and no right behind it has ended."""
        found = [
            version
            for version, seen in self.states.items()
            if seen is State.SUPERSEDED and version not in self.affected
        ]
        return max(found, key=self._entered.__getitem__, default=None)

    def slots(self) -> dict[str, str | None]:
        """Ids by slot."""
        return {
            "staging": self.newest(State.STAGING),
            "canary": self.newest(State.CANARY),
            "previous_production": self.restorable(),
            "production": self.newest(State.PRODUCTION),
        }


def replay(events: Iterable[Event], since: int) -> Iterator[Standing]:
    """Yield the standing of one line at position `since` and after every event beyond it; the object is reused."""
    standing = Standing()
    behind = True
    for event in events:
        if behind and event.seq > since:
            behind = False
            yield standing
        standing.follow(event)
        if not behind:
            yield standing
    if behind:
        yield standing
