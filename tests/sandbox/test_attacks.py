"""The attack suite: no escape, no forged verdict, each abuse reported by its limit, nothing left for the next episode.

All attacks run once, in a mount and pid namespace of their own where this process may make one: an attack that works
must not reach the machine that tests it.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from attack_containment import CONTAINED
from attack_forgeries import FORGERIES
from attack_limits import LIMIT_ATTACKS

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the attacks use x86-64 system call numbers")
_APART = ["unshare", "-m", "-p", "-f", "--mount-proc", "--propagation", "private"]
_NAMES = [
    *(f"limit: {name}" for name in LIMIT_ATTACKS),
    *(f"contained: {name}" for name in CONTAINED),
    *(f"forgery: {name}" for name in FORGERIES),
    *(f"loose forgery: {name}" for name in FORGERIES),
]


# As a plain user there is no cgroup and no uid to drop to: other parts of the sandbox stand in.
@pytest.fixture(scope="module", params=["this user", pytest.param("plain user", marks=pytest.mark.slow)])
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    answer = tmp_path_factory.mktemp("attacks") / "results.json"
    driver = Path(__file__).with_name("sandbox_attacks.py")
    command = [sys.executable, str(driver), str(answer)]
    if os.geteuid() == 0:
        command = [*_APART, *command, *(["54321"] if request.param == "plain user" else [])]
    elif request.param == "plain user":
        pytest.skip("this user is one")
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, dict[str, Any]] = json.loads(answer.read_text())
    return found


@pytest.mark.parametrize("name", LIMIT_ATTACKS)
def test_abuse_is_reported_by_its_limit(name: str, results: dict[str, dict[str, Any]]) -> None:
    result = results[f"limit: {name}"]
    assert not result["passed"]
    assert result["limit"] in LIMIT_ATTACKS[name].limits, result


@pytest.mark.parametrize("name", CONTAINED)
def test_attack_reaches_nothing(name: str, results: dict[str, dict[str, Any]]) -> None:
    result = results[f"contained: {name}"]
    assert result["passed"], result


@pytest.mark.parametrize("name", [f"{kind}: {name}" for name in FORGERIES for kind in ("forgery", "loose forgery")])
def test_wrong_answer_does_not_pass(name: str, results: dict[str, dict[str, Any]]) -> None:
    assert not results[name]["passed"], results[name]
    assert results[name]["status"] != "passed", results[name]


@pytest.mark.parametrize("name", _NAMES)
def test_next_execution_finds_nothing_of_the_attack(name: str, results: dict[str, dict[str, Any]]) -> None:
    assert results[name]["clean"], results[name]["clean_value"]
    assert results[name]["probe"]


def test_host_saw_no_connection(results: dict[str, dict[str, Any]]) -> None:
    assert results["host"]["connections"] == 0


def test_host_files_and_kernel_settings_are_as_before(results: dict[str, dict[str, Any]]) -> None:
    assert results["host"]["core_pattern"]
    assert results["host"]["secret"]


def test_no_process_is_left_after_close(results: dict[str, dict[str, Any]]) -> None:
    assert results["host"]["processes"] == []


def test_attacks_seldom_cost_a_new_sandbox(results: dict[str, dict[str, Any]]) -> None:
    # Only what cannot be wiped in time asks for a new one; no attack kills the warm process.
    assert results["host"]["slots_started"] <= 5
