"""What the gate looks at besides the scorecards: small typed digests of the evidences of other stages.

The caller builds them from those evidences; an absent piece is None or empty, and the rule that needs it blocks.
"""

from __future__ import annotations

from typing import NamedTuple

from pydantic import Field

from ratchet.contracts.model import Contract
from ratchet.evaluation.compare import Comparison
from ratchet.evaluation.scorecard import Scorecard


class ContaminationInput(Contract):
    """What the contamination certificate of the candidate's training data says."""

    digest: str = Field(description="Digest of the certificate.")
    lock_digest: str = Field(description="Split lock that it was checked against.")
    passed: bool = Field(description="Whether nothing is shared with the locked tasks.")
    findings: int = Field(ge=0, description="Shared items found.")
    waived: tuple[str, ...] = Field(default=(), description="Findings that were waived, by name; shown, never hidden.")


class RightInput(Contract):
    """One grant that the candidate's training data came in under, at the moment of the decision."""

    grant_id: str = Field(description="Grant.")
    digest: str = Field(description="Digest of its record.")
    state: str = Field(description="active, missing, expired, withdrawn, foreign: in the ledger's words.")
    valid: bool = Field(description="Whether it permits this training now.")
    rows: int = Field(default=0, ge=0, description="Training rows under it.")


class AuditInput(Contract):
    """What an exploitation audit says: of the reward before training, or of the candidate's episodes after it."""

    digest: str = Field(description="Digest of the audit.")
    subject_digest: str = Field(description="Reward specification or policy that was audited.")
    passed: bool = Field(description="Whether no detector rejects.")
    failures: tuple[str, ...] = Field(default=(), description="Detectors that fired, by name.")


class PermissionsInput(Contract):
    """What the candidate's harness asks for beyond the incumbent's."""

    incumbent_digest: str = Field(description="Digest of the incumbent's harness.")
    candidate_digest: str = Field(description="Digest of the candidate's harness.")
    widened: tuple[str, ...] = Field(description="Each request beyond the incumbent's permissions.")


class JudgeInput(Contract):
    """A judge that has weight in the acceptance."""

    name: str = Field(description="Judge.")
    digest: str = Field(description="Digest of its calibration.")
    calibrated: bool = Field(description="Whether it is calibrated now, without drift.")
    state: str = Field(description="Its state in words.")


class IncumbentInput(Contract):
    """What the candidates were compared with, as it was pinned when the evaluation was opened."""

    digest: str = Field(description="Digest of the pin.")
    version: str | None = Field(description="Id of the version in production; None: none was there, so the baseline.")
    released_for: str | None = Field(description="Environment and version it was released for; None where unknown.")
    evaluated_in: str = Field(description="Environment and version of this evaluation.")


class Limits(Contract):
    """Thresholds of the gate, from the manifest."""

    minimum_effect: float = Field(ge=0, description="The lower bound of the paired difference must exceed it.")
    max_latency_ratio: float = Field(gt=0, description="Candidate's p95 latency over the incumbent's.")
    max_cost_ratio: float = Field(gt=0, description="Candidate's variable cost per accepted run over the incumbent's.")
    max_segment_drop: float = Field(default=0.10, ge=0, description="Drop of a segment that asks for a person.")
    min_segment_tasks: int = Field(default=30, ge=1, description="Smallest segment whose drop does.")
    alpha: float = Field(default=0.05, gt=0, lt=1, description="Family-wise size of the tests.")


class GateInputs(Contract):
    """Everything but the scorecards. An absent piece is None or empty, and its rule then blocks."""

    manifest_digest: str = Field(description="Digest of the manifest.")
    lock_digest: str = Field(description="Digest of the split lock.")
    reward_digest: str = Field(description="Digest of the reward specification.")
    limits: Limits = Field(description="Thresholds.")
    incumbent: IncumbentInput | None = Field(description="The incumbent; None where nobody looked what it is.")
    contamination: ContaminationInput | None = Field(description="Certificate, or None where there is none.")
    rights: tuple[RightInput, ...] = Field(description="Every grant behind the training data, and behind its parents'.")
    rights_head: str | None = Field(default=None, description="Head of the rights ledger that the rights were read at.")
    reward_audit: AuditInput | None = Field(description="Honeypots tried on the reward; None where there is no audit.")
    policy_audit: AuditInput | None = Field(description="What the candidate did; None where there is no audit.")
    permissions: PermissionsInput = Field(description="Comparison of the harnesses.")
    earlier_candidates: int = Field(
        default=0, ge=0, description="Candidates of other runs that were judged on these held-out tasks before."
    )
    judges: tuple[JudgeInput, ...] = Field(
        default=(), description="Judges with weight in the acceptance; usually none."
    )


class Case(NamedTuple):
    """What the rules look at."""

    candidate: Scorecard
    incumbent: Scorecard
    comparison: Comparison
    others: tuple[Scorecard, ...]
    inputs: GateInputs
