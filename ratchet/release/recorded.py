"""What the release ledger records of one version, apart from the database: read from the ledger, or from an export."""

from __future__ import annotations

import json
from typing import NamedTuple

from pydantic import ValidationError

from ratchet.contracts.canonical import canonical_json
from ratchet.errors import IntegrityError
from ratchet.release.authority import approvals_of
from ratchet.release.decision import Decision, read_decision
from ratchet.release.ledger import Ledger
from ratchet.release.records import Event, Version
from ratchet.release.states import State

REMEDY = "have the version exported again; trust nothing of this folder"


class Recorded(NamedTuple):
    """One version in its line of the ledger, whose chain was verified."""

    version: Version
    events: tuple[Event, ...]
    """Every event of the line, other versions' too: a chain cannot be verified in parts."""
    decision: Decision | None
    """The decision recorded last on the version."""
    evidences: dict[str, bytes]
    """Qualifications and canary windows that its events rest on, by digest, as stored."""

    @property
    def mine(self) -> list[Event]:
        """The events of the version."""
        return [event for event in self.events if event.version == self.version.id]

    @property
    def state(self) -> State:
        """Where the version stands."""
        return self.mine[-1].state

    @property
    def approvals(self) -> list[Event]:
        """Approvals of the decision recorded last."""
        return approvals_of(self.events, self.version.id, self.decision.digest) if self.decision else []


def recorded(ledger: Ledger, version: Version) -> Recorded:
    """Read a version's record from the ledger, after verifying every chain. Raises IntegrityError for a broken one."""
    ledger.verify()
    events = tuple(ledger.history(version.tenant, version.experiment))
    mine = {event.evidence for event in events if event.version == version.id and event.evidence}
    evidences = {digest: ledger.evidence(digest) for digest in sorted(mine)}
    return Recorded(version, events, ledger.decision(version), evidences)


def to_bytes(record: Recorded) -> bytes:
    """Write a record down: a line each for version, decision, evidences and, in their order, the events."""
    lines = [
        {"version": record.version.model_dump(mode="json")},
        {"decision": json.loads(record.decision.to_bytes()) if record.decision else None},
        {"evidences": {digest: json.loads(body) for digest, body in record.evidences.items()}},
        *({"event": event.model_dump(mode="json"), "digest": event.digest} for event in record.events),
    ]
    return "".join(canonical_json(line) + "\n" for line in lines).encode()


def from_bytes(data: bytes, source: str) -> Recorded:
    """Read a record back and verify its chain. Raises IntegrityError naming the line that does not fit."""
    lines = data.splitlines()
    try:
        head = [json.loads(line) for line in lines[:3]]
        version = Version.model_validate(head[0]["version"])
        body, evidences = head[1]["decision"], head[2]["evidences"]
    except (ValueError, KeyError, TypeError, IndexError, ValidationError) as error:
        raise IntegrityError(source, rule=f"it must hold the record of a version ({error})", remedy=REMEDY) from None
    decision = read_decision(canonical_json(body).encode(), f"{source}: decision") if body else None
    events, tip = [], ""
    for number, line in enumerate(lines[3:], start=1):
        events.append(_event(line, f"{source}: event {number}", number, tip))
        tip = events[-1].digest
    stored = {digest: canonical_json(one).encode() for digest, one in evidences.items()}
    found = Recorded(version, tuple(events), decision, stored)
    if not found.mine:
        raise IntegrityError(source, seen=version.id[:12], rule="it must have events of this version", remedy=REMEDY)
    decided = [event.decision for event in found.mine if event.kind == "decided"]
    if (decided[-1] if decided else None) != (decision.digest if decision else None):
        raise IntegrityError(source, rule="the decision must be the one that its events record last", remedy=REMEDY)
    return found


def _event(line: bytes, source: str, number: int, tip: str) -> Event:
    try:
        body = json.loads(line)
        event, stated = Event.model_validate(body["event"]), body["digest"]
    except (ValueError, KeyError, TypeError, ValidationError) as error:
        raise IntegrityError(source, rule=f"it must be an event of the ledger ({error})", remedy=REMEDY) from None
    if (event.digest, event.seq, event.previous) != (stated, number, tip):
        raise IntegrityError(source, rule="it was changed, or does not follow the one before it", remedy=REMEDY)
    return event
