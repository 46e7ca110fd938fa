"""`ratchet doctor`: sound, it says so; each thing that is broken is named, with a remedy, and ends in status 1."""

from __future__ import annotations

import importlib.metadata
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from ratchet import sandbox
from ratchet.cli import doctor
from ratchet.cli.main import app
from ratchet.contracts.manifest_file import load_manifest
from ratchet.errors import RatchetError, StoreError
from ratchet.loop.context import open_run
from ratchet.sandbox import Finding
from ratchet.store import LocalStore

MANIFEST = Path(__file__).resolve().parents[2] / "experiments" / "repair.yaml"


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the sandbox out where a test is about the rest; its own probes have tests of their own."""
    monkeypatch.setattr(sandbox, "diagnose", list)


def call(home: Path) -> Result:
    return CliRunner().invoke(app, ["doctor", "--home", str(home)])


@pytest.mark.usefixtures("wide")
def test_a_sound_machine_passes_and_an_empty_home_is_left_alone(tmp_path: Path) -> None:
    home = tmp_path / "home"
    result = call(home)
    assert result.exit_code == 0, result.output
    assert "is not there yet" in result.output
    assert "an execution took" in result.output
    assert "the loop can run here" in result.output
    assert not home.exists()


@pytest.mark.usefixtures("wide", "quick")
def test_the_state_of_a_home_is_shown_and_not_added_to(tmp_path: Path) -> None:
    run_id = open_run(tmp_path, load_manifest(MANIFEST)).manifest.run_id
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    result = call(tmp_path)
    assert result.exit_code == 0, result.output
    assert f"holds 1 runs, the newest {run_id}" in result.output
    assert "1 events, chain verified" in result.output
    assert "nothing released yet" in result.output
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before


@pytest.mark.usefixtures("wide", "quick")
def test_a_changed_rights_ledger_is_named_with_its_remedy(tmp_path: Path) -> None:
    run = open_run(tmp_path, load_manifest(MANIFEST))
    run.rights.path.write_text(run.rights.path.read_text().replace("train_rl", "calibrate"))
    result = call(tmp_path)
    assert result.exit_code == 1
    assert "ledger.jsonl line 1" in result.output
    assert "restore the ledger" in result.output
    assert "do not hold: rights ledger" in result.stderr


@pytest.mark.usefixtures("wide")
def test_a_broken_sandbox_ends_in_status_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Finding("seccomp", False, "libseccomp is missing", "`apt-get install libseccomp2`")
    monkeypatch.setattr(sandbox, "diagnose", lambda: [broken])
    result = call(tmp_path)
    assert result.exit_code == 1
    assert "apt-get install libseccomp2" in result.output
    assert "do not hold: seccomp" in result.stderr


@pytest.mark.usefixtures("wide", "quick")
def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Any) -> Any:
        return shutil._ntuple_diskusage(10**12, 10**12, 10**8)  # type: ignore[attr-defined]

    monkeypatch.setattr(doctor.shutil, "disk_usage", full)
    result = call(tmp_path)
    assert result.exit_code == 1
    assert "0.1 GB free" in result.output


def test_packages_that_do_not_fit_are_all_named(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = ["no-such-package>=1", "numpy<1", "typer", 'pytest<1; extra == "dev"']
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: wanted)
    with pytest.raises(RatchetError) as told:
        doctor.packages()
    assert "no-such-package is missing" in told.value.seen
    assert "numpy is " in told.value.seen
    assert "typer" not in told.value.seen
    assert "pytest" not in told.value.seen


def test_a_store_that_writes_over_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(self: LocalStore, name: str, data: bytes) -> bool:
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return False

    monkeypatch.setattr(LocalStore, "create", careless)
    with pytest.raises(StoreError, match="an object that is there is not written over"):
        doctor.store(tmp_path)


@pytest.mark.usefixtures("wide", "quick")
def test_a_home_that_is_a_file_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.write_text("")
    result = call(home)
    assert result.exit_code == 1
    assert "it must be a folder" in result.output
