"""`ratchet report` on runs that are not complete, and which run it means."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from ratchet.cli.main import app
from ratchet.cli.report import LANGUAGES, find_run, missing_stage
from ratchet.contracts.manifest_file import load_manifest
from ratchet.errors import RatchetError
from ratchet.evaluation.html import languages
from ratchet.loop.context import Run, open_run

ROOT = Path(__file__).resolve().parents[2]


def opened(home: Path, seed: int = 1) -> Run:
    """An experiment that was opened a moment after the one before it, and not run."""
    manifest = load_manifest(ROOT / "experiments" / "repair.yaml", fast=True, overrides={"seed": seed})
    run = open_run(home, manifest)
    os.utime(run.store.path(run.name("manifest.json")), (1000.0 + seed, 1000.0 + seed))
    return run


def call(home: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["report", *arguments, "--home", str(home)])


@pytest.mark.parametrize("how", [[], ["--json"], ["--html", "page.html"], ["--csv", "figures.csv"]])
def test_an_incomplete_run_is_refused_by_the_stage_that_is_missing(
    how: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = opened(tmp_path)
    result = call(tmp_path, *how)
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"error: run {run.manifest.run_id}: ")
    assert "task_catalogue is missing" in line
    assert result.stdout == ""
    assert not list(tmp_path.glob("*.html"))
    assert not list(tmp_path.glob("*.csv"))


def test_the_missing_stage_is_the_first_in_the_order_of_the_loop(tmp_path: Path) -> None:
    run = opened(tmp_path)
    order = []
    for name in (
        "tasks.jsonl", "splits/lock.json", "reward_audit.json", "policies/baseline/policy.json",
        "policies/sft/policy.json", "policies/dpo/policy.json", "policies/grpo/policy.json", "scorecards/baseline.json",
        "scorecards/sft.json", "scorecards/dpo.json", "scorecards/grpo.json", "policy_audits/sft.json",
        "policy_audits/dpo.json", "policy_audits/grpo.json", "decision.json", "evidence.json",
    ):  # fmt: skip
        order.append(missing_stage(run))
        run.store.create(run.name(name), b"{}")
    assert order[:3] == ["task_catalogue", "split_lock", "reward_audit"]
    assert order[4] == "sft policy"
    assert order[8] == "heldout_scorecard of sft"
    assert order[-3:] == ["policy_audit of grpo", "release_decision", "production_policy"]
    assert missing_stage(run) is None


def test_the_newest_run_is_meant_where_none_is_named(tmp_path: Path) -> None:
    opened(tmp_path, seed=2)
    newest = opened(tmp_path, seed=3)
    assert find_run(tmp_path, None) == newest.manifest.run_id
    assert find_run(tmp_path, "repair") == newest.manifest.run_id


def test_a_run_is_named_by_the_start_of_its_id(tmp_path: Path) -> None:
    older = opened(tmp_path, seed=2).manifest.run_id
    opened(tmp_path, seed=3)
    assert find_run(tmp_path, older[:-4]) == older


def test_an_unknown_run_is_told_the_known_ones(tmp_path: Path) -> None:
    known = opened(tmp_path).manifest.run_id
    with pytest.raises(RatchetError, match=known):
        find_run(tmp_path, "triage")


def test_an_empty_home_says_what_makes_a_run(tmp_path: Path) -> None:
    result = call(tmp_path)
    assert result.exit_code == 2
    assert "`ratchet run` makes one" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_language_that_the_page_lacks_is_refused_by_name(tmp_path: Path) -> None:
    result = call(tmp_path, "--html", str(tmp_path / "page.html"), "--language", "fr")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: --language is 'fr': it must be one of en, es")
    assert list(tmp_path.iterdir()) == []


def test_the_languages_are_those_of_the_page() -> None:
    assert [language.code for language in languages()] == list(LANGUAGES)
