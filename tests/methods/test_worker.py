from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import worker_training

from ratchet import progress
from ratchet.errors import RightsError, TrainingError
from ratchet.methods.trainer import run_in_subprocess


@pytest.fixture(autouse=True)
def _entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))


def gone(pid: int) -> bool:
    """Whether a process has ended (a zombie that nobody has reaped yet counts)."""
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


def pids(path: Path) -> list[int]:
    for _ in range(200):
        if path.exists() and len(path.read_text(encoding="utf-8").split()) == 2:
            return [int(part) for part in path.read_text(encoding="utf-8").split()]
        time.sleep(0.05)
    raise AssertionError("the worker never started")


def test_progress_lines_and_only_they_are_relayed_and_the_result_comes_back(tmp_path: Path) -> None:
    lines: list[str] = []
    before = progress.set_sink(lines.append)
    try:
        result = run_in_subprocess("worker_entries:echo", {"value": 7}, tmp_path, hard_wall_s=60, threads=1)
    finally:
        progress.set_sink(before)
    assert result == {"got": 7, "threads": "1"}
    assert lines == ["first line", "second line"]
    assert "noise from a library" in (tmp_path / "worker.log").read_text(encoding="utf-8")


def test_an_error_of_the_worker_is_the_same_error_here(tmp_path: Path) -> None:
    with pytest.raises(RightsError) as caught:
        run_in_subprocess("worker_entries:refuse", {}, tmp_path, hard_wall_s=60)
    assert (caught.value.culprit, caught.value.seen) == ("grant g1", "withdrawn")


def test_a_crash_names_its_cause_and_an_old_result_does_not_stand_in(tmp_path: Path) -> None:
    run_in_subprocess("worker_entries:echo", {"value": 1}, tmp_path, hard_wall_s=60)
    with pytest.raises(TrainingError, match="ZeroDivisionError: by zero"):
        run_in_subprocess("worker_entries:crash", {}, tmp_path, hard_wall_s=60)


def test_the_hard_limit_kills_the_worker_and_what_it_started(tmp_path: Path) -> None:
    path = tmp_path / "pids"
    with pytest.raises(TrainingError, match="hard limit"):
        run_in_subprocess("worker_entries:hang", {"pids": str(path)}, tmp_path, hard_wall_s=4)
    assert all(gone(pid) for pid in pids(path))


def test_the_tree_dies_when_the_parent_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "pids"
    code = (
        "from pathlib import Path; from ratchet.methods.trainer import run_in_subprocess; "
        f"run_in_subprocess('worker_entries:hang', {{'pids': {str(path)!r}}}, Path({str(tmp_path)!r}), hard_wall_s=60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL) as parent:
        started = pids(path)
        os.kill(parent.pid, signal.SIGKILL)
        assert all(gone(pid) for pid in started)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Every case of `worker_training`, in one process, since what costs most is its imports."""
    folder = tmp_path_factory.mktemp("killed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent))
        found: dict[str, dict[str, Any]] = run_in_subprocess(
            "worker_training:killed_and_whole", {"folder": str(folder)}, folder / "work", hard_wall_s=1500
        )
    return found


@pytest.mark.slow
@pytest.mark.timeout(1600)
@pytest.mark.parametrize("case", list(worker_training.CASES))
def test_a_run_killed_by_sigkill_ends_in_the_same_weights(case: str, trained: dict[str, dict[str, Any]]) -> None:
    found = trained[case]
    assert found["status"] == -signal.SIGKILL
    assert found["resumed"] == {**found["whole"], "resumed_from": 4}
    assert found["whole"]["resumed_from"] is None
    assert len(set(found["whole"]["losses"])) > 1
