"""The states of a version and the transitions between them: one table, and everything else is refused by name.

`candidate -> staging -> canary -> production -> superseded`; `rejected` from the first three; `rolled_back` from canary
or production; `quarantined` from every state that serves or may come to serve again. `superseded -> production` is no
promotion: it is the other half of a rollback or a quarantine, and only the ledger takes it (`RESTORES`).
"""

from __future__ import annotations

from enum import StrEnum

from ratchet.errors import TransitionError


class State(StrEnum):
    """Where a version stands."""

    CANDIDATE = "candidate"
    STAGING = "staging"
    CANARY = "canary"
    PRODUCTION = "production"
    SUPERSEDED = "superseded"
    REJECTED = "rejected"
    ROLLED_BACK = "rolled_back"
    QUARANTINED = "quarantined"


S = State

TRANSITIONS: dict[State, tuple[State, ...]] = {
    S.CANDIDATE: (S.STAGING, S.REJECTED, S.QUARANTINED),
    S.STAGING: (S.CANARY, S.REJECTED, S.QUARANTINED),
    S.CANARY: (S.PRODUCTION, S.REJECTED, S.ROLLED_BACK, S.QUARANTINED),
    S.PRODUCTION: (S.SUPERSEDED, S.ROLLED_BACK, S.QUARANTINED),
    S.SUPERSEDED: (S.QUARANTINED,),
    S.REJECTED: (),
    S.ROLLED_BACK: (),
    S.QUARANTINED: (),
}
"""From a state to the states that may follow it."""

RESTORES = (S.SUPERSEDED, S.PRODUCTION)
"""What the ledger does to the previous version when the one in production is rolled back or quarantined."""

PROMOTIONS = (S.STAGING, S.CANARY, S.PRODUCTION)
"""States that only a decision opens, in their order."""

SERVING = (S.CANARY, S.PRODUCTION)
"""States in which a version answers live tasks."""

NEEDS_REASON = (S.REJECTED, S.ROLLED_BACK, S.QUARANTINED)
"""States that are entered with a reason in words."""


def check(version: str, seen: State, wanted: State) -> None:
    """Raise TransitionError, naming the allowed ones, unless the table leads from `seen` to `wanted`."""
    allowed = TRANSITIONS[seen]
    if wanted not in allowed:
        names = ", ".join(allowed)
        raise TransitionError(
            f"transition of {version} from {seen} to {wanted}",
            rule=f"from {seen} a version may go to {names}" if allowed else f"{seen} is final, nothing follows it",
            remedy="choose one of these" if allowed else "register a new version",
        )


def rank(state: State) -> int:
    """How far along the line of promotion a state is: 0 for candidate to 3 for production, else -1."""
    line = (S.CANDIDATE, *PROMOTIONS)
    return line.index(state) if state in line else -1
