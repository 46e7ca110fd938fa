"""`ratchet run`: which manifest is meant, what is relayed, how much was done already, and who hears a signal."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import typer

from ratchet.cli.options import project
from ratchet.cli.run import find_manifest, relay, said
from ratchet.errors import ManifestError

ROOT = Path(__file__).resolve().parents[2]
WAIT_S = 60.0


def test_a_name_means_the_manifest_in_experiments() -> None:
    assert find_manifest("repair", ROOT) == ROOT / "experiments" / "repair.yaml"


def test_a_relative_path_is_found_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_manifest("experiments/repair.yaml", project()) == ROOT / "experiments" / "repair.yaml"


def test_a_file_here_comes_before_one_of_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "experiments" / "repair.yaml"
    own.parent.mkdir()
    own.write_text("experiment: mine")
    monkeypatch.chdir(tmp_path)
    assert find_manifest("experiments/repair.yaml", ROOT) == own


def test_an_unknown_experiment_is_told_the_known_ones() -> None:
    with pytest.raises(ManifestError, match="one of: exploit, judged, repair"):
        find_manifest("repairs", ROOT)


def python(source: str) -> list[str]:
    return [sys.executable, "-c", source]


def test_lines_of_both_streams_are_relayed_to_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    relay(python("import sys; print('one', flush=True); print('two', file=sys.stderr)"), ROOT)
    out, err = capfd.readouterr()
    assert out == ""
    assert err.splitlines() == ["one", "two"]


def test_stages_are_read_from_the_lines_of_the_loop(capfd: pytest.CaptureFixture[str]) -> None:
    lines = "[ 1/16] split_lock ...", "[ 1/16] split_lock: 60/20/40 (reused)", "[10/16] sft_policy: 4 epochs (12.3 s)"
    stages = relay(python(f"print({chr(10).join(lines)!r})"), ROOT)
    assert stages == {"split_lock": True, "sft_policy": False}


def test_a_refused_loop_is_status_2(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended:
        relay(python("import sys; print('error: no'); sys.exit(1)"), ROOT)
    assert ended.value.exit_code == 2
    assert capfd.readouterr().err == "error: no\n"


def test_a_killed_loop_is_told_by_its_signal(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended:
        relay(python("import os; os.kill(os.getpid(), 9)"), ROOT)
    assert ended.value.exit_code == 137


@pytest.mark.parametrize(
    ("stages", "words"),
    [
        ({"split_lock": True, "grpo_policy": True, "rights_ledger": False}, "Everything was reused: all 2 stages"),
        ({"split_lock": False, "grpo_policy": False, "rights_ledger": False}, "All 2 stages were done"),
        ({"split_lock": True, "grpo_policy": False, "rights_ledger": False}, "1 of 2 stages were reused"),
    ],
)
def test_it_says_how_much_was_done_already(stages: dict[str, bool], words: str) -> None:
    assert said(stages).startswith(words)


CHILD = """
import os, signal, sys, time
def end(number, frame):
    print("heard", signal.Signals(number).name, flush=True)
    sys.exit(1)
signal.signal(signal.SIGINT, end)
signal.signal(signal.SIGTERM, end)
open(sys.argv[1], "w").write(str(os.getpid()))
print("ready", flush=True)
time.sleep(300)
"""
PARENT = """
import sys, typer
from pathlib import Path
from ratchet.cli.run import relay
try:
    relay([sys.executable, "-c", sys.argv[1], sys.argv[2]], Path("."))
except typer.Exit as end:
    sys.exit(end.exit_code)
"""


def until(true: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + WAIT_S
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def alive(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return False


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A command in the middle of a loop that would take minutes, and the process id of that loop."""
    mark = tmp_path / "pid"
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, CHILD, str(mark)], stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as command:
        assert command.stderr is not None
        assert command.stderr.readline() == "ready\n"
        yield command, int(mark.read_text())
        with contextlib.suppress(ProcessLookupError):
            os.killpg(command.pid, signal.SIGKILL)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_loop_hears_what_the_command_hears_and_is_waited_for(
    running: tuple[subprocess.Popen[str], int], number: signal.Signals, status: int
) -> None:
    command, child = running
    command.send_signal(number)
    assert command.wait(WAIT_S) == status
    assert not alive(child)
    assert command.stderr is not None
    heard, said_last = command.stderr.read().splitlines()
    assert heard == f"heard {number.name}"
    assert "the same command goes on where this one stopped" in said_last


def test_the_loop_dies_with_a_command_that_is_killed(running: tuple[subprocess.Popen[str], int]) -> None:
    command, child = running
    assert alive(child)
    command.kill()
    command.wait(WAIT_S)
    assert until(lambda: not alive(child))
