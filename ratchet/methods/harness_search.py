"""Harness search: improve what surrounds the weights, with the weights unchanged.

Optuna (Akiba et al., 2019, arXiv:1907.10902) proposes harnesses by TPE (Bergstra et al., 2011) over decoding, limits,
retries, approval rules and what the environment leaves open; each plays a few validation cases and is scored by the
rubric that the manifest states. The first proposals are the start and the start with one choice changed, so that what
is no good is known from one trial each, and TPE begins where the harness is. Where a reflection model is configured,
GEPA then rewrites the instruction of the best one (`ratchet.methods.instructions`). The best few and the start play
the same cases again under fresh seeds, and the best of those is the outcome: a score that a harness was picked by
flatters it.

Permissions are not searched (`ratchet.methods.proposals`), and what is proposed is refused once more before it plays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import Field, model_validator

from ratchet.contracts.canonical import canonical_json, digest
from ratchet.contracts.environment import EnvironmentSpec, Searchable
from ratchet.contracts.judge import Endpoint
from ratchet.contracts.model import Contract
from ratchet.contracts.policy import Harness, refuse_widened
from ratchet.errors import ManifestError, TrainingError
from ratchet.methods.base import Curve, Guard, Needs, Spend, Stopped
from ratchet.methods.proposals import first_proposals, propose
from ratchet.progress import task as progress

NEEDS: Needs = "cases"
Part = Literal["decoding", "limits", "retries", "options", "approval_rules"]
PARTS: tuple[Part, ...] = ("decoding", "limits", "retries", "options", "approval_rules")
RESERVE = 0.75
"""Share of a budget after which no new harness is tried: the rest is for the second look."""


class Rubric(Contract):
    """What a harness is scored by:

    score = acceptance x A - cost x C - violations x V, with A the share of accepted attempts, C the mean cost of an
    attempt over that of the harness at the start, and V the mean number of broken rules and exploits in an attempt.
    """

    acceptance: float = Field(gt=0, allow_inf_nan=False, description="Weight of the share of accepted attempts.")
    cost: float = Field(ge=0, allow_inf_nan=False, description="Weight of an attempt's cost over that at the start.")
    violations: float = Field(ge=0, allow_inf_nan=False, description="Weight of broken rules per attempt.")


class Reflection(Contract):
    """The model that rewrites the instruction, and how often what it writes may be played."""

    endpoint: Endpoint = Field(description="Where the model is.")
    attempts: int = Field(default=200, ge=20, description="Attempts at cases that GEPA may spend.")


class Settings(Contract):
    """Settings of harness search."""

    rubric: Rubric = Field(description="What is scored.")
    cases: int = Field(default=40, ge=20, le=50, description="Validation tasks that every harness plays.")
    repeats: int = Field(default=1, ge=1, description="Attempts at each case per harness.")
    trials: int = Field(default=24, ge=1, description="Harnesses to try.")
    finalists: int = Field(default=3, ge=1, description="Harnesses that play again beside the one at the start.")
    final_repeats: int = Field(default=3, ge=1, description="Fresh attempts at each case in the second look.")
    search: tuple[Part, ...] = Field(default=PARTS, min_length=1, description="What may be changed.")
    temperature: tuple[float, float] = Field(default=(0.05, 1.2), description="Lowest and highest temperature.")
    top_p: tuple[float, float] = Field(default=(0.5, 1.0), description="Smallest and largest nucleus.")
    max_retries: int = Field(default=2, ge=0, description="Most retries of a turn that is no call.")
    reflection: Reflection | None = Field(default=None, description="Rewrites the instruction; None: it stays.")

    @model_validator(mode="after")
    def _ranges(self) -> Settings:
        for name, low, high, most in (("temperature", *self.temperature, math.inf), ("top_p", *self.top_p, 1.0)):
            if not 0 < low <= high <= most:
                raise ValueError(f"{name} must be a range from above 0 to at most {most:g}, the lower end first")
        return self


class Attempt(NamedTuple):
    """What became of one attempt at a case."""

    case: str
    accepted: bool | None
    """None where the attempt is invalid: it counts nowhere."""
    cost: float
    """In the currency of the price list."""
    violations: int
    told: str
    """What happened, in words for a reflection model."""


Play = Callable[[Harness, Sequence[tuple[str, int]]], list[Attempt]]
"""Plays cases under seeds with a harness; attempts in order."""


class Figures(NamedTuple):
    """A harness's figures over some attempts."""

    score: float
    acceptance: float
    cost: float
    """Mean cost of an attempt."""
    violations: float
    invalid: int


class Found(NamedTuple):
    """What a search leaves behind."""

    harness: Harness
    step: int
    """Trial that proposed it, from 1; 0 for the start."""
    curve: list[Curve]
    """A row per trial; `validation_acceptance` is that on the cases."""
    seconds: float
    stopped: Stopped
    trials: int
    attempts: int
    play_cost: float
    """What all attempts cost, priced like runs of an evaluation."""
    reflection_cost: float
    """What the reflection model cost, by the prices of its endpoint."""
    finals: list[dict[str, Any]]
    """The second look: trial, figures and harness of each finalist."""


def figures(attempts: Sequence[Attempt], rubric: Rubric, unit: float) -> Figures:
    """Score attempts by the rubric.

    Args:
        attempts: what was played; invalid ones count nowhere.
        rubric: the weights.
        unit: mean cost of an attempt at the start; 0 leaves cost out, since then nothing costs anything.

    Raises:
        TrainingError: no attempt is valid.
    """
    valid = [one for one in attempts if one.accepted is not None]
    if not valid:
        raise TrainingError(
            "harness search", seen="no valid attempt", rule="there must be one to score", remedy="repair the sandbox"
        )
    acceptance = sum(bool(one.accepted) for one in valid) / len(valid)
    cost = sum(one.cost for one in valid) / len(valid)
    violations = sum(one.violations for one in valid) / len(valid)
    relative = cost / unit if unit else 0.0
    score = rubric.acceptance * acceptance - rubric.cost * relative - rubric.violations * violations
    return Figures(score, acceptance, cost, violations, len(attempts) - len(valid))


def fit(
    start: Harness,
    allowed: EnvironmentSpec,
    offered: Searchable,
    cases: Sequence[str],
    play: Play,
    settings: Settings,
    *,
    seed: int,
    output: Path,
    guard: Guard | None = None,
    max_wall_s: float = math.inf,
    spend: Spend | None = None,
    name: str = "harness_search",
) -> Found:
    """Search.

    Args:
        start: the harness to improve.
        allowed: the permissions of the experiment.
        offered: what the environment leaves open.
        cases: ids of the validation tasks that are played.
        play: plays them; the same harness, case and seed give the same attempt.
        settings: rubric, ranges and budget.
        seed: same seed, same play: same harness.
        output: folder of the study; an interrupted search in it is gone on with, and ends in the same harness.
        guard: rechecks the right before every harness; its error ends the search.
        max_wall_s: wall budget in seconds.
        spend: budget in money.
        name: shown in progress lines.

    Raises:
        ManifestError: fewer cases than the settings ask for.
        PermissionsError: the start itself asks for more than the experiment permits.
        TrainingError: a harness had no valid attempt.
    """
    if len(cases) < settings.cases:
        raise ManifestError(
            f"{name}: validation cases",
            seen=len(cases),
            rule=f"there must be the {settings.cases} that the settings ask for",
            remedy="lock more validation tasks",
        )
    from ratchet.methods.study import Book

    output.mkdir(parents=True, exist_ok=True)
    cases = list(cases)[: settings.cases]
    facts = [start, allowed, offered, settings, seed, cases]
    book = Book(output / "study.db", digest(facts), seed, guard, max_wall_s, spend, play)
    look = [(case, repeat) for repeat in range(settings.repeats) for case in cases]
    fresh = [(case, settings.repeats + repeat) for repeat in range(settings.final_repeats) for case in cases]

    def played(key: str, harness: Harness, requests: Sequence[tuple[str, int]]) -> list[Attempt]:
        refuse_widened(name, harness, allowed, start)
        return book.played(key, harness, requests)

    first = played("start", start, look)
    unit = figures(first, settings.rubric, 0.0).cost
    origin = figures(first, settings.rubric, unit)
    with progress(f"harnesses of {name}", settings.trials) as tick:
        for done in book.trials(settings.trials, RESERVE, first_proposals(start, allowed, offered, settings)):
            harness = propose(done.trial, start, allowed, offered, settings)
            seen = figures(played(f"trial {done.number}", harness, look), settings.rubric, unit)
            book.finish(done, harness, seen)
            tick(1, f"score {seen.score:.3f}, the start has {origin.score:.3f}")
    ranked = sorted(book.tried(), key=lambda one: (-one.figures.score, one.number))
    best = [(one.number, one.harness) for one in ranked]
    reflected = 0.0
    if settings.reflection is not None and book.stopped == "finished":
        from ratchet.methods.instructions import rewrite

        base = best[0][1] if best and best[0][1] != start else start
        text, reflected = rewrite(
            base.system_prompt,
            cases,
            lambda prompt, some: played(
                f"instruction {digest([prompt, some])}",
                base.model_copy(update={"system_prompt": prompt}),
                [(case, 0) for case in some],
            ),
            lambda attempt: figures([attempt], settings.rubric, unit).score,
            settings.reflection,
            seed=seed,
            output=output / "instructions",
        )
        if text != base.system_prompt:
            best.insert(0, (settings.trials + 1, base.model_copy(update={"system_prompt": text})))
    finalists = [(0, start), *[one for one in best if one[1] != start][: settings.finalists]]
    finals = [(number, one, figures(played(f"final {number}", one, fresh), settings.rubric, unit))
              for number, one in finalists]  # fmt: skip
    step, harness, _ = max(finals, key=lambda one: (one[2].score, -one[0]))
    return Found(
        harness=harness,
        step=step,
        curve=[_row(0, origin, book.seconds_of("start")), *[_row(one.number, one.figures, one.seconds)
               for one in book.tried()]],
        seconds=book.seconds,
        stopped=book.stopped,
        trials=len(book.tried()),
        attempts=book.attempts,
        play_cost=book.cost,
        reflection_cost=reflected,
        finals=[{"trial": number, **seen._asdict(), "harness": one.model_dump(mode="json")}
                for number, one, seen in finals],
    )  # fmt: skip


def _row(number: int, seen: Figures, seconds: float) -> Curve:
    figures_of = {"score": seen.score, "cost_per_attempt": seen.cost, "violations": seen.violations}
    return Curve(
        step=number,
        loss=None,
        validation_acceptance=seen.acceptance,
        seconds=seconds,
        metrics={**figures_of, "invalid_attempts": float(seen.invalid)},
    )


def told(harness: Harness, start: Harness) -> str:
    """What differs between two harnesses, in one line."""
    before, after = start.model_dump(mode="json"), harness.model_dump(mode="json")
    before |= before.pop("decoding")
    after |= after.pop("decoding")
    shown = (f"{key} {_short(before[key])} -> {_short(after[key])}" for key in after if after[key] != before[key])
    return ", ".join(shown) or "nothing changed"


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else canonical_json(value)[:60]
