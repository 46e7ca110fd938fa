"""The whole loop with its store on a real S3 server, which is killed and started again while each part of it runs."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from loop_world import ROOT, judge, prepare, small_manifest
from seaweed_server import BUCKET, Seaweed, running_seaweed
from test_apart import asked, landlocked

from ratchet.errors import ConflictError
from ratchet.loop import deciding, learning
from ratchet.loop.apart import train_apart
from ratchet.loop.context import Run, Stage, open_run, runs
from ratchet.store import open_store
from ratchet.store.s3 import S3Store

PLACE = f"s3://{BUCKET}/team/ratchet"
TINY = small_manifest(
    **{
        "splits.train": 12,
        "splits.validation": 4,
        "splits.heldout": 8,
        "logs": [{"agent": "expert", "episodes": 12, "format": "atif"}],
        "methods": [
            {
                "name": "sft",
                "method": "sft",
                "start": "base",
                "data": {"policies": ["expert"]},
                "settings": {"epochs": 1, "batch_size": 8},
            },
        ],
        "evaluation.seeds": [0],
    }
)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Seaweed]:
    """A server of this test's own, which it may kill; the variables say to keep the store there."""
    with running_seaweed(tmp_path / "seaweed") as running:
        for name, value in {**running.environment(), "RATCHET_STORE": PLACE}.items():
            monkeypatch.setenv(name, value)
        yield running


def train(run: Run) -> list[Stage]:
    """The one training of this loop."""
    return learning.train_method(run, "sft")


def through_an_outage(server: Seaweed, run: Run, stages: Callable[[Run], list[Stage]]) -> list[Stage]:
    """Do stages of the loop while the server dies under them and comes back."""

    def outage() -> None:
        time.sleep(0.3)
        server.kill()
        server.start()

    thread = threading.Thread(target=outage)
    thread.start()
    try:
        return stages(run)
    finally:
        thread.join()


def test_the_loop_runs_to_its_decision_on_s3_and_is_reused_whole(
    server: Seaweed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    with open_run(home, TINY) as run:
        for part in (prepare, train, judge):
            through_an_outage(server, run, part)
        decision = deciding.open_decision(run)
    assert decision.state in ("promote", "review", "reject")

    # Another process, later: the home knows where its store is.
    monkeypatch.delenv("RATCHET_STORE")
    assert runs(home) == [TINY.run_id]
    with open_run(home, TINY) as run:
        again = [stage for part in (prepare, train, judge) for stage in part(run)]
        assert [stage.name for stage in again if not stage.reused] == []
        assert deciding.open_decision(run) == decision
        assert deciding.report_of(run)["release"]["state"]
        assert isinstance(run.store, S3Store)
        assert len(run.store.names(run.name())) > 20
    assert not (home / "store").exists()
    said = b"".join(path.read_bytes() for path in home.rglob("*") if path.is_file())
    assert server.environment()["AWS_SECRET_ACCESS_KEY"].encode() not in said

    monkeypatch.setenv("RATCHET_STORE", f"{PLACE}-other")
    with pytest.raises(ConflictError, match=r"keeps its store at s3://.*unset RATCHET_STORE"):
        open_store(home)


@pytest.mark.slow
def test_a_loop_that_lost_its_store_says_so_and_goes_on_where_it_stopped(server: Seaweed, tmp_path: Path) -> None:
    """The command as people give it: the short form of the reference experiment, three times."""

    def command() -> subprocess.Popen[str]:
        given = [str(Path(sys.executable).with_name("ratchet")), "run", "experiments/repair.yaml", "--fast"]
        return subprocess.Popen(
            [*given, "--home", str(tmp_path / "home")],
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    first, said = command(), []
    assert first.stdout is not None
    with first:
        for line in first.stdout:
            said.append(line)
            if "trajectories:" in line:
                server.kill()
    assert first.returncode not in (0, None)
    assert "it goes on where it stopped" in "".join(said)
    assert "Traceback" not in "".join(said)
    server.start()
    for reused in (False, True):
        process = command()
        shown, _ = process.communicate(timeout=1800)
        assert process.returncode == 0, shown[-3000:]
        assert ("Everything was reused" in shown) == reused


@landlocked
def test_training_on_s3_reads_nothing_of_the_held_out_tasks(
    server: Seaweed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_run(tmp_path / "home", TINY) as run:
        prepare(run)
        secrets = [part.encode() for task in run.heldout_tasks() for part in (task.prompt, task.task_id)]
        monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
        work = run.home / "work" / run.manifest.run_id
        arguments = {"home": str(run.home), "run_id": run.manifest.run_id, **asked(run)}

        def attack(entry: str) -> Any:
            return train_apart(
                run, f"heldout_attacks:{entry}", arguments, work / "p", output=work / "x", hard_wall_s=300
            )[0]

        found = attack("attempt")
        assert found.pop("rollouts") == "None, None"
        # Names in a bucket can be listed; there are no rows yet.
        assert found.pop("rows of another store") == "got []"
        refused = ("HeldoutError", "PermissionError")
        assert {door: said for door, said in found.items() if not said.startswith(refused)} == {}
        assert "this process may not read" in found["another store"]
        taken = [bytes.fromhex(one) for one in attack("bucket")]
        assert taken
        assert [one for one in taken if any(secret in one for secret in secrets)] == []
