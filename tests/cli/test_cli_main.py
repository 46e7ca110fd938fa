"""The command line as a whole: quick to answer, and one clear line where it refuses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import ratchet
from ratchet.cli import release
from ratchet.cli.main import app

HEAVY = ("torch", "transformers", "trl", "pandas", "numpy", "scipy", "pyarrow", "sqlalchemy", "mlflow", "dagster")
COMMANDS = ("run", "report", "doctor", "ingest", "approve", "reject", "rollback", "history", "ui")


def test_help_loads_nothing_heavy() -> None:
    program = (
        "import sys\nfrom ratchet.cli.main import app\n"
        "try:\n    app(['--help'])\nexcept SystemExit as end:\n    assert not end.code\n"
        f"print('loaded:', [name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "loaded: []"


def test_help_names_every_command() -> None:
    text = CliRunner().invoke(app, ["--help"]).output
    assert [name for name in COMMANDS if f" {name} " not in text] == []


def test_version_is_the_packages() -> None:
    assert CliRunner().invoke(app, ["--version"]).output.strip() == ratchet.__version__


@pytest.mark.parametrize(
    "command",
    [
        ["run", "no-such-experiment"],
        ["run", "--set", "seed"],
        ["run", "--set", "splits.train=none"],
        ["run", "--set", "nonsense=1"],
        ["report"],
        ["ingest", "README.md", "--tenant", "acme", "--grant", "unknown"],
        ["reject", "nobody", "--by", "Olga", "--reason", "none such"],
        ["rollback", "nothing", "--by", "Olga", "--reason", "none such"],
    ],
    ids=" ".join,
)
def test_a_refusal_is_one_line_and_status_2(command: list[str], tmp_path: Path) -> None:
    result = CliRunner().invoke(app, command, env={"RATCHET_HOME": str(tmp_path)})
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    assert result.stdout == ""


def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(home: Path) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(release, "_ledger", broken)
    assert isinstance(CliRunner().invoke(app, ["history"]).exception, ZeroDivisionError)


def test_the_home_is_an_option_before_it_is_a_variable(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        app, ["history", "--home", str(tmp_path / "one")], env={"RATCHET_HOME": str(tmp_path / "two")}
    )
    assert str(tmp_path / "one") in result.output
    assert not (tmp_path / "two").exists()
