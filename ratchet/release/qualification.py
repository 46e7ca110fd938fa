"""Serving qualification: that the serving engine really serves what the gate accepted, before any task reaches it.

Three things are measured on the exported checkpoint as the engine loaded it: the digest of its files is the accepted
one; its log-probabilities on validation prompts are the trainer's within a tolerance; and they are not those of the
previous version where the weights are others (an adapter that was never applied answers like its base). Whoever has
the record can try a loaded model again: it holds the probes.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from pydantic import AwareDatetime, Field, model_validator

from ratchet.contracts.evidence import Evidence
from ratchet.contracts.model import Contract
from ratchet.errors import IntegrityError, TransitionError
from ratchet.release.records import Version
from ratchet.release.states import State, rank

TOLERANCE = 1e-4
"""Largest difference of a log-probability in float32, in nats."""
REMEDY = "export and load the accepted checkpoint again; nothing reaches it before that"


class Probe(Contract):
    """One validation prompt with what the engine sampled after it, and what each side says of every sampled token."""

    prompt_ids: tuple[int, ...] = Field(min_length=1, description="Token ids of the prompt.")
    completion_ids: tuple[int, ...] = Field(min_length=1, description="Ids after it; tool results are among them.")
    sampled: tuple[bool, ...] = Field(description="Which of them the policy sampled.")
    served: tuple[float, ...] = Field(description="Log-probability of each sampled one, from the serving engine.")
    trained: tuple[float, ...] = Field(description="The same from a plain forward pass, as the trainer computes it.")
    previous: tuple[float, ...] | None = Field(
        default=None, description="The same from the version that served before; None where there is none."
    )

    @model_validator(mode="after")
    def _aligned(self) -> Probe:
        count = sum(self.sampled)
        lengths = {len(self.served), len(self.trained), len(self.previous) if self.previous is not None else count}
        if len(self.sampled) != len(self.completion_ids) or lengths != {count} or not count:
            raise ValueError("one log-probability belongs to each sampled token, and there must be one")
        return self

    @property
    def difference(self) -> float:
        """Largest difference between engine and trainer, in nats."""
        return largest_difference(self.served, self.trained)

    @property
    def differs(self) -> float:
        """Largest difference between engine and previous version, in nats; 0 where there is none."""
        return largest_difference(self.served, self.previous) if self.previous is not None else 0.0


class Qualification(Evidence, owner="ratchet.release"):
    """What was measured on one version in the serving engine. It passes where there is no reason against it."""

    version: str = Field(description="Id of the version in the release ledger.")
    policy_digest: str = Field(description="Digest of weights and harness.")
    weights_digest: str = Field(description="Digest of the files that the gate accepted.")
    served_digest: str = Field(description="Digest of the files that the engine loaded.")
    engine: str = Field(description="Engine that loaded them.")
    previous_weights: str | None = Field(description="Weights that served before; None where nothing did.")
    probes: tuple[Probe, ...] = Field(min_length=1, description="Validation prompts with both sides' figures.")
    tokens: int = Field(ge=1, description="Sampled tokens that were compared.")
    largest_difference: float = Field(ge=0, allow_inf_nan=False, description="Between engine and trainer, in nats.")
    tolerance: float = Field(gt=0, description="What it may be.")
    differing: int = Field(ge=0, description="Probes on which the previous version says something else.")
    reasons: tuple[str, ...] = Field(description="Why it does not pass; empty where it does.")
    at: AwareDatetime = Field(description="When it was measured.")
    by: str = Field(description="Person or rule that asked for it.")

    @property
    def passed(self) -> bool:
        """Whether traffic may reach the version."""
        return not self.reasons


def largest_difference(one: Sequence[float], other: Sequence[float]) -> float:
    """Largest absolute difference of two aligned sequences."""
    return max(abs(a - b) for a, b in zip(one, other, strict=True))


def qualify(
    version: Version,
    *,
    served_digest: str,
    engine: str,
    probes: Sequence[Probe],
    previous_weights: str | None,
    tolerance: float = TOLERANCE,
    by: str,
    at: datetime,
) -> Qualification:
    """Judge what was measured.

    Args:
        version: the version, as the ledger has it.
        served_digest: `folder_digest` of the files that the engine loaded.
        engine: its name.
        probes: at least one; with the previous version's figures where something served before.
        previous_weights: weights digest of what served before, if anything did.
        tolerance: largest difference to the trainer, in nats.
        by: person or rule.
        at: time with zone.
    """
    accepted = version.policy.weights_digest
    difference = max(probe.difference for probe in probes)
    differing = sum(probe.differs > tolerance for probe in probes)
    reasons = []
    if served_digest != accepted:
        reasons.append(f"the engine loaded {served_digest[:12]}, accepted was {accepted[:12]}")
    if difference > tolerance:
        reasons.append(f"a log-probability is {difference:.2g} nats from the trainer's, over {tolerance:g}")
    if previous_weights not in (None, accepted) and not differing:
        reasons.append(f"no probe tells it from the version before, whose weights are {str(previous_weights)[:12]}")
    return Qualification.issue(
        version=version.id,
        policy_digest=version.policy.digest,
        weights_digest=accepted,
        served_digest=served_digest,
        engine=engine,
        previous_weights=previous_weights,
        probes=tuple(probes),
        tokens=sum(sum(probe.sampled) for probe in probes),
        largest_difference=difference,
        tolerance=tolerance,
        differing=differing,
        reasons=tuple(reasons),
        at=at,
        by=by,
    )


def read_qualification(data: bytes, source: str) -> Qualification:
    """Reopen a stored record. Raises IntegrityError where it was changed."""
    return Qualification.reopen(data, source)


def refuse_foreign(version: Version, record: Qualification) -> None:
    """Raise IntegrityError where a record is about another version or other weights."""
    for what, seen, expected in (
        ("version", record.version, version.id),
        ("policy", record.policy_digest, version.policy.digest),
        ("weights", record.weights_digest, version.policy.weights_digest),
    ):
        if seen != expected:
            raise IntegrityError(
                f"{what} in the qualification of {version.label}", seen=seen, rule=f"it has {expected}", remedy=REMEDY
            )


def refuse_unqualified(version: Version, state: State, record: Qualification | None) -> None:
    """The door of the serving states: raise TransitionError unless the version's latest qualification passes."""
    if rank(state) < rank(State.CANARY):
        return
    if record is None or not record.passed:
        why = "; ".join(record.reasons) if record else "the serving engine has not tried it yet"
        raise TransitionError(
            f"promotion of {version.label} to {state}",
            rule=f"only a version that the serving engine qualified may answer tasks, and {why}",
            remedy=f"`ratchet qualify {version.id[:12]}`",
        )
