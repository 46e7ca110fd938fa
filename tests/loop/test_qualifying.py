"""Serving qualification on a real checkpoint, a real sandbox and the run's own validation tasks."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from loop_world import MANIFEST
from release_world import a_decision
from typer.testing import CliRunner

from ratchet.cli.main import app
from ratchet.contracts.policy import Policy
from ratchet.errors import IntegrityError
from ratchet.loop.context import Run, open_run
from ratchet.loop.learning import open_policy
from ratchet.loop.qualifying import PROBES, qualify_version
from ratchet.policies.checkpoint import load, save
from ratchet.release.ledger import Ledger
from ratchet.release.records import Version
from ratchet.release.states import State


def register(run: Run, *, noise: float, name: str = "sft") -> Version:
    """The baseline with changed weights as a candidate; without noise only its folder is another one."""
    import torch

    baseline = open_policy(run, "baseline")
    model, tokenizer = load(run.store.folder(baseline.checkpoint))
    torch.manual_seed(0)
    with torch.no_grad():
        for weights in model.parameters():
            weights.add_(noise * torch.randn_like(weights))
    with tempfile.TemporaryDirectory() as folder:
        save(model, tokenizer, Path(folder))
        (Path(folder) / "adapter_note.txt").write_text("merged")
        digest = run.store.publish_folder(Path(folder), run.name("policies", name, "checkpoint"))
    policy = Policy(
        name=name,
        method="sft",
        checkpoint=run.name("policies", name, "checkpoint"),
        weights_digest=digest,
        harness=baseline.harness,
    )
    return Ledger.of(run.home).register(run.manifest, policy, by="Ada")


def test_a_checkpoint_that_is_served_as_it_was_trained_passes_and_opens_canary(ready: Path) -> None:
    with open_run(ready, MANIFEST) as run:
        version = register(run, noise=0.02)
        record = qualify_version(run, version, by="rule:gate")
        ledger = Ledger.of(ready)
        assert record.passed, record.reasons
        assert len(record.probes) == PROBES
        assert record.tokens > 2 * PROBES
        assert 0 < record.largest_difference <= 1e-4
        assert record.differing == PROBES
        assert record.served_digest == version.policy.weights_digest
        assert ledger.qualification(version) == record
        assert run.store.exists(run.name("qualifications", f"{record.digest}.json"))
        ledger.apply(version, a_decision(run.manifest, version.policy, open_policy(run, "baseline")))
        ledger.approve(version, by="Olga", reason="good", upto="canary")
        assert ledger.state(version) is State.CANARY


def test_an_export_that_answers_like_the_version_before_is_found_out(ready: Path) -> None:
    """As where an adapter was never applied: other files, the same answers."""
    with open_run(ready, MANIFEST) as run:
        version = register(run, noise=0.0)
        record = qualify_version(run, version, by="rule:gate")
    assert record.differing == 0
    assert not record.passed
    assert "no probe tells it from the version before" in record.reasons[0]
    said = CliRunner().invoke(app, ["qualify", "sft", "--by", "Olga", "--home", str(ready)])
    assert said.exit_code == 2
    assert "it did not pass" in said.output


def test_files_that_were_changed_are_not_even_loaded(ready: Path) -> None:
    with open_run(ready, MANIFEST) as run:
        version = register(run, noise=0.02)
        (run.store.folder(version.policy.checkpoint) / "adapter_note.txt").write_text("changed")
        with pytest.raises(IntegrityError, match="must have the digest"):
            qualify_version(run, version, by="rule:gate")
    assert Ledger.of(ready).qualification(version) is None
