"""`ratchet ingest`: good records come in, bad ones are counted, and without a grant nothing is read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from ratchet.cli.main import app
from ratchet.contracts.manifest_file import load_manifest
from ratchet.loop.context import open_run

MANIFEST = Path(__file__).resolve().parents[2] / "experiments" / "repair.yaml"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home whose ledger knows the grants of the reference experiment."""
    open_run(tmp_path / "home", load_manifest(MANIFEST))
    return tmp_path / "home"


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Two chats and a line that is none."""
    chats = [
        {"messages": [{"role": "user", "content": word}, {"role": "assistant", "content": "done"}]} for word in "ab"
    ]
    path = tmp_path / "logs.jsonl"
    path.write_text("".join(json.dumps(chat) + "\n" for chat in chats) + "{ no json\n")
    return path


def call(home: Path, path: Path, *more: str, grant: str = "workshop-logs") -> Result:
    command = ["ingest", str(path), "--tenant", "workshop", "--grant", grant, "--home", str(home), *more]
    return CliRunner().invoke(app, command)


def row(result: Result, label: str) -> str:
    (line,) = [line for line in result.stdout.splitlines() if label in line]
    return line.split("│")[2].strip()


def test_good_records_are_stored_and_a_bad_one_is_set_aside(home: Path, logs: Path) -> None:
    result = call(home, logs)
    assert result.exit_code == 0, result.output
    assert (row(result, "records read"), row(result, "stored"), row(result, "set aside  ")) == ("3", "2", "1")
    assert row(result, "format openai_chat") == "1"
    assert "see docs/intake.md" in result.stdout


def test_the_same_logs_again_add_nothing(home: Path, logs: Path) -> None:
    call(home, logs)
    result = call(home, logs)
    assert (row(result, "stored"), row(result, "known already")) == ("0", "2")
    assert "nothing was new" in row(result, " batch ")


@pytest.mark.parametrize(
    ("grant", "more", "culprit"),
    [
        ("nobody", [], "nobody"),
        ("workshop-logs", ["--format", "csv"], "csv"),
        ("workshop-logs", ["no-such-folder"], "no-such-folder"),
    ],
)
def test_what_is_refused_leaves_no_batch(home: Path, logs: Path, grant: str, more: list[str], culprit: str) -> None:
    result = call(home, logs, *more, grant=grant)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert culprit in result.stderr
    assert not (home / "store" / "workshop").exists()


def test_canaries_and_personal_data_are_set_aside_and_never_shown(home: Path, logs: Path, tmp_path: Path) -> None:
    words = ("blue-heron-at-dawn", "write to ann@acme.io")
    lines = [json.dumps({"messages": [{"role": "user", "content": word}]}) + "\n" for word in words]
    logs.write_text(logs.read_text() + "".join(lines))
    canaries = tmp_path / "canaries.txt"
    canaries.write_text("blue-heron-at-dawn\n\n")
    result = call(home, logs, "--canaries", str(canaries), "--personal", "quarantine", "--workers", "1")
    assert result.exit_code == 0, result.output
    assert "canaries in force for workshop: 1" in result.stdout
    assert (row(result, "with a secret"), row(result, "with personal data")) == ("1", "1")
    assert (row(result, "set aside for personal_data"), row(result, "personal data: email")) == ("1", "1")
    assert "with 1 process" in row(result, " time ")
    assert not any(word in result.output for word in ("heron", "acme.io"))
    # Given once, they stay in force.
    assert row(call(home, logs), "with a secret") == "1"
