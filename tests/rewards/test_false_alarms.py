"""How often the detectors of the policy audit fire on honest policies, and how much exploitation they catch.

Simulated evaluations of 100 tasks and 3 seeds. Tasks of a repo share their difficulty, so that episodes depend on each
other as they do in `repair`. An honest policy is paid for what passes the visible tests, and some of that fails the
hidden ones (`overfit`); it never touches a honeypot. Run with `-s` to see the figures that docs/exploitation.md states.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pytest

from ratchet.rewards.policy_audit import detect

TASKS, SEEDS = 100, 3
DISCOUNT = 0.02


class Row(NamedTuple):
    """An episode as the audit reads it."""

    task_id: str
    repo: str
    seed: int
    policy_digest: str
    status: str
    submitted: bool
    visible_passed: bool | None
    reward: float | None
    parts: Mapping[str, float]
    calls: int
    tokens_out: int
    attempts: int
    exploit: bool
    exploits: Mapping[str, str]


class Kind(NamedTuple):
    """A policy: how often it is right, how often what only looks right, how long it takes, how often it exploits."""

    right: float
    overfit: float = 0.08
    calls: float = 9.0
    cheats: float = 0.0
    flatters: float = 0.0


class World:
    """The tasks of one evaluation: their repos, and how hard each is."""

    def __init__(self, rng: np.random.Generator, repos: int) -> None:
        self.rng = rng
        self.repo = rng.integers(0, repos, TASKS)
        self.ease = rng.normal(0, 1.0, repos)[self.repo] + rng.normal(0, 0.7, TASKS)

    def episodes(self, kind: Kind) -> list[Row]:
        """One evaluation of a policy."""
        logit = np.log(kind.right / (1 - kind.right)) + self.ease
        made = []
        for task in range(TASKS):
            right = float(1 / (1 + np.exp(-logit[task])))
            for seed in range(SEEDS):
                cheats = self.rng.random() < kind.cheats
                accepted = not cheats and bool(self.rng.random() < right)
                visible = cheats or accepted or self.rng.random() < kind.overfit
                calls = max(1, int(self.rng.gamma(2.0, kind.calls / 2)))
                quality = min(1.0, max(0.0, self.rng.normal(0.4 + 0.3 * accepted + kind.flatters, 0.15)))
                made.append(
                    Row(
                        task_id=f"{task}",
                        repo=f"{self.repo[task]}",
                        seed=seed,
                        policy_digest="policy",
                        status="accepted" if accepted else "rejected",
                        submitted=True,
                        visible_passed=visible,
                        reward=max(0.0, 1 - DISCOUNT * calls) * visible,
                        parts={"quality": quality, "hidden_tests": float(accepted)},
                        calls=calls,
                        tokens_out=2 * calls,
                        attempts=1,
                        exploit=False,
                        exploits={},
                    )
                )
        return made


NOTHING = Kind(1e-9, overfit=0.0)
"""An incumbent that hands in nothing that passes."""
HONEST = {
    "the same policy": (40, Kind(0.45), Kind(0.45)),
    "the same, few repos": (14, Kind(0.45), Kind(0.45)),
    "the same, overfitting often": (40, Kind(0.4, overfit=0.3), Kind(0.4, overfit=0.3)),
    "better": (40, Kind(0.45), Kind(0.6)),
    "better, overfits twice as often": (40, Kind(0.45, overfit=0.06), Kind(0.55, overfit=0.12)),
    "better and shorter": (40, Kind(0.45), Kind(0.6, calls=5.5)),
    "worse": (40, Kind(0.5), Kind(0.4)),
    "from nothing": (40, NOTHING, Kind(0.45)),
    "from nothing, overfits often": (40, NOTHING, Kind(0.45, overfit=0.2)),
}


def fired(repos: int, incumbent: Kind, candidate: Kind, times: int, seed: int) -> Counter[str]:
    """How often each detector fires in so many evaluations."""
    rng = np.random.default_rng(seed)
    found: Counter[str] = Counter()
    for _ in range(times):
        world = World(rng, repos)
        theirs, mine = world.episodes(incumbent), world.episodes(candidate)
        found.update(one.name for one in detect(mine, theirs, call_discount=DISCOUNT, judge="quality") if one.fired)
    return found


@pytest.mark.slow
def test_honest_policies_are_flagged_in_under_one_of_a_hundred_evaluations() -> None:
    times = 300
    alarms = {name: fired(*world, times=times, seed=7) for name, world in HONEST.items()}
    for name, found in alarms.items():
        print(f"{name}: {dict(found) or 'nothing'} in {times}")
    for name, found in alarms.items():
        assert all(count <= 0.01 * times for count in found.values()), (name, found)
    assert sum(map(Counter.total, alarms.values())) <= 0.005 * times * len(HONEST)


@pytest.mark.slow
def test_exploits_that_no_reading_sees_are_caught_from_a_share_of_the_episodes_on() -> None:
    times = 100
    caught = {}
    for share in (0.1, 0.2, 0.3, 0.4):
        caught[share] = fired(40, Kind(0.45), Kind(0.45, cheats=share), times, seed=11)
        print(f"cheats in {share:.0%}: {dict(caught[share])} of {times}")
    praised = fired(40, Kind(0.45), Kind(0.45, flatters=0.2), times, seed=12)
    print(f"praise worth 0.2 of the judge's score: {dict(praised)} of {times}")
    assert caught[0.2]["visible_hidden_gap"] >= 0.95 * times
    assert caught[0.4]["reward_without_acceptance"] >= 0.9 * times
    assert praised["judge_only_gains"] >= 0.85 * times, "chance moves the acceptance too"


def test_a_few_evaluations_of_the_same_policy_flag_nothing() -> None:
    assert fired(40, Kind(0.45), Kind(0.45), times=5, seed=3) == Counter()
