"""Looking at live tasks: the window of the version in canary or production, and what follows from it.

A look is cheap and may be repeated at any time. What was proven is noted once in the release ledger, which rolls back
by itself where the owner's rule says so; a promotion asks the rights behind the version first, as every promotion does.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from ratchet.contracts.canonical import plain
from ratchet.errors import RatchetError
from ratchet.loop.affected import refuse_affected
from ratchet.loop.context import Run, Stage, stage
from ratchet.loop.deciding import candidate_version
from ratchet.release.canary import CanaryWindow, canary_window, production_window, read_window
from ratchet.release.ledger import Ledger
from ratchet.release.live import read_live
from ratchet.release.records import Event, Version
from ratchet.release.states import SERVING, State
from ratchet.store import Store

RULE = "rule:canary"
"""Actor of what follows from live tasks by itself."""


class Look(NamedTuple):
    """One look at the live tasks of a version."""

    version: Version
    window: CanaryWindow
    events: list[Event]
    """What was written into the ledger because of it; empty where nothing new was proven."""
    told: str
    """What a person reads: the verdict, and what became of it."""
    asks: bool
    """Whether something was proven now that the owner has to answer."""

    @property
    def place(self) -> str:
        """Where a closed window is kept in the store."""
        return window_name(self.version, self.window)


def window_name(version: Version, window: CanaryWindow) -> str:
    """Place in the store of a closed window."""
    return f"windows/{version.tenant}/{version.experiment}/{version.id}/{window.kind}.{window.digest}.json"


def watched_version(ledger: Ledger, tenant: str, experiment: str) -> tuple[Version, State] | None:
    """The version whose live tasks are looked at: the one in canary, else the one in production."""
    slots = ledger.current(tenant, experiment)
    if slots.canary is not None:
        return slots.canary, State.CANARY
    return (slots.production, State.PRODUCTION) if slots.production is not None else None


def window_of(
    store: Store, ledger: Ledger, version: Version, state: State, at: datetime, after: int = 0
) -> CanaryWindow | None:
    """What the live tasks of a version say now.

    Args:
        store: where outcomes are kept.
        ledger: the release ledger.
        version: the version.
        state: canary or production.
        at: time with zone.
        after: number of a part before its first outcome, to read less; see `release.live.read_live`.

    Returns:
        The window; None for a version in production that never was in a canary with tasks in both arms: there is no
        live rate that it could be held against.
    """
    outcomes = read_live(store, version.tenant, version.experiment, after).outcomes
    if state is State.CANARY:
        return canary_window(version, outcomes, at=at)
    reference = _reference(ledger, version)
    return production_window(version, reference, outcomes, at=at) if reference else None


def look(
    home: Path, store: Store, ledger: Ledger, version: Version, state: State, at: datetime, after: int = 0
) -> Look | None:
    """Look at the live tasks of a version, and let the ledger follow what they prove.

    Returns:
        The look; None where there is nothing to hold the version against.
    """
    window = window_of(store, ledger, version, state, at, after)
    if window is None:
        return None
    found = Look(version, window, [], f"{version.label} in {state}: {window.reason}", asks=False)
    if not window.closed:
        return found
    events = ledger.watch(window, by=RULE, at=at)
    if events:
        store.create_same(found.place, window.to_bytes())
    refused = None
    if window.verdict == "promote":
        try:
            refuse_affected(home, version, at)
            events += ledger.advance(version, by=RULE, at=at)
        except RatchetError as error:
            refused = str(error)
    now = ledger.state(version)
    told = f"{found.told}; {'it stays' if now is state else 'now'} {now}" + (f" ({refused})" if refused else "")
    return found._replace(events=events, told=told, asks=bool(events) and now is state)


def _reference(ledger: Ledger, version: Version) -> CanaryWindow | None:
    """The canary window on which a version came into production, with tasks in both arms."""
    found = (window for window in _noted(ledger, version) if window.kind == "canary" and window.production.tasks)
    return next(found, None)


def _noted(ledger: Ledger, version: Version) -> Iterator[CanaryWindow]:
    """What live tasks of a version came to, the latest first."""
    for event in reversed(ledger.history(version.tenant, version.experiment)):
        if event.version == version.id and event.kind == "watched" and event.evidence:
            yield read_window(ledger.evidence(event.evidence), f"evidence {event.evidence}")


def canary_window_stage(run: Run) -> Stage:
    """What live tasks say of the run's version: now, where it serves, else what was noted while it did."""
    ledger, version = Ledger.of(run.home), candidate_version(run)
    state = ledger.state(version)
    if state in SERVING:
        window = window_of(run.store, ledger, version, state, run.now())
    else:
        window = next(_noted(ledger, version), None)
    if window is None:
        summary = f"{version.label} stands in {state}: there are no live tasks to look at"
        return stage("canary_window", False, summary, version.id, state=str(state))
    figures = {
        "pairs": window.pairs,
        "passed over": window.passed_over,
        "invalid": window.canary.invalid + window.production.invalid,
        "wealth against": window.acceptance.roll_back_wealth,
        "wealth in favour": window.acceptance.promote_wealth,
        "threshold": window.acceptance.threshold,
    }
    rows = [{"arm": "canary", **plain(window.canary)}, {"arm": "production", **plain(window.production)}]
    for row, arm in zip(rows, (window.canary, window.production), strict=True):
        row["acceptance"] = plain(arm.acceptance)
    return stage(
        "canary_window", False, f"{version.label} in {state}: {window.reason}", window.digest, rows,
        verdict=window.verdict, state=str(state), **figures,
    )  # fmt: skip
