"""The canary window: pairing in order of arrival, what is left out, the verdicts, and how often they are right."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from random import Random
from statistics import median

import pytest
from release_world import AT, World, a_manifest, a_policy
from serving_world import Stream, outcome

from ratchet.contracts.score import NotComputable
from ratchet.errors import IntegrityError
from ratchet.evaluation.sequential import verdict_of
from ratchet.release.canary import WAITING, CanaryWindow, canary_window, production_window, read_window
from ratchet.release.live import LiveOutcome
from ratchet.release.records import Version
from ratchet.store import Store

STREAMS = 60
"""Streams of the quick simulations; the slow ones run 400."""


@pytest.fixture(scope="module")
def version(tmp_path_factory: pytest.TempPathFactory) -> Version:
    store = Store(tmp_path_factory.mktemp("store"))
    return Version.of(a_manifest(canary_share=0.5), a_policy(store, "sft"))


def seen(version: Version, outcomes: Iterable[LiveOutcome]) -> CanaryWindow:
    return canary_window(version, outcomes, at=AT)


def both(version: Version, number: int, canary: bool | None, production: bool | None) -> list[LiveOutcome]:
    """One task of each arm."""
    return [
        outcome(f"c{number}", "canary", version.id, version.id, canary),
        outcome(f"p{number}", "production", "old", version.id, production),
    ]


def test_without_tasks_there_are_no_figures_and_no_verdict(version: Version) -> None:
    window = seen(version, [])
    assert (window.verdict, window.closed, window.pairs) == ("hold", False, 0)
    assert isinstance(window.acceptance.mean, NotComputable)
    assert isinstance(window.canary.acceptance, NotComputable)
    assert isinstance(window.canary.cost, NotComputable)


def test_outcomes_are_paired_in_order_of_arrival(version: Version) -> None:
    arrivals = [("canary", True), ("canary", False), ("production", False), ("canary", True), ("production", False)]
    outcomes = [
        outcome(f"t{n}", arm, version.id if arm == "canary" else "old", version.id, accepted)
        for n, (arm, accepted) in enumerate(arrivals)
    ]
    window = seen(version, outcomes)
    assert window.pairs == 2  # (True, False) and (False, False); the third of the canary waits
    assert window.acceptance.mean == 0.5
    assert (window.canary.tasks, window.canary.accepted, window.production.tasks) == (3, 2, 2)


def test_invalid_outcomes_pair_with_nothing_and_are_counted(version: Version) -> None:
    outcomes = [*both(version, 0, None, True), *both(version, 1, False, None), *both(version, 2, True, True)]
    window = seen(version, outcomes)
    assert (window.canary.invalid, window.production.invalid) == (1, 1)
    assert window.pairs == 2
    assert window.acceptance.mean == -0.5  # (False, True), (True, True): an invalid task is no rejected one


def test_outcomes_of_other_times_and_versions_are_left_out(version: Version) -> None:
    foreign = [
        outcome("a", "production", "old", None, False),
        outcome("b", "canary", "other", "other", False),
        outcome("c", "production", "old", "other", False),
    ]
    assert seen(version, foreign + both(version, 1, True, False)).pairs == 1


def test_the_larger_arm_waits_only_so_long_for_a_partner(version: Version) -> None:
    many = [outcome(f"p{n}", "production", "old", version.id, n >= 10) for n in range(WAITING + 10)]
    window = seen(version, [*many, outcome("c", "canary", version.id, version.id, False)])
    assert window.passed_over == 10
    assert window.acceptance.mean == -1.0  # the ten that were rejected are passed over, the eleventh is the partner


@pytest.mark.parametrize(("rate", "verdict"), [(0.4, "roll_back"), (0.7, None), (0.95, "promote")])
def test_the_verdict_is_that_of_the_e_process_on_the_same_differences(
    version: Version, rate: float, verdict: str | None
) -> None:
    random = Random(4)
    results = [(random.random() < rate, random.random() < 0.7) for _ in range(2000)]
    window = seen(version, [one for number, pair in enumerate(results) for one in both(version, number, *pair)])
    expected = verdict_of([float(mine) - float(theirs) for mine, theirs in results], margin=0.03, alpha=0.05)
    assert window.verdict == expected
    assert verdict in (None, expected)
    assert window.passed_over == 0


def test_looking_at_every_moment_gives_what_looking_once_gives(version: Version) -> None:
    outcomes = list(islice(Stream(version.id, canary=0.45, production=0.7, seed=5), 900))
    last = seen(version, outcomes)
    assert last.verdict == "roll_back"
    peeks = [seen(version, outcomes[:count]) for count in range(0, 900, 30)]
    closed = [peek for peek in peeks if peek.closed]
    assert closed
    assert all(peek.digest == last.digest for peek in closed)
    assert all(peek.verdict == "hold" for peek in peeks if not peek.closed)


def test_broken_rules_alone_roll_back(version: Version) -> None:
    outcomes = []
    for number in range(400):
        broken = ("edited tests",) if number % 3 == 0 else ()
        outcomes.append(outcome(f"c{number}", "canary", version.id, version.id, True, broken))
        outcomes.append(outcome(f"p{number}", "production", "old", version.id, True))
    window = seen(version, outcomes)
    assert window.verdict == "roll_back"
    assert "broken rule" in window.reason
    assert window.violations.roll_back_wealth >= 20


def test_at_the_horizon_an_undecided_canary_is_closed_on_hold(tmp_path: Path) -> None:
    short = Version.of(a_manifest(canary_horizon_pairs=40, canary_share=0.5), a_policy(Store(tmp_path), "sft"))
    outcomes = [one for number in range(60) for one in both(short, number, number % 2 == 0, number % 2 == 0)]
    window = seen(short, outcomes)
    assert (window.verdict, window.closed, window.pairs) == ("hold", True, 40)


def test_a_window_is_reopened_only_as_it_was_issued(version: Version) -> None:
    window = seen(version, both(version, 0, True, False))
    assert read_window(window.to_bytes(), "w") == window
    with pytest.raises(IntegrityError):
        read_window(window.to_bytes().replace(b'"verdict":"hold"', b'"verdict":"promote"'), "w")
    with pytest.raises(IntegrityError):
        CanaryWindow(**window.model_dump())


# How often the verdicts are right, by simulated live outcomes through the window


def ends(version: Version, effect: float, streams: int, *, share: float = 0.5, base: float = 0.7) -> dict[str, object]:
    windows = [
        seen(version, islice(Stream(version.id, canary=base + effect, production=base, share=share, seed=n), 60_000))
        for n in range(streams)
    ]
    assert all(window.closed for window in windows)
    pairs = [window.pairs for window in windows if window.verdict == "roll_back"]
    shares = {name: sum(one.verdict == name for one in windows) / streams for name in ("roll_back", "promote", "hold")}
    return {**shares, "pairs": median(pairs) if pairs else None}


def test_simulated_streams_end_as_they_should(version: Version) -> None:
    worse, much_worse = ends(version, -0.10, STREAMS), ends(version, -0.175, STREAMS)
    equal, better = ends(version, 0.0, STREAMS), ends(version, 0.10, STREAMS)
    assert worse["roll_back"] >= 0.93
    assert 330 <= worse["pairs"] <= 620  # type: ignore[operator]
    assert much_worse["roll_back"] == 1.0
    assert 100 <= much_worse["pairs"] <= 200  # type: ignore[operator]
    assert equal["roll_back"] == 0.0
    assert better["promote"] == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.1, 0.5])
def test_the_operating_characteristics_hold_at_either_share(version: Version, share: float) -> None:
    found = {effect: ends(version, effect, 400, share=share) for effect in (-0.175, -0.10, -0.05, 0.0, 0.10)}
    print(f"share {share}: {found}")
    assert found[-0.175]["roll_back"] == 1.0
    assert found[-0.10]["roll_back"] >= 0.97  # type: ignore[operator]
    assert 0.11 <= found[-0.05]["roll_back"] <= 0.26  # type: ignore[operator]
    assert found[-0.05]["promote"] <= 0.05  # type: ignore[operator]
    assert found[0.0]["roll_back"] <= 0.02  # type: ignore[operator]
    assert 0.32 <= found[0.0]["promote"] <= 0.52  # type: ignore[operator]
    assert found[0.10]["promote"] >= 0.99  # type: ignore[operator]


# After the promotion


def reference(version: Version, rate: float = 0.7) -> CanaryWindow:
    return seen(version, islice(Stream(version.id, canary=0.9, production=rate, seed=3), 4000))


def live(version: Version, rate: float, count: int, seed: int = 0) -> list[LiveOutcome]:
    made = {good: outcome("t", "production", version.id, None, good) for good in (True, False)}
    draws = Stream(version.id, canary=rate, production=rate, seed=seed).random
    return [made[draws.random() < rate] for _ in range(count)]


def test_a_version_that_falls_below_what_was_there_before_is_rolled_back_though_it_was_good_for_long(
    version: Version,
) -> None:
    before = reference(version)
    assert before.verdict == "promote"
    window = production_window(version, before, live(version, 0.85, 5000) + live(version, 0.45, 1500), at=AT)
    assert (window.kind, window.verdict, window.closed) == ("production", "roll_back", True)
    assert window.against == before.digest


def test_a_version_that_does_as_well_as_the_one_before_is_left_in_peace(version: Version) -> None:
    before = reference(version)
    for seed in range(20):
        window = production_window(version, before, live(version, 0.7, 8000, seed), at=AT)
        assert (window.verdict, window.closed) == ("hold", False)


def test_a_reference_of_another_version_is_refused(version: Version, tmp_path: Path) -> None:
    other = World(tmp_path).candidate("other")
    with pytest.raises(IntegrityError, match="own canary window"):
        production_window(other, reference(version), [], at=AT)
