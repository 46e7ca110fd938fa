"""A released version with everything that it stands on: the real loop, but for training, whose outcome is set.

Tasks, lock, logs, certificates, audits, scorecards, gate, ledger and signatures are made by the loop. The candidate's
checkpoint is the starter with larger weights, and the held-out rows are given: it solves what the baseline does not.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from loop_world import SMALL, make_tasks, small_manifest
from signed_world import trusted
from typer.testing import CliRunner

from ratchet.cli.main import app
from ratchet.contracts.policy import Policy
from ratchet.errors import RatchetError, SignatureError
from ratchet.evaluation.rows import EvaluationRow
from ratchet.loop import auditing, data, deciding, intake, judging, learning
from ratchet.loop.affected import approve
from ratchet.loop.context import Run, open_run
from ratchet.loop.lineage import record_training
from ratchet.policies.checkpoint import load, save
from ratchet.policies.record import seal
from ratchet.release.evidence import EvidenceBundle, latest_bundle
from ratchet.release.export import home_source
from ratchet.release.keys import KEY
from ratchet.release.ledger import Ledger
from ratchet.release.records import Version
from ratchet.release.verify import Finding, failed, verify
from ratchet.store import open_store

MANIFEST = small_manifest(
    **{
        "logs": [{"agent": "expert", "episodes": 24, "format": "atif"}],
        "methods": [SMALL["methods"][0]],
        "author": "Ada",
        "release.owner": "Olga",
        "release.four_eyes": True,
        "release.signature": "required",
        "release.authorised_rule": "staging",
        "release.max_latency_ratio": 10.0,
        "release.max_cost_ratio": 10.0,
    }
)


def decide(home: Path) -> Run:
    """Make a home with a decision that promotes, and nothing registered yet."""
    with open_run(home, MANIFEST) as run:
        prepare(run)
        for policy, solved in ((judging.incumbent(run), 2), (train(run), 14)):
            answer(run, policy, solved)
        for stage in (
            judging.heldout_rows,
            judging.heldout_scorecard,
            judging.policy_audit,
            deciding.release_decision,
        ):
            stage(run)
    return run


def register(home: Path) -> Version:
    """Do what the decision says."""
    with open_run(home, MANIFEST) as run:
        deciding.registered_versions(run)
        return deciding.candidate_version(run)


def prepare(run: Run) -> None:
    """Every stage before the training."""
    make_tasks(run)
    for stage in (data.task_catalogue, data.split_lock, data.landing_logs):
        stage(run)
    intake.ingest_landing(run.home, run.manifest.tenant, run.now())
    for stage in (data.contamination_report, auditing.reward_audit, learning.baseline_policy):
        stage(run)


def train(run: Run) -> Policy:
    """Put a candidate where the training would: dataset, certificate and record are the real ones."""
    parent = learning.open_policy(run, "baseline")
    dataset = data.demonstrations(run, ["expert"], accepted_only=True, purpose="train_sft")
    run.once(f"datasets/{dataset.digest}.json", dataset.to_bytes)
    certified = data.certificate(run, dataset)
    model, tokenizer = load(run.store.folder(parent.checkpoint))
    with torch.no_grad(), tempfile.TemporaryDirectory() as scratch:
        for weights in model.parameters():
            weights.mul_(1.1)
        save(model, tokenizer, Path(scratch))
        place = run.name("policies", "sft", "checkpoint")
        digest = run.store.publish_folder(Path(scratch), place)
    facts: dict[str, Any] = {
        "dataset": dataset.digest,
        "certificate": certified.name,
        "certificate_digest": certified.certificate.digest,
        "record": record_training(run, "sft", "sft", parent, dataset, reads=True),
        "validation": 0.9,
        "seconds": 12.5,
        "curve": [{"step": 1, "loss": 1.5, "validation_acceptance": 0.25}, {"step": 8, "loss": 0.7}],
    }
    made = parent.model_copy(
        update={
            "name": "sft", "method": "sft", "checkpoint": place, "weights_digest": digest, "parent": parent.digest,
            "training": facts,
        }
    )  # fmt: skip
    run.store.create(run.name("policies", "sft", "policy.json"), seal(made))
    return made


def answer(run: Run, policy: Policy, solved: int) -> None:
    """Give the policy's held-out rows, as an evaluation would have left them; it solves the first tasks."""
    what = judging.evaluation_plan(run)
    rows = [
        EvaluationRow(
            evaluation=what.digest, task_id=task.task_id, task_digest=task.task_digest, repo=task.repo,
            segment=task.segment, seed=seed, policy=policy.name, policy_digest=policy.digest,
            harness_digest=policy.harness.digest, status="accepted" if number < solved else "rejected", submitted=True,
            visible_passed=number < solved, reward=float(number < solved), calls=4, ok_calls=3, tokens_in=100 + number,
            tokens_out=7,
            sandbox_s=0.1 * number / 3, verifier_s=0.1, latency_s=0.5 + number / 7,
        )
        for number, task in enumerate(what.tasks)
        for seed in what.seeds
    ]  # fmt: skip
    judging.row_store(run, policy, what).append(rows)


class Made(NamedTuple):
    """A home whose version was refused unsigned, signed by hand, promoted by its rule, and approved by another."""

    home: Path
    version: Version
    key_id: str
    refused: str
    signed: str


def make(home: Path, keys: Path) -> Made:
    """Make such a home: the keys that it trusts are those in `keys`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(KEY, raising=False)
        decide(home)
        with pytest.raises(SignatureError) as refused:
            register(home)
        key = trusted(home, keys)
        patch.setenv(KEY, str(key.private))
        signed = CliRunner().invoke(app, ["keys", "sign", "sft", "--home", str(home)])
        version = register(home)
        approve(home, Ledger.of(home), version, by="Grace", reason="read the report", upto="canary", at=Run.now())
    return Made(home, version, key.key_id, str(refused.value), signed.output)


def look(home: Path, version: Version) -> list[Finding]:
    """What does not match in a home; where its record cannot even be read, what says so."""
    try:
        return failed(verify(home_source(home, version)))
    except RatchetError as error:
        return [Finding("source", False, str(error))]


def latest(home: Path, version: Version) -> EvidenceBundle:
    """The latest bundle of a version."""
    found = latest_bundle(open_store(home), version.id)
    assert found is not None
    return found
