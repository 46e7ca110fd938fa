"""Live outcomes: what became of each task that a served version answered, in one order that every reader sees.

They are kept in the store in numbered parts, `live/<tenant>/<experiment>/<number>.jsonl`. A part is created once and
never changed, and a writer takes the first number that is free: whoever has read up to a part has missed nothing, with
several servers too. A task counts once for a version, by its first outcome.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Literal, NamedTuple

from pydantic import AwareDatetime, Field, ValidationError, model_validator

from ratchet.contracts.canonical import canonical_json, digest
from ratchet.contracts.model import Contract
from ratchet.contracts.score import Invalid, Score
from ratchet.errors import IntegrityError
from ratchet.store import Store

Arm = Literal["canary", "production"]
BASELINE = "baseline"
"""What stands for a version's id where no version is in production and the baseline serves."""


class LiveOutcome(Contract):
    """One live task: who answered it, and what came of it."""

    live_id: str = Field(min_length=1, description="Identity of the live task.")
    segment: str = Field(description="Slice of the task.")
    arm: Arm = Field(description="Arm that the hash of the task's identity assigned.")
    version: str = Field(description="Id of the version that answered, or `baseline`.")
    policy_digest: str = Field(description="Digest of its weights and harness.")
    canary: str | None = Field(description="Id of the version in canary at that moment; None where there was none.")
    score: Score = Field(description="Tri-state: an infrastructure failure is invalid and says nothing of the arm.")
    accepted: bool | None = Field(description="Whether the work meets the acceptance criteria; None if invalid.")
    latency_s: float = Field(ge=0, allow_inf_nan=False, description="Wall clock of the episode, seconds.")
    cost: float = Field(ge=0, allow_inf_nan=False, description="By the manifest's price list, in its currency.")
    violations: tuple[str, ...] = Field(default=(), description="Policy rules that were broken, one entry each time.")
    at: AwareDatetime = Field(description="When it was finished.")

    @model_validator(mode="after")
    def _consistent(self) -> LiveOutcome:
        if isinstance(self.score, Invalid) != (self.accepted is None):
            raise ValueError("accepted is None exactly where the score is invalid")
        return self

    @cached_property
    def key(self) -> str:
        """SHA-256 of what it is the outcome of; see `outcome_key`."""
        return outcome_key(self.live_id, self.version, self.canary)


def outcome_key(live_id: str, version: str, canary: str | None) -> str:
    """Identity of an outcome: the task, the version that answers it, and the canary that it runs beside or in."""
    return digest([live_id, version, canary])


class Parts(NamedTuple):
    """Outcomes in order of arrival, each once, and the number of the last part that was read."""

    outcomes: list[LiveOutcome]
    last: int


def part_name(tenant: str, experiment: str, number: int) -> str:
    """Name in the store of one part; numbers start at 1."""
    return f"live/{tenant}/{experiment}/{number:010d}.jsonl"


def part_bytes(outcomes: Sequence[LiveOutcome]) -> bytes:
    """The bytes of a part."""
    return "".join(canonical_json(outcome) + "\n" for outcome in outcomes).encode()


def read_live(store: Store, tenant: str, experiment: str, after: int = 0) -> Parts:
    """Read the parts beyond number `after`, as far as there are any.

    Raises:
        IntegrityError: a part does not parse.
    """
    found: list[LiveOutcome] = []
    last = last_part(store, tenant, experiment, after)
    for number in range(after + 1, last + 1):
        name = part_name(tenant, experiment, number)
        try:
            found += [LiveOutcome.model_validate_json(line) for line in store.read(name).splitlines()]
        except ValidationError as error:
            raise IntegrityError(
                name, rule=f"every line must be a live outcome ({error})", remedy="restore the part from a copy"
            ) from None
    return Parts(list({outcome.key: outcome for outcome in reversed(found)}.values())[::-1], last)


def last_part(store: Store, tenant: str, experiment: str, known: int = 0) -> int:
    """Number of the last part, looked for from one that is known to be there (0: from the start)."""
    while store.exists(part_name(tenant, experiment, known + 1)):
        known += 1
    return known


def newest_part(store: Store, tenant: str, experiment: str) -> int:
    """Number of the newest part that a listing shows; there may be later ones, and a reader goes on to them."""
    shown = store.children(f"live/{tenant}/{experiment}")
    return max((int(name.partition(".")[0]) for name in shown), default=0)
