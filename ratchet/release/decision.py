"""The decision: the only thing that opens a transition of the release ledger.

It names every rule with its figure, threshold and evidence, and the digests of all inputs, so that a consumer can
verify it, and anybody can compute it again.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import AwareDatetime, Field

from ratchet.contracts.evidence import Evidence
from ratchet.contracts.model import Contract
from ratchet.contracts.score import NotComputable

Figure = float | NotComputable | str
State = Literal["promote", "review", "reject"]


class Rule(Contract):
    """One rule of the gate; its name is the sentence that is true when it passes."""

    name: str = Field(description="The sentence, in snake case.")
    passed: bool | None = Field(description="None where it cannot be computed, which blocks like a failure.")
    figure: Figure = Field(description="What was seen.")
    threshold: Figure = Field(description="What it is held against.")
    evidence: str = Field(description="Digest of what the figure rests on, or why there is none.")
    on_failure: Literal["reject", "review"] = Field(default="reject", description="What follows unless it passes.")
    reason: str = Field(description="The outcome in one sentence for a person.")


class Decision(Evidence, owner="ratchet.release"):
    """What the gate says of one candidate."""

    state: State = Field(description="promote: every rule passed; review: a person must look; reject: it may not move.")
    candidate: str = Field(description="Name of the candidate.")
    candidate_digest: str = Field(description="Policy digest of the candidate.")
    incumbent: str = Field(description="Name of the incumbent.")
    incumbent_digest: str = Field(description="Policy digest of the incumbent.")
    incumbent_version: str | None = Field(
        default=None, description="Id of the incumbent in the release ledger; None where the baseline served."
    )
    manifest_digest: str = Field(description="Digest of the manifest.")
    rules: tuple[Rule, ...] = Field(description="Every rule, in the order of the gate.")
    reasons: tuple[str, ...] = Field(description="Reasons of the rules that did not pass; empty for promote.")
    inputs: dict[str, str] = Field(description="Digest of every input by its name.")
    decided_at: AwareDatetime = Field(description="When; passed in, for the gate has no clock.")
    decided_by: str = Field(description="Person or rule that asked for the decision.")

    def summary(self) -> dict[str, Any]:
        """The decision as reports show it: plain JSON, with its digest."""
        return {**self.model_dump(mode="json"), "digest": self.digest}


def read_decision(data: bytes, source: str) -> Decision:
    """Reopen a stored decision. Raises IntegrityError where it was changed."""
    return Decision.reopen(data, source)
