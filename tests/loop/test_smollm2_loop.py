"""The loop on a real checkpoint: the experiment, its weights that may be missing, and the whole of it run small.

`experiments/repair-smollm2.yaml` differs from the reference experiment in its base, its adapters and where DPO's pairs
come from. The long test runs it by the command line; everything else is the loop that the small policy goes through.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pipelines import launch
from ratchet.contracts.manifest_file import load_manifest
from ratchet.loop import deciding, learning
from ratchet.loop.context import Run, reopen_run, runs
from ratchet.policies import smollm2
from ratchet.rights import reopen

ROOT = Path(__file__).resolve().parents[2]
EXPERIMENT = ROOT / "experiments" / "repair-smollm2.yaml"


@pytest.mark.parametrize("fast", [False, True])
def test_pairs_come_from_logs_that_hold_solved_and_failed_attempts(fast: bool) -> None:
    manifest = load_manifest(EXPERIMENT, fast=fast)
    (dpo,) = [section for section in manifest.methods if section.method == "dpo"]
    assert set(dpo.data.policies) == {log.agent for log in manifest.logs} == {"expert", "random"}
    assert manifest.base.codec == "tool_call"
    assert all(section.adapter for section in manifest.methods)


def test_without_the_package_the_run_stops_at_once_with_the_name_of_the_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(smollm2, "find_spec", lambda name: None)
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path))
    monkeypatch.chdir(ROOT)
    assert launch.main(["--home", str(tmp_path), "--manifest", str(EXPERIMENT), "--fast"]) == 1
    said = capsys.readouterr().err
    assert said.count("error:") == 1
    assert "scripts/smollm2.sh" in said
    with reopen_run(tmp_path, *runs(tmp_path)) as run:
        assert not run.store.exists(run.name("tasks.jsonl"))


def executable(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/usr/bin/env bash\n{text}\n", encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.mark.parametrize("venv", [".venv", ".venv-ci"])
@pytest.mark.parametrize(
    ("experiment", "installs"),
    [("repair-smollm2", True), ("experiments/repair-smollm2.yaml", True), ("experiments/repair.yaml", False)],
)
def test_make_loop_installs_the_weights_for_the_experiment_that_wants_them(
    experiment: str, installs: bool, venv: str, tmp_path: Path
) -> None:
    """The Makefile itself, with programs in the place of what it calls that only say that they were called."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    shutil.copytree(ROOT / "experiments", tmp_path / "experiments")
    executable(tmp_path / "scripts" / "setup.sh", "echo set up >> called")
    executable(tmp_path / "scripts" / "smollm2.sh", 'echo "weights into $1" >> called')
    executable(tmp_path / venv / "bin" / "ratchet", 'echo "$@" >> called')
    # The tests themselves may run under make, whose variables (VENV, MAKEFLAGS) every program below it inherits.
    subprocess.run(
        ["make", "loop", f"EXPERIMENT={experiment}", "FAST=1"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], **({} if venv == ".venv" else {"VENV": venv})},
        check=True,
    )
    called = (tmp_path / "called").read_text(encoding="utf-8").splitlines()
    assert called == ["set up", *[f"weights into {venv}"] * installs, f"run {experiment} --fast"]


def moved(run: Run, name: str) -> float:
    """Largest weight of the second halves of a candidate's adapter, which are zero before the first update."""
    from safetensors.torch import load_file

    weights = load_file(run.store.folder(run.name("policies", name, "adapter")) / "adapter_model.safetensors")
    return max(float(weight.abs().max()) for key, weight in weights.items() if "lora_B" in key)


def looped(home: Path) -> str:
    """Run it by the command line; returns what it said at the end."""
    command = [sys.executable, "-m", "ratchet.cli", "run", str(EXPERIMENT), "--fast", "--home", str(home)]
    found = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert found.returncode == 0, found.stderr[-3000:]
    return found.stdout


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_whole_loop_runs_on_it(tmp_path: Path) -> None:
    looped(tmp_path)
    with reopen_run(tmp_path, *runs(tmp_path)) as run:
        body: dict[str, Any] = deciding.report_of(run)
        assert [one["name"] for one in body["policies"]] == ["baseline", "sft", "dpo", "grpo"]
        assert body["left_out"] == []
        assert body["decision"]["rules"]
        losses = [row["loss"] for row in learning.open_policy(run, "sft").training["curve"]]
        assert losses[-1] < losses[0]
        for name in ("sft", "dpo", "grpo"):
            assert moved(run, name) > 0
        dataset = learning.open_policy(run, "dpo").training["dataset"]
        place = run.name("datasets", f"{dataset}.json")
        assert reopen(run.store.read(place), place).purpose == "train_preference"
    assert "Everything was reused" in looped(tmp_path)
