"""From the verdict on one episode to its score and reward, the same way in training, evaluation and the fleet.

The score is acceptance: submitted, the verifiers of `acceptance` (the hidden tests) give 1, every gate passes, and no
answer key was read. The reward is what the manifest's composition makes of it:

    reward = value x max(0, 1 - call_discount x calls) - malformed_penalty x malformed - tamper_penalty x exploit

with `value` the weighted mean of the parts, 0 where nothing was submitted or a gate that the manifest lists fails. An
error in a part, a step score, a gate or the verification, or a rule that does not come back within
`verifier_timeout_s`, makes the whole outcome invalid, never 0. The process scores of `steps` are composed per step,
beside the reward of the episode and never in it. A judge's grade is one more part of `value`. It is a condition of the
acceptance only where the manifest names its rubric there, beside a verifier: then the grade has to be the best one. It
counts only with the calibration of this very judge, so a composition with a judge and without its grade is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import Field, ValidationError

from ratchet.contracts.attempt import Attempt, CallStep
from ratchet.contracts.canonical import canonical_json, digest
from ratchet.contracts.environment import Deliverable, EnvironmentSpec, Task, Verdict
from ratchet.contracts.manifest import Reward, StepPart
from ratchet.contracts.model import Contract
from ratchet.contracts.score import Invalid, Scored, compose_scores
from ratchet.deadline import Ended, Overdue, told, within
from ratchet.errors import RatchetError
from ratchet.rewards.exploits import DETECTORS, DISQUALIFYING, find_exploits
from ratchet.rewards.gates import GATES, GateResult
from ratchet.rewards.identity import source_version
from ratchet.rewards.verifiers import STEP_VERIFIERS, VERIFIERS

if TYPE_CHECKING:
    from ratchet.rewards.judges.grading import Grade


class Outcome(Contract):
    """What one episode is worth, and why."""

    score: Scored | Invalid = Field(discriminator="kind", description="Acceptance, 1 or 0; or why there is none.")
    reward: float | None = Field(allow_inf_nan=False, description="Reward of the episode, or None where it is invalid.")
    gates: tuple[GateResult, ...] = Field(default=(), description="Every gate that could be read.")
    violations: tuple[str, ...] = Field(default=(), description="Failed gates by name, each one policy violation.")
    exploit: bool = Field(default=False, description="Whether a honeypot was touched.")
    exploits: dict[str, str] = Field(default_factory=dict, description="Kinds of exploit, each with what was seen.")
    steps: tuple[Scored, ...] = Field(default=(), description="Process score of every step, where the reward has any.")
    evidence: dict[str, Any] = Field(default_factory=dict, description="Parts, kinds of exploit and reward terms.")

    @property
    def accepted(self) -> bool:
        """Whether the deliverable meets the acceptance criteria; False where the outcome is invalid."""
        return isinstance(self.score, Scored) and self.score.value == 1.0


def judge_outcome(
    task: Task,
    deliverable: Deliverable,
    verdict: Verdict | Invalid,
    *,
    calls: int,
    malformed: int,
    spec: Reward,
    steps: Sequence[CallStep] | None = None,
    permissions: EnvironmentSpec | None = None,
    grade: Grade | None = None,
) -> Outcome:
    """Judge one episode.

    Args:
        task: what was asked; `payload["files"]` holds the files before the change.
        deliverable: what was handed in.
        verdict: the hidden verification, or why there is none.
        calls: tool calls made, refused and malformed ones included.
        malformed: calls that did not parse or were refused.
        spec: the manifest's reward section.
        steps: the calls with their answers, in order; None for a deliverable that no episode made, such as a probe.
        permissions: what the environment permits; without it, only refusals show what was not.
        grade: what the judge says, where it has weight and what was handed in could be verified.

    Raises:
        RatchetError: the composition is not one that can be computed, see `check_spec`, or a judge counts in it and
            there is no grade by this judge as it was calibrated.
    """
    check_spec(spec)
    graded = _graded(spec, grade, needed=isinstance(verdict, Verdict) and getattr(deliverable, "submitted", False))
    try:
        attempt = Attempt(
            task=task,
            deliverable=deliverable,
            verdict=verdict,
            steps=None if steps is None else tuple(steps),
            permissions=permissions,
            canaries=spec.canaries,
        )
    except ValidationError as error:
        places = ", ".join(sorted({str(item["loc"][0]) for item in error.errors(include_input=False)}))
        return Outcome(score=Invalid(reason=f"attempt: {places} is not what its contract says"), reward=None)
    doing = ["attempt"]
    try:
        gates, exploits, parts, process = within(spec.verifier_timeout_s, partial(_read, attempt, spec, doing))
    except (Overdue, Ended) as error:
        return Outcome(score=Invalid(reason=told(doing[-1], error)), reward=None)
    read = tuple(gate for gate in gates.values() if isinstance(gate, GateResult))
    found = {} if isinstance(exploits, Invalid) else exploits
    evidence: dict[str, Any] = {"exploits": list(found)}
    common: dict[str, Any] = {
        "gates": read,
        "violations": tuple(gate.name for gate in read if not gate.passed),
        "exploit": bool(found),
        "exploits": found,
    }
    parts |= graded
    everything = (*parts.values(), process, *gates.values(), exploits)
    invalid = compose_scores(part for part in everything if isinstance(part, Invalid))
    if isinstance(invalid, Invalid):
        return Outcome(score=invalid, reward=None, evidence=evidence, **common)
    values = {name: part.value for name, part in parts.items() if isinstance(part, Scored)}
    failed = set(common["violations"])
    proven = all(values.get(name) == 1.0 for name in spec.acceptance) and not DISQUALIFYING & set(found)
    accepted = deliverable.submitted and proven and not failed
    paid = deliverable.submitted and not failed & set(spec.gates)
    value = weighted_mean(values, spec) if paid else 0.0
    evidence["parts"] = {name: part.model_dump(mode="json") for name, part in parts.items()}
    evidence["value"] = value
    return Outcome(
        score=Scored(value=float(accepted), evidence={"submitted": deliverable.submitted, **_why(parts, failed, spec)}),
        reward=discounted(value, calls, malformed, bool(found), spec),
        steps=() if isinstance(process, Invalid) else process,
        evidence=evidence,
        **common,
    )


def verifiers_of(spec: Reward) -> list[str]:
    """Return the names of the verifiers that decide under a reward: its parts and those of acceptance, sorted."""
    return sorted({*verifiers_alone(spec).acceptance, *(part.verifier for part in spec.parts)})


def step_parts(spec: Reward) -> tuple[StepPart, ...]:
    """Return the process scores that have weight."""
    return tuple(part for part in spec.steps if part.weight > 0)


def step_weight(spec: Reward) -> float:
    """Return the weight of all process scores together, beside the episode's advantage of weight 1."""
    return math.fsum(part.weight for part in step_parts(spec))


def judge_pays(spec: Reward) -> bool:
    """Whether a judge has weight in a reward."""
    return spec.judge is not None and spec.judge.weight > 0


def judge_accepts(spec: Reward) -> bool:
    """Whether acceptance asks for a judge's best grade, beside verifiers."""
    return spec.judge is not None and spec.judge.rubric in spec.acceptance


def judge_counts(spec: Reward) -> bool:
    """Whether a judge decides about anything under a reward: what is paid, or what is accepted."""
    return judge_pays(spec) or judge_accepts(spec)


def verifiers_alone(spec: Reward) -> Reward:
    """Return the same reward and acceptance without the judge, for whatever is not graded by one."""
    if spec.judge is None:
        return spec
    kept = tuple(name for name in spec.acceptance if name != spec.judge.rubric)
    # Never an empty condition, which everything meets: a rubric that stands alone is then refused as no verifier.
    return spec.model_copy(update={"judge": None, "acceptance": kept or spec.acceptance})


def weighted_mean(values: dict[str, float], spec: Reward) -> float:
    """Return the mean of the parts, the judge's among them where it has weight, by normalised weight."""
    weights = {part.verifier: part.weight for part in spec.parts}
    if spec.judge is not None and spec.judge.weight > 0:
        weights[spec.judge.rubric] = spec.judge.weight
    whole = math.fsum(weights.values())
    return min(1.0, math.fsum(weight * values[name] for name, weight in weights.items()) / whole)


def discounted(value: float, calls: int, malformed: int, exploit: bool, spec: Reward) -> float:
    """Apply the terms for calls, malformed calls and exploits to the value of the parts.

    The discount stops at 0: otherwise many calls would turn a better value into a worse reward.
    """
    kept = max(0.0, 1.0 - spec.call_discount * calls)
    return value * kept - spec.malformed_penalty * malformed - spec.tamper_penalty * exploit


def check_spec(spec: Reward) -> None:
    """Refuse a composition that cannot be computed, with every mistake in one message.

    Raises:
        RatchetError: a verifier or gate is unknown or named twice, a judge is named like a verifier, or acceptance
            rests on a judge alone.
    """
    mistakes = []
    for kind, names, known in (
        ("verifier", [part.verifier for part in spec.parts], VERIFIERS),
        ("step verifier", [part.verifier for part in spec.steps], STEP_VERIFIERS),
        ("acceptance verifier", list(spec.acceptance), {*VERIFIERS, *([spec.judge.rubric] if spec.judge else [])}),
        ("gate", list(spec.gates), GATES),
    ):
        mistakes += [f"{kind} {name!r} is unknown (known: {', '.join(known)})" for name in names if name not in known]
        mistakes += [f"{kind} {name!r} is named twice" for name in sorted(set(names)) if names.count(name) > 1]
    if spec.judge is not None and spec.judge.rubric in VERIFIERS:
        mistakes.append(f"rubric {spec.judge.rubric!r} is the name of a verifier too")
    elif spec.judge is not None and set(spec.acceptance) == {spec.judge.rubric}:
        mistakes.append(f"acceptance rests on the judge of {spec.judge.rubric!r} alone; name a verifier beside it")
    if mistakes:
        raise RatchetError("reward", rule="; ".join(mistakes), remedy="correct the manifest's reward section")


def spec_digest(spec: Reward) -> str:
    """Return the identity of a reward: its composition and the source of every rule that decides under it.

    Weights of parts count by their shares, those of steps as they are, and the order of parts and gates does not count.
    Acceptance looks at every gate, so every gate is in it; of the verifiers, those that are named and have weight.

    Raises:
        RatchetError: as `check_spec`.
    """
    check_spec(spec)
    whole = math.fsum(part.weight for part in spec.parts)
    steps = {part.verifier: part.weight for part in step_parts(spec)}
    return digest(
        {
            "parts": {part.verifier: round(part.weight / whole, 12) for part in spec.parts},
            "steps": steps,
            "acceptance": sorted(spec.acceptance),
            "judge": _judge_identity(spec, whole),
            "gates": sorted(spec.gates),
            "canaries": sorted(map(digest, spec.canaries)),
            "terms": [float(spec.call_discount), float(spec.malformed_penalty), float(spec.tamper_penalty)],
            "verifiers": {name: source_version(VERIFIERS[name]) for name in verifiers_of(spec)},
            "step_verifiers": {name: source_version(STEP_VERIFIERS[name]) for name in steps},
            "vetoes": {name: source_version(gate) for name, gate in GATES.items()},
            "exploits": {name: source_version(detector) for name, detector in DETECTORS.items()},
            "composition": source_version(judge_outcome),
        }
    )


def _judge_identity(spec: Reward, whole: float) -> Any:
    """What decides about the grade: rubric, model and weight beside the parts, whose weights sum to `whole`."""
    if spec.judge is None or not judge_counts(spec):
        return None
    made = spec.judge.model_dump(mode="json", include={"rubric", "kind", "endpoint", "fit", "labels", "drift"})
    return {**made, "weight": round(spec.judge.weight / whole, 12)}


def _graded(spec: Reward, grade: Grade | None, *, needed: bool) -> dict[str, Scored | Invalid]:
    """The judge's part by name, where it counts; needed for what was handed in and verified."""
    if spec.judge is None or not judge_counts(spec):
        return {}
    if grade is not None:
        grade.calibration.require(grade.judge_digest)
        return {spec.judge.rubric: grade.score}
    if needed:
        raise RatchetError(
            f"judge of {spec.judge.rubric!r}",
            rule="it counts in the reward, and there is no grade by a calibrated judge",
            remedy="calibrate the judge, or set reward.judge.weight to 0 and leave it out of the acceptance",
        )
    return {}


def scored_by(kind: str, name: str, rule: Callable[[Attempt], Any], attempt: Attempt) -> Scored | Invalid:
    """Run one verifier. Whatever it raises or returns besides a score says nothing about the policy, and is invalid."""
    try:
        return _as_score(f"{kind} {name}", rule(attempt))
    except Exception as error:  # the capture point of verifiers
        return Invalid(reason=told(f"{kind} {name}", error))


def steps_scored_by(name: str, rule: Callable[[Attempt], Any], attempt: Attempt) -> tuple[Scored, ...] | Invalid:
    """Run one step verifier: one score per step, in order, or why there are none."""
    try:
        found = rule(attempt)
        scores = found if isinstance(found, Invalid) else [_as_score(f"step verifier {name}", one) for one in found]
    except Exception as error:  # the capture point of step verifiers
        return Invalid(reason=told(f"step verifier {name}", error))
    if isinstance(scores, Invalid):
        return scores
    made = len(attempt.steps or ())
    if len(scores) != made:
        return Invalid(reason=f"step verifier {name}: {len(scores)} scores for {made} steps")
    wrong = next((score for score in scores if isinstance(score, Invalid)), None)
    return wrong or tuple(score for score in scores if isinstance(score, Scored))


def _as_score(who: str, score: Any) -> Scored | Invalid:
    if isinstance(score, Invalid):
        return score
    # A score that was constructed without validation can hold anything.
    if isinstance(score, Scored) and isinstance(score.value, float) and 0.0 <= score.value <= 1.0:
        try:
            canonical_json(score.evidence).encode()
        except (TypeError, ValueError) as error:
            return Invalid(reason=f"{who}: its evidence is no plain JSON ({type(error).__name__})")
        return score
    return Invalid(reason=f"{who}: returned {type(score).__name__}, which is no score in [0, 1]")


class _Readings(NamedTuple):
    """What every rule says about one attempt."""

    gates: dict[str, GateResult | Invalid]
    exploits: dict[str, str] | Invalid
    parts: dict[str, Scored | Invalid]
    process: tuple[Scored, ...] | Invalid


def _read(attempt: Attempt, spec: Reward, doing: list[str]) -> _Readings:
    """Run every rule; `doing` names the one that runs, should it not come back."""
    gates, parts = {}, {}
    for name in GATES:
        doing.append(f"gate {name}")
        gates[name] = _gate(name, attempt)
    doing.append("exploit detectors")
    exploits = _exploits(attempt)
    for name in verifiers_of(spec):
        doing.append(f"verifier {name}")
        parts[name] = _verify(name, attempt)
    return _Readings(gates, exploits, parts, _process(attempt, spec, doing))


def _verify(name: str, attempt: Attempt) -> Scored | Invalid:
    if isinstance(attempt.verdict, Invalid):
        return attempt.verdict
    return scored_by("verifier", name, VERIFIERS[name], attempt)


def _process(attempt: Attempt, spec: Reward, doing: list[str]) -> tuple[Scored, ...] | Invalid:
    """Compose the process scores per step: the mean of the verifiers by normalised weight, with each one's evidence."""
    if isinstance(attempt.verdict, Invalid):
        return attempt.verdict
    parts, whole = step_parts(spec), step_weight(spec)
    if attempt.steps is None or not parts:
        return ()
    scores: dict[str, tuple[Scored, ...]] = {}
    for part in parts:
        doing.append(f"step verifier {part.verifier}")
        found = steps_scored_by(part.verifier, STEP_VERIFIERS[part.verifier], attempt)
        if isinstance(found, Invalid):
            return found
        scores[part.verifier] = found
    return tuple(
        Scored(
            value=min(1.0, math.fsum(part.weight * scores[part.verifier][index].value for part in parts) / whole),
            evidence={name: {"value": own[index].value, **own[index].evidence} for name, own in scores.items()},
        )
        for index in range(len(attempt.steps))
    )


def _gate(name: str, attempt: Attempt) -> GateResult | Invalid:
    try:
        result = GATES[name](attempt)
    except Exception as error:
        return Invalid(reason=told(f"gate {name}", error))
    if isinstance(result, GateResult) and result.name == name:
        return result
    return Invalid(reason=f"gate {name}: returned what is not its result")


def _exploits(attempt: Attempt) -> dict[str, str] | Invalid:
    try:
        return find_exploits(attempt)
    except Exception as error:
        return Invalid(reason=told("exploit detectors", error))


def _why(parts: dict[str, Scored | Invalid], failed: set[str], spec: Reward) -> dict[str, Any]:
    """Evidence of the acceptance: of its one verifier, or of each by name where there are several."""
    found = {name: part.evidence for name in spec.acceptance if isinstance(part := parts.get(name), Scored)}
    return {**(found if len(found) > 1 else next(iter(found.values()))), "failed_gates": sorted(failed)}
