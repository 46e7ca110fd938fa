"""The scripts behind `make setup`: silent where nothing is to do, clear where they cannot do it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def call(script: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **environment}
    return subprocess.run(
        [shutil.which("bash") or "bash", str(script), *arguments], env=env, capture_output=True, text=True
    )


@pytest.fixture
def bare(tmp_path: Path) -> str:
    """A PATH with the tools that a script itself needs, and without apt, setpriv, browser and database."""
    for name in ("bash", "grep", "cat", "dirname", "sha256sum", "sed"):
        found = shutil.which(name)
        assert found
        (tmp_path / name).symlink_to(found)
    return str(tmp_path)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The files that set-up reads, without an environment."""
    folder = tmp_path / "project"
    folder.mkdir()
    shutil.copytree(ROOT / "scripts", folder / "scripts")
    for name in ("requirements.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    return folder


def test_what_is_there_is_not_mentioned() -> None:
    done = call(ROOT / "scripts" / "install_system.sh", "base")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(("part", "missing"), [("base", "util-linux"), ("test", "chromium")])
def test_without_apt_it_says_what_is_missing_and_ends_well(part: str, missing: str, bare: str) -> None:
    done = call(ROOT / "scripts" / "install_system.sh", part, PATH=bare)
    assert done.returncode == 0
    assert "this machine has no apt" in done.stderr
    assert missing in done.stderr.splitlines()[-1]


def test_an_unknown_part_is_a_usage_error() -> None:
    done = call(ROOT / "scripts" / "install_system.sh", "everything")
    assert done.returncode == 2
    assert "base|test" in done.stderr


@pytest.mark.parametrize("python", ["no-such-python", "an older one"])
def test_without_python_3_11_it_says_how_to_get_it(python: str, project: Path) -> None:
    older = project / "older"
    older.write_text("#!/bin/sh\nexit 1\n")
    older.chmod(0o755)
    done = call(project / "scripts" / "setup.sh", PYTHON=str(older) if python == "an older one" else python)
    assert done.returncode == 1
    assert "is not a Python 3.11" in done.stderr
    assert "make setup PYTHON=" in done.stderr
    assert not (project / ".venv").exists()


def made(project: Path) -> None:
    """Pretend that set-up went through, with this interpreter as the environment's and a pip that only takes note."""
    python = project / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(
        f'#!/bin/sh\n[ "$1" = -m ] && echo "$@" >> {project}/calls && exit 0\nexec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    done = call(project / "scripts" / "setup.sh", PYTHON=sys.executable)
    assert done.returncode == 0, done.stderr


def test_it_installs_the_lock_and_then_the_project_alone(project: Path) -> None:
    made(project)
    lock, own = (project / "calls").read_text().splitlines()
    assert lock.endswith("install -r requirements.lock")
    assert own.endswith("install --no-deps --no-build-isolation -e .")


@pytest.mark.parametrize(
    ("file", "line", "again"),
    [("requirements.lock", "six==1.0", True), ("pyproject.toml", "[tool.other]", False), ("README.md", "words", False)],
)
def test_it_installs_again_only_after_what_it_installs_has_changed(
    file: str, line: str, again: bool, project: Path
) -> None:
    made(project)
    (project / "calls").unlink()
    with (project / file).open("a") as opened:
        opened.write(line + "\n")
    done = call(project / "scripts" / "setup.sh", PYTHON=sys.executable)
    assert done.returncode == 0
    assert (project / "calls").exists() is again
