"""The desk: which loaded version stands in which slot, following the release ledger and nothing else.

The position of the line is asked every few milliseconds. Where it moved, what is needed is loaded beside what serves,
and the table of slots is replaced in one assignment: a request reads the table once, and the object that it finds there
answers. The version before the one in production stays loaded and on disk, so that a rollback only swaps.

A version whose right to serve has ended (rolled back, rejected, quarantined) leaves the table at once, before anything
is loaded. Where a version cannot be loaded, what serves goes on, if it still may, and loading is tried again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from ratchet.contracts.policy import Policy
from ratchet.progress import say
from ratchet.release.ledger import Ledger
from ratchet.release.live import BASELINE
from ratchet.release.records import Slots, Version
from ratchet.release.states import State
from ratchet.serving.depot import Depot
from ratchet.serving.served import Served

PRODUCTION, CANARY, PREVIOUS = "production", "canary", "previous-production"
MAY_SERVE = (State.CANARY, State.PRODUCTION, State.SUPERSEDED)
SPARE = 3
"""Versions before the one in production that stay on disk."""
RETRY_S = 5.0
"""Pause after a load that failed: the ledger is asked on meanwhile."""


class Table(NamedTuple):
    """What stands where, at one position of the line. It is never changed, only replaced."""

    slots: Mapping[str, Served]
    seq: int
    share: float = 0.0
    """Share of the live tasks that goes to the canary; 0 where there is none."""

    def find(self, name: str) -> Served | None:
        """The version in a slot, or the loaded one whose id is `name` or begins with it (12 digits or more)."""
        if name in self.slots:
            return self.slots[name]
        fits = [one for one in self.slots.values() if one.identity == name]
        fits += [one for one in self.slots.values() if len(name) >= 12 and one.identity.startswith(name)]
        return fits[0] if fits else None


class Desk:
    """The slots of one line, kept as the ledger says."""

    def __init__(
        self, ledger: Ledger, depot: Depot, tenant: str, experiment: str, *, baseline: Policy | None = None
    ) -> None:
        """Prepare the desk; `follow` fills it.

        Args:
            ledger: the release ledger.
            depot: where checkpoints come from.
            tenant: of the line.
            experiment: of the line.
            baseline: what serves where no version is in production; None: nothing does.
        """
        self.ledger, self.depot, self.tenant, self.experiment = ledger, depot, tenant, experiment
        self.baseline = baseline
        self.table = Table({}, -1)
        self.trouble: str | None = None
        """Why the table is not what the ledger says, in words; None where it is."""
        self.moved_at: str | None = None
        self._loaded: dict[str, Served] = {}
        self._retry_at, self._tried = 0.0, -1

    def follow(self) -> bool:
        """Ask the ledger once, and bring the table up to it. Returns whether the table was replaced.

        Errors of ledger, store and loading are kept in `trouble`, and tried again: a server goes on with what it has.
        """
        try:
            seq = self.ledger.position(self.tenant, self.experiment)
            if seq == self.table.seq or (seq == self._tried and time.monotonic() < self._retry_at):
                return False
            slots = self.ledger.current(self.tenant, self.experiment)
            self._drop_ended(slots)
        except Exception as error:  # a ledger that is away changes nothing: the server goes on with what it has
            self._note([f"the ledger cannot be read: {type(error).__name__}: {error}"])
            return False
        found, trouble = self._found(slots)
        share = slots.canary.release.canary_share if slots.canary and CANARY in found else 0.0
        # With a slot missing the position stays the one before, so that it is tried again.
        self.table = Table(found, self.table.seq if trouble else slots.seq, share)
        self.moved_at = datetime.now(UTC).isoformat()
        self._tried = slots.seq
        self._note(trouble)
        if not trouble:
            self._tidy(self.table)
        return True

    def run(self, stopped: threading.Event, poll_s: float) -> None:
        """Follow the ledger until told to stop."""
        while not stopped.wait(poll_s):
            self.follow()

    def _drop_ended(self, slots: Slots) -> None:
        """Take versions out of the table that may not serve any more, without waiting for their successors."""
        known = self.ledger.versions(self.tenant, self.experiment)
        ended = {
            name
            for name, one in self.table.slots.items()
            if one.is_version and (one.identity not in known or known[one.identity][1] not in MAY_SERVE)
        }
        if ended:
            left = {name: one for name, one in self.table.slots.items() if name not in ended}
            restored = slots.production.id if slots.production else BASELINE
            if PRODUCTION in ended and PREVIOUS in left and left[PREVIOUS].identity == restored:
                # What the ledger puts back is loaded already: this is the whole of a rollback.
                left[PRODUCTION] = left.pop(PREVIOUS)
            self.table = self.table._replace(slots=left, share=self.table.share if CANARY in left else 0.0)

    def _found(self, slots: Slots) -> tuple[dict[str, Served], list[str]]:
        """What is to stand in each slot, loaded, and why something is missing."""
        found: dict[str, Served] = {}
        trouble = []
        named = [(PRODUCTION, slots.production), (CANARY, slots.canary), (PREVIOUS, slots.previous_production)]
        for name, version in named:
            if version is None and not self._baseline_stands(name, slots):
                continue
            try:
                found[name] = self._served(version) if version else self._base()
            except Exception as error:  # the one capture point: a slot that cannot be filled leaves the others
                trouble.append(f"{name} {version.label if version else BASELINE}: {type(error).__name__}: {error}")
        if trouble and PRODUCTION not in found and PRODUCTION in self.table.slots:
            found[PRODUCTION] = self.table.slots[PRODUCTION]
        return found, trouble

    def _baseline_stands(self, name: str, slots: Slots) -> bool:
        """Whether the baseline stands in an empty slot: it is what serves, or what a rollback would restore."""
        return self.baseline is not None and (name == PRODUCTION or (name == PREVIOUS and slots.production is not None))

    def _served(self, version: Version) -> Served:
        if version.id not in self._loaded:
            folder = self.depot.folder(version)
            self._loaded[version.id] = Served.of(version, folder, self.ledger.qualification(version))
        return self._loaded[version.id]

    def _base(self) -> Served:
        assert self.baseline is not None
        if BASELINE not in self._loaded:
            self._loaded[BASELINE] = Served(BASELINE, self.baseline, self.depot.baseline(self.baseline))
        return self._loaded[BASELINE]

    def _tidy(self, table: Table) -> None:
        """Let go of what is not needed; what a second and third rollback would restore stays on disk."""
        needed = {one.identity for one in table.slots.values()}
        self._loaded = {identity: one for identity, one in self._loaded.items() if identity in needed}
        try:
            affected = self.ledger.affected(self.tenant, self.experiment)
            known = self.ledger.versions(self.tenant, self.experiment)
            if self.baseline is not None:
                self.depot.baseline(self.baseline)
        except Exception as error:  # nothing of it is needed now: what is there stays, and is looked at next time
            say(f"serving {self.tenant}/{self.experiment}: nothing is tidied: {type(error).__name__}: {error}")
            return
        before = [one for one, (_, state) in known.items() if state is State.SUPERSEDED and one not in affected]
        self.depot.forget_others(needed | set(before[-SPARE:]))

    def _note(self, trouble: list[str]) -> None:
        told = "; ".join(trouble) or None
        if told and told != self.trouble:
            say(f"serving {self.tenant}/{self.experiment}: {told}")
        self.trouble = told
        self._retry_at = time.monotonic() + RETRY_S
