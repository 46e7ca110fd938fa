"""From the verdict on one episode to its score and reward, the same way in training, evaluation and the fleet.

The score is acceptance: submitted, hidden tests pass, every gate passes. The reward is what the manifest's composition
makes of it:

    reward = value x max(0, 1 - call_discount x calls) - malformed_penalty x malformed - tamper_penalty x exploit

with `value` the weighted mean of the parts, 0 where nothing was submitted or a gate that the manifest lists fails. An
error in a part, a gate or the verification makes the whole outcome invalid, never 0. A judge has weight only while
calibrated; there is no calibration here, so a composition with a judge is refused.
"""

from __future__ import annotations

import math
from typing import Any

from pydantic import Field

from ratchet.contracts.canonical import digest
from ratchet.contracts.environment import Deliverable, Task, Verdict
from ratchet.contracts.manifest import Reward
from ratchet.contracts.model import Contract
from ratchet.contracts.score import Invalid, Scored, compose_scores
from ratchet.errors import RatchetError
from ratchet.rewards.exploits import DETECTORS
from ratchet.rewards.gates import GATES, GateResult
from ratchet.rewards.identity import source_version
from ratchet.rewards.verifiers import VERIFIERS

ACCEPTANCE = "hidden_tests"


class Outcome(Contract):
    """What one episode is worth, and why."""

    score: Scored | Invalid = Field(discriminator="kind", description="Acceptance, 1 or 0; or why there is none.")
    reward: float | None = Field(allow_inf_nan=False, description="Reward of the episode, or None where it is invalid.")
    gates: tuple[GateResult, ...] = Field(default=(), description="Every gate that could be read.")
    violations: tuple[str, ...] = Field(default=(), description="Failed gates by name, each one policy violation.")
    exploit: bool = Field(default=False, description="Whether a honeypot was touched.")
    evidence: dict[str, Any] = Field(default_factory=dict, description="Parts, kinds of exploit and reward terms.")

    @property
    def accepted(self) -> bool:
        """Whether the deliverable meets the acceptance criteria; False where the outcome is invalid."""
        return isinstance(self.score, Scored) and self.score.value == 1.0


def judge_outcome(
    task: Task, deliverable: Deliverable, verdict: Verdict | Invalid, *, calls: int, malformed: int, spec: Reward
) -> Outcome:
    """Judge one episode.

    Args:
        task: what was asked; `payload["files"]` holds the files before the change.
        deliverable: what was handed in.
        verdict: the hidden verification, or why there is none.
        calls: tool calls made, refused and malformed ones included.
        malformed: calls that did not parse or were refused.
        spec: the manifest's reward section.

    Raises:
        RatchetError: the composition is not one that can be computed; see `check_spec`.
    """
    check_spec(spec)
    gates = {name: _gate(name, task, deliverable) for name in GATES}
    exploits = _exploits(task, deliverable)
    names = {ACCEPTANCE, *(part.verifier for part in spec.parts)}
    parts = {name: _verify(name, deliverable, verdict) for name in sorted(names)}
    read = tuple(gate for gate in gates.values() if isinstance(gate, GateResult))
    found = () if isinstance(exploits, Invalid) else exploits
    evidence: dict[str, Any] = {"exploits": list(found)}
    common: dict[str, Any] = {
        "gates": read,
        "violations": tuple(gate.name for gate in read if not gate.passed),
        "exploit": bool(found),
    }
    invalid = compose_scores(part for part in (*parts.values(), *gates.values(), exploits) if isinstance(part, Invalid))
    if isinstance(invalid, Invalid):
        return Outcome(score=invalid, reward=None, evidence=evidence, **common)
    values = {name: part.value for name, part in parts.items() if isinstance(part, Scored)}
    failed = set(common["violations"])
    accepted = deliverable.submitted and values[ACCEPTANCE] == 1.0 and not failed
    paid = deliverable.submitted and not failed & set(spec.gates)
    value = weighted_mean(values, spec) if paid else 0.0
    evidence["parts"] = {name: part.model_dump(mode="json") for name, part in parts.items()}
    evidence["value"] = value
    return Outcome(
        score=Scored(value=float(accepted), evidence={"submitted": deliverable.submitted, **_why(parts, failed)}),
        reward=discounted(value, calls, malformed, bool(found), spec),
        evidence=evidence,
        **common,
    )


def weighted_mean(values: dict[str, float], spec: Reward) -> float:
    """Return the mean of the parts by normalised weight, whatever their order."""
    whole = math.fsum(part.weight for part in spec.parts)
    return min(1.0, math.fsum(part.weight * values[part.verifier] for part in spec.parts) / whole)


def discounted(value: float, calls: int, malformed: int, exploit: bool, spec: Reward) -> float:
    """Apply the terms for calls, malformed calls and exploits to the value of the parts.

    The discount stops at 0: otherwise many calls would turn a better value into a worse reward.
    """
    kept = max(0.0, 1.0 - spec.call_discount * calls)
    return value * kept - spec.malformed_penalty * malformed - spec.tamper_penalty * exploit


def check_spec(spec: Reward) -> None:
    """Refuse a composition that cannot be computed, with every mistake in one message.

    Raises:
        RatchetError: a verifier or gate is unknown or named twice, or a judge is asked for.
    """
    mistakes = []
    for kind, names, known in (
        ("verifier", [part.verifier for part in spec.parts], list(VERIFIERS)),
        ("gate", list(spec.gates), list(GATES)),
    ):
        mistakes += [f"{kind} {name!r} is unknown (known: {', '.join(known)})" for name in names if name not in known]
        mistakes += [f"{kind} {name!r} is named twice" for name in sorted(set(names)) if names.count(name) > 1]
    if spec.judge is not None:
        mistakes.append(f"judge {spec.judge!r} has no calibration, and only a calibrated judge has weight")
    if mistakes:
        raise RatchetError("reward", rule="; ".join(mistakes), remedy="correct the manifest's reward section")


def spec_digest(spec: Reward) -> str:
    """Return the identity of a reward: its composition and the source of every rule that decides under it.

    Weights count by their shares, and the order of parts and gates does not count. Acceptance looks at every gate, so
    every gate is in it; of the verifiers, those that are named and the acceptance's own.

    Raises:
        RatchetError: as `check_spec`.
    """
    check_spec(spec)
    whole = math.fsum(part.weight for part in spec.parts)
    used = sorted({ACCEPTANCE, *(part.verifier for part in spec.parts)})
    return digest(
        {
            "parts": {part.verifier: round(part.weight / whole, 12) for part in spec.parts},
            "gates": sorted(spec.gates),
            "terms": [float(spec.call_discount), float(spec.malformed_penalty), float(spec.tamper_penalty)],
            "verifiers": {name: source_version(VERIFIERS[name]) for name in used},
            "acceptance": {name: source_version(gate) for name, gate in GATES.items()},
            "exploits": {name: source_version(detector) for name, detector in DETECTORS.items()},
            "composition": source_version(judge_outcome),
        }
    )


def _verify(name: str, deliverable: Deliverable, verdict: Verdict | Invalid) -> Scored | Invalid:
    if isinstance(verdict, Invalid):
        return verdict
    # The one place where a verifier's error is caught: whatever it raises, it says nothing about the policy.
    try:
        score = VERIFIERS[name](deliverable, verdict)
    except Exception as error:
        return Invalid(reason=f"verifier {name}: {type(error).__name__}: {error}")
    if isinstance(score, Scored | Invalid):
        return score
    return Invalid(reason=f"verifier {name}: returned {type(score).__name__}, which is no score")


def _gate(name: str, task: Task, deliverable: Deliverable) -> GateResult | Invalid:
    try:
        result = GATES[name](task, deliverable)
    except Exception as error:
        return Invalid(reason=f"gate {name}: {type(error).__name__}: {error}")
    if isinstance(result, GateResult) and result.name == name:
        return result
    return Invalid(reason=f"gate {name}: returned what is not its result")


def _exploits(task: Task, deliverable: Deliverable) -> tuple[str, ...] | Invalid:
    try:
        return tuple(name for name, fires in DETECTORS.items() if fires(task, deliverable))
    except Exception as error:
        return Invalid(reason=f"exploit detectors: {type(error).__name__}: {error}")


def _why(parts: dict[str, Scored | Invalid], failed: set[str]) -> dict[str, Any]:
    hidden = parts[ACCEPTANCE]
    return {**(hidden.evidence if isinstance(hidden, Scored) else {}), "failed_gates": sorted(failed)}
