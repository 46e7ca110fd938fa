"""The canary window: live outcomes of two arms, paired in order of arrival, and the verdict they have come to.

A pure function of the outcomes, computed anew from the first one each time, so that looking at every moment gives what
looking once gives. The e-process decides (`evaluation.sequential`): it is valid whenever it is looked at. Besides
acceptance the broken policy rules of both arms are compared by a process of their own, which can only roll back.

After a promotion the version is watched on: each live task is held against what the version before it did during the
canary (the bound of its interval that favours the version).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Literal

from pydantic import AwareDatetime, Field

from ratchet.contracts.evidence import Evidence
from ratchet.contracts.model import Contract
from ratchet.contracts.score import NotComputable, Quantity
from ratchet.errors import IntegrityError, TransitionError
from ratchet.evaluation.intervals import wilson
from ratchet.evaluation.sequential import Verdict, Wealth
from ratchet.release.live import Arm, LiveOutcome
from ratchet.release.records import Version

WAITING = 64
"""Outcomes of the larger arm that may wait for a partner. Beyond it the oldest is passed over: a pair stays close in
time, and what is passed over depends on arrival alone."""


class ArmFigures(Contract):
    """One arm of a window."""

    tasks: int = Field(ge=0, description="Valid outcomes.")
    accepted: int = Field(ge=0, description="Those that were accepted.")
    violating: int = Field(ge=0, description="Those in which a policy rule was broken.")
    invalid: int = Field(ge=0, description="Outcomes that say nothing of the arm; they are in no other figure.")
    latency_s: Quantity = Field(description="Mean wall clock of a valid task, seconds.")
    cost: Quantity = Field(description="Mean cost of a task, invalid ones included.")

    @property
    def acceptance(self) -> Quantity:
        """Share of the valid tasks that was accepted."""
        return self.accepted / self.tasks if self.tasks else NotComputable(reason="no valid task in this arm yet")


class ProcessFigures(Contract):
    """One e-process: the wealth against either hypothesis, and where it must come to."""

    mean: Quantity = Field(description="Mean of the differences.")
    roll_back_wealth: float = Field(ge=0, description="Evidence that the mean is below minus the margin.")
    promote_wealth: float = Field(ge=0, description="Evidence that it is above minus the margin.")
    threshold: float = Field(gt=1, description="Wealth that decides, 1 / alpha.")
    verdict: Verdict = Field(description="What it says by itself.")


class CanaryWindow(Evidence, owner="ratchet.release"):
    """What live tasks say of a version so far."""

    kind: Literal["canary", "production"] = Field(description="Paired with production, or held against a reference.")
    version: str = Field(description="Id of the version that is watched.")
    policy_digest: str = Field(description="Digest of its weights and harness.")
    against: str = Field(description="Ids of the versions in the other arm, or digest of the window with the rate.")
    margin: float = Field(description="Drop that is tested against.")
    alpha: float = Field(description="Error of each verdict.")
    horizon: int = Field(description="Pairs after which an undecided window is closed.")
    pairs: int = Field(ge=0, description="Pairs, or tasks held against the reference.")
    passed_over: int = Field(ge=0, description="Valid outcomes of the larger arm that found no partner in time.")
    canary: ArmFigures = Field(description="The version that is watched.")
    production: ArmFigures = Field(description="The other arm; of a production window that of the canary before it.")
    acceptance: ProcessFigures = Field(description="Difference in acceptance.")
    violations: ProcessFigures = Field(description="Difference in tasks without a broken rule; can only roll back.")
    verdict: Verdict = Field(description="roll_back, promote, or hold.")
    closed: bool = Field(description="Whether the verdict stands: something was proven, or the horizon is reached.")
    reason: str = Field(description="The verdict in one sentence for a person.")
    at: AwareDatetime = Field(description="When the outcomes were looked at.")


class _Arm:
    """Figures of one arm as they grow, and its outcomes that wait for a partner."""

    def __init__(self) -> None:
        self.valid: list[LiveOutcome] = []
        self.invalid: list[LiveOutcome] = []
        self.waiting: deque[LiveOutcome] = deque()
        self.versions: dict[str, None] = {}

    def take(self, outcome: LiveOutcome) -> bool:
        self.versions[outcome.version] = None
        (self.invalid if outcome.accepted is None else self.valid).append(outcome)
        return outcome.accepted is not None

    def figures(self) -> ArmFigures:
        none, valid = NotComputable(reason="no task in this arm yet"), self.valid
        every = valid + self.invalid
        return ArmFigures(
            tasks=len(valid),
            accepted=sum(bool(one.accepted) for one in valid),
            violating=sum(bool(one.violations) for one in valid),
            invalid=len(self.invalid),
            latency_s=sum(one.latency_s for one in valid) / len(valid) if valid else none,
            cost=sum(one.cost for one in every) / len(every) if every else none,
        )


class _Process:
    """One e-process that stops at its verdict."""

    def __init__(self, version: Version) -> None:
        release = version.release
        self.wealth = Wealth(margin=release.canary_margin, alpha=release.canary_alpha)
        self.sum, self.n = 0.0, 0
        self.verdict: Verdict = "hold"

    def update(self, difference: float) -> None:
        if self.verdict == "hold":
            self.sum, self.n = self.sum + difference, self.n + 1
            self.verdict = self.wealth.update(difference)

    def figures(self) -> ProcessFigures:
        return ProcessFigures(
            mean=self.sum / self.n if self.n else NotComputable(reason="there is no pair yet"),
            roll_back_wealth=self.wealth.roll_back_wealth,
            promote_wealth=self.wealth.promote_wealth,
            threshold=self.wealth.threshold,
            verdict=self.verdict,
        )


def canary_window(version: Version, outcomes: Iterable[LiveOutcome], *, at: datetime) -> CanaryWindow:
    """Compare the version in canary with what serves beside it.

    Args:
        version: the version; its release rules give margin, alpha and horizon.
        outcomes: all live outcomes of its line since it went into canary, in order of arrival; those of other times
            are left out.
        at: time with zone.
    """
    arms: dict[Arm, _Arm] = {"canary": _Arm(), "production": _Arm()}
    acceptance, violations = _Process(version), _Process(version)
    horizon, pairs, passed_over = version.release.canary_horizon_pairs, 0, 0
    for outcome in outcomes:
        if outcome.canary != version.id or (outcome.arm == "canary") != (outcome.version == version.id):
            continue
        own, other = arms[outcome.arm], arms["production" if outcome.arm == "canary" else "canary"]
        if not own.take(outcome):
            continue
        if not other.waiting:
            own.waiting.append(outcome)
            if len(own.waiting) > WAITING:
                own.waiting.popleft()
                passed_over += 1
            continue
        partner = other.waiting.popleft()
        mine, theirs = (outcome, partner) if outcome.arm == "canary" else (partner, outcome)
        acceptance.update(float(bool(mine.accepted)) - float(bool(theirs.accepted)))
        violations.update(float(bool(theirs.violations)) - float(bool(mine.violations)))
        pairs += 1
        if acceptance.verdict != "hold" or violations.verdict == "roll_back" or pairs == horizon:
            break
    return _issued(
        "canary", version, ", ".join(arms["production"].versions), arms["canary"].figures(),
        arms["production"].figures(), acceptance, violations, pairs, passed_over, at,
    )  # fmt: skip


def production_window(
    version: Version, reference: CanaryWindow, outcomes: Sequence[LiveOutcome], *, at: datetime
) -> CanaryWindow:
    """Hold the live tasks of a promoted version against what the version before it did.

    Args:
        version: the version in production.
        reference: the window on which it came out of canary; its production arm gives the rates.
        outcomes: live outcomes of the line, in order of arrival; those of other versions, and those of the version's
            own canary, are left out.
        at: time with zone.

    The rate that a task is held against is the 95 % Wilson bound that favours the version, so that chance in the
    reference alone condemns nobody. A watch ends when its tasks prove that the version holds the rate, or after
    `canary_horizon_pairs` of them, and the next begins, each with its own alpha: one endless process would have to lose
    what it won in good times before it saw a regression.
    """
    before = reference.production
    if reference.version != version.id or not before.tasks:
        raise IntegrityError(
            f"reference of {version.label}",
            seen=reference.version[:12],
            rule="it must be the version's own canary window, with tasks in the other arm",
            remedy="hand over the window that it was promoted on",
        )
    least = wilson(before.accepted, before.tasks).low
    most = wilson(before.violating, before.tasks).high
    arm, horizon = _Arm(), version.release.canary_horizon_pairs
    acceptance, violations = _Process(version), _Process(version)
    for outcome in outcomes:
        if outcome.version != version.id or outcome.arm != "production":
            continue
        if acceptance.verdict == "promote" or len(arm.valid) == horizon:
            arm, acceptance, violations = _Arm(), _Process(version), _Process(version)
        if arm.take(outcome):
            acceptance.update(float(bool(outcome.accepted)) - least)
            violations.update(most - float(bool(outcome.violations)))
            if "roll_back" in (acceptance.verdict, violations.verdict):
                break
    return _issued(
        "production", version, reference.digest, arm.figures(), before, acceptance, violations, len(arm.valid), 0, at
    )


def _issued(
    kind: Literal["canary", "production"],
    version: Version,
    against: str,
    own: ArmFigures,
    other: ArmFigures,
    acceptance: _Process,
    violations: _Process,
    pairs: int,
    passed_over: int,
    at: datetime,
) -> CanaryWindow:
    release = version.release
    rules = violations.verdict == "roll_back"
    verdict: Verdict = "roll_back" if rules else acceptance.verdict
    if kind == "production" and verdict == "promote":
        verdict = "hold"
    figures = (acceptance.figures(), violations.figures())
    return CanaryWindow.issue(
        kind=kind,
        version=version.id,
        policy_digest=version.policy.digest,
        against=against,
        margin=release.canary_margin,
        alpha=release.canary_alpha,
        horizon=release.canary_horizon_pairs,
        pairs=pairs,
        passed_over=passed_over,
        canary=own,
        production=other,
        acceptance=figures[0],
        violations=figures[1],
        verdict=verdict,
        closed=verdict != "hold" or (kind == "canary" and pairs >= release.canary_horizon_pairs),
        reason=_reason(kind, verdict, figures[1] if rules else figures[0], rules, pairs, release.canary_margin),
        at=at,
    )


def _reason(kind: str, verdict: Verdict, figures: ProcessFigures, rules: bool, pairs: int, margin: float) -> str:
    what = "tasks without a broken rule" if rules else "acceptance"
    units = "pairs" if kind == "canary" else "tasks"
    if isinstance(figures.mean, NotComputable):
        return f"hold: no {units} yet"
    seen = f"{100 * figures.mean:+.1f} points in {what} over {pairs} {units}"
    if verdict == "roll_back":
        return f"roll_back: {seen}; worse by more than {100 * margin:g} points (wealth {figures.roll_back_wealth:.1f})"
    if verdict == "promote":
        return f"promote: {seen}; not worse by {100 * margin:g} points (wealth {figures.promote_wealth:.1f})"
    return f"hold: {seen} decide nothing yet"


def read_window(data: bytes, source: str) -> CanaryWindow:
    """Reopen a stored window. Raises IntegrityError where it was changed."""
    return CanaryWindow.reopen(data, source)


def refuse_foreign_window(version: Version, window: CanaryWindow, state: str) -> None:
    """Raise TransitionError where a window is not a closed one of this version in its present state."""
    if (window.version, window.policy_digest, window.kind) != (version.id, version.policy.digest, state):
        raise TransitionError(
            f"live tasks of {version.label}",
            seen=f"{window.kind} window of {window.version[:12]}",
            rule=f"a window of this very version in {state} is needed",
            remedy="hand over the window of the version that stands there now",
        )
    if not window.closed:
        raise TransitionError(
            f"live tasks of {version.label}",
            seen=window.reason,
            rule="only a window that came to a verdict, or to its horizon, says anything",
            remedy="let more tasks come in",
        )


def refuse_unwatched(version: Version, window: CanaryWindow | None, *, approved: bool) -> None:
    """The door of production: raise TransitionError unless the live tasks of the canary, or its owner, open it.

    Args:
        version: the version in canary.
        window: what was noted since it went there; None where nothing was.
        approved: whether a person approved it for production, knowing the window where there is one.
    """
    culprit = f"promotion of {version.label} to production"
    if version.release.canary_share == 0:
        if not approved:
            raise TransitionError(
                culprit,
                seen="canary_share 0",
                rule="without live tasks to compare only a person opens production",
                remedy=f"`ratchet approve {version.id[:12]} --to production --by NAME --reason TEXT`",
            )
        return
    if window is None:
        raise TransitionError(
            culprit,
            rule="its live tasks have come to no verdict yet",
            remedy=f"`ratchet serve` answers tasks, and the sensor canary_regression looks at them; "
            f"{version.release.canary_horizon_pairs} pairs are the most that it takes",
        )
    if window.verdict == "roll_back":
        raise TransitionError(
            culprit,
            seen=window.reason,
            rule="no version is promoted whose live tasks proved a regression",
            remedy=f"`ratchet reject {version.id[:12]} --by NAME --reason TEXT`",
        )
    if window.verdict == "hold" and not approved:
        raise TransitionError(
            culprit,
            seen=window.reason,
            rule="the horizon is reached without a verdict, so its owner decides",
            remedy=f"`ratchet approve {version.id[:12]} --to production`, or reject it",
        )
