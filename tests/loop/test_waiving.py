"""A person waives findings at the command line: the next stage issues the certificate with the waivers in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from loop_world import MANIFEST
from partner_world import FIRST, land
from typer.testing import CliRunner, Result

from ratchet.cli.main import app
from ratchet.errors import ContaminationError
from ratchet.loop import data
from ratchet.loop.context import Run, open_run
from ratchet.rights import AuthorisedDataset


def call(home: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["contamination", *arguments, "--home", str(home)])


def leak(run: Run) -> str:
    """Take in a log that mentions the repo of a held-out task. Returns the repo."""
    repo = run.heldout_tasks()[0].repo

    def mention(record: dict) -> None:
        record["trajectory_id"] = "mentioning"
        record["steps"][0]["message"] += f"\nThe changelog says: unlike {repo}, this one sorts."

    land(run, "mentioning.jsonl", mention, FIRST)
    return repo


def dataset(run: Run) -> AuthorisedDataset:
    policies = [policy for section in run.manifest.methods for policy in section.data.policies]
    return data.demonstrations(run, policies, accepted_only=True, purpose="train_sft")


def test_findings_are_shown_waived_and_in_the_next_certificate(ready: Path) -> None:
    with open_run(ready, MANIFEST) as run:
        repo = leak(run)
        assert data.contamination_report(run).figures["passed"] == "False"
        blocked = data.certificate(run, dataset(run))
        with pytest.raises(ContaminationError):
            blocked.certificate.require(run.lock.digest, blocked.corpus)
        shown = json.loads(call(ready, "show", "--json").stdout)
        assert {row["document"] for row in shown} == {"mentioning"}
        text = call(ready, "show").stdout
        assert repo in text
        assert "the changelog says" in text
        assert f"{len(shown)} findings, 0 waived, {len(shown)} open." in text
        for row in shown:
            done = call(ready, "waive", row["finding_id"], "--by", "ann", "--reason", "a changelog names the project")
            assert done.exit_code == 0, done.output
        assert f"{len(shown)} waived, 0 open" in call(ready, "show").stdout

        report = data.contamination_report(run)
        assert (report.figures["passed"], report.figures["findings"], report.reused) == ("True", 0, True)
        assert f"{len(shown)} waived" in report.summary
        assert {row["waived"] for row in report.rows if "finding" in row} == {"ann: a changelog names the project"}
        opened = data.certificate(run, dataset(run))
        opened.certificate.require(run.lock.digest, opened.corpus)
        assert opened.name != blocked.name
        assert opened.certificate.digest != blocked.certificate.digest
        assert {one.reason for one in opened.certificate.waivers} == {"a changelog names the project"}
        assert data.certificate(run, dataset(run)) == opened


@pytest.mark.parametrize(
    ("finding", "by", "reason", "why"),
    [
        ("0123", "ann", "known", "names none"),
        ("", "ann", "known", "must name one finding"),
        ("real", " ", "known", "a person and a reason"),
        ("real", "ann", "", "a person and a reason"),
    ],
)
def test_a_waiver_without_finding_person_or_reason_is_refused(
    ready: Path, finding: str, by: str, reason: str, why: str
) -> None:
    with open_run(ready, MANIFEST) as run:
        leak(run)
        data.contamination_report(run)
        real = json.loads(call(ready, "show", "--json").stdout)[0]["finding_id"]
        done = call(ready, "waive", real if finding == "real" else finding, "--by", by, "--reason", reason)
        assert done.exit_code == 2
        assert why in done.stderr
        assert run.store.names(run.name("waivers")) == []


def test_a_finding_is_waived_once_and_a_damaged_waiver_opens_nothing(ready: Path) -> None:
    with open_run(ready, MANIFEST) as run:
        leak(run)
        data.contamination_report(run)
        real = json.loads(call(ready, "show", "--json").stdout)[0]["finding_id"]
        assert call(ready, "waive", real[:8], "--by", "ann", "--reason", "known").exit_code == 0
        again = call(ready, "waive", real, "--by", "bob", "--reason", "known")
        assert again.exit_code == 2
        assert "waived once" in again.stderr
        path = run.store.path(run.name("waivers", f"{real}.json"))
        path.write_bytes(path.read_bytes().replace(b'"by":"ann"', b'"by":""'))
        assert "must be a waiver" in call(ready, "show").stderr


def test_a_corpus_that_was_checked_is_not_built_again(ready: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_run(ready, MANIFEST) as run:
        first = data.contamination_report(run)

        def never(*_: object) -> None:
            raise AssertionError("the corpus was built")

        monkeypatch.setattr(data, "starter_corpus", never)
        monkeypatch.setattr(data, "document_of", never)
        again = data.contamination_report(run)
        assert again.reused
        assert again.digest == first.digest
