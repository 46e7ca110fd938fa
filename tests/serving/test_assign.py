"""Assignment of live tasks to arms: stable, at the share that was asked for, and independent of everything else."""

from __future__ import annotations

import math
import subprocess
import sys
from itertools import pairwise

import pytest

from ratchet.serving.assign import arm_of

IDS = [f"task-{number}" for number in range(20_000)]


def in_canary(salt: str, share: float) -> set[str]:
    return {live_id for live_id in IDS if arm_of(salt, live_id, share) == "canary"}


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 0.9])
def test_the_share_of_the_tasks_is_the_one_asked_for(share: float) -> None:
    sigma = math.sqrt(share * (1 - share) / len(IDS))
    assert abs(len(in_canary("salt", share)) / len(IDS) - share) < 4 * sigma


def test_nothing_is_in_the_canary_at_share_0_and_everything_at_1() -> None:
    assert in_canary("salt", 0.0) == set()
    assert in_canary("salt", 1.0) == set(IDS)


def test_hashes_are_spread_evenly_over_the_whole_range() -> None:
    counts = [len(in_canary("salt", (step + 1) / 20) - in_canary("salt", step / 20)) for step in range(20)]
    expected = len(IDS) / 20
    chi_squared = sum((count - expected) ** 2 / expected for count in counts)
    assert chi_squared < 43.8  # 99.9 % of chi-squared with 19 degrees of freedom


def test_a_task_is_in_the_same_arm_in_another_process() -> None:
    code = "from ratchet.serving.assign import arm_of\nprint([arm_of('s', f'task-{n}', 0.3) for n in range(200)])"
    environment = {"PYTHONHASHSEED": "7", "PATH": ""}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == str([arm_of("s", f"task-{n}", 0.3) for n in range(200)])


def test_a_larger_share_keeps_the_tasks_that_were_there() -> None:
    assert in_canary("salt", 0.1) < in_canary("salt", 0.2)


def test_another_canary_meets_another_sample_of_the_tasks() -> None:
    first, second = in_canary("one", 0.1), in_canary("two", 0.1)
    expected = len(IDS) * 0.01
    assert abs(len(first & second) - expected) < 4 * math.sqrt(expected)


def test_identities_that_follow_each_other_are_not_assigned_alike() -> None:
    arms = [arm_of("salt", live_id, 0.5) for live_id in IDS]
    alike = sum(one == other for one, other in pairwise(arms))
    assert abs(alike / len(IDS) - 0.5) < 4 * 0.5 / math.sqrt(len(IDS))
