"""A task that is withdrawn at the command line is gone from the splits at once, and nothing from before stands in."""

from __future__ import annotations

from pathlib import Path

import pytest
from loop_world import MANIFEST
from typer.testing import CliRunner, Result

from ratchet.cli.main import app
from ratchet.errors import ContaminationError
from ratchet.loop import data
from ratchet.loop.context import open_run


def call(home: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["splits", *arguments, "--home", str(home)])


def test_a_withdrawn_task_supersedes_the_lock_of_the_experiment(ready: Path) -> None:
    with open_run(ready, MANIFEST) as run:
        before, gone = run.lock, run.heldout_tasks()[0].task_id
        policies = [policy for section in MANIFEST.methods for policy in section.data.policies]
        dataset = data.demonstrations(run, policies, accepted_only=True, purpose="train_sft")
        old = data.certificate(run, dataset)
    done = call(ready, "withdraw", MANIFEST.run_id, gone, "--by", "ann", "--reason", "its licence ended")
    assert done.exit_code == 0, done.output
    assert "version 2" in done.stdout
    shown = call(ready, "show", MANIFEST.run_id).stdout
    assert shown == f"{done.stdout}  held-out set opened 0 times, for 0 candidates\n"
    with open_run(ready, MANIFEST) as run:
        assert (run.lock.version, run.lock.supersedes, run.lock.comparable) == (2, before.digest, False)
        assert len(run.heldout_tasks()) == len(before.heldout) - 1
        assert gone not in {task.task_id for task in run.heldout_tasks()}
        assert gone in data.split_lock(run).summary
        with pytest.raises(ContaminationError, match="for the split lock"):
            old.certificate.require(run.lock.digest, old.corpus)
        new = data.certificate(run, dataset)
        new.certificate.require(run.lock.digest, new.corpus)


def test_a_task_that_the_lock_does_not_have_is_refused_by_name(ready: Path) -> None:
    done = call(ready, "withdraw", MANIFEST.run_id, "nothing", "--by", "ann", "--reason", "why not")
    assert done.exit_code == 2
    assert "has no 'nothing'" in done.stderr
