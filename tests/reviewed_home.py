"""A real home in which a version waits for a person: tasks, checkpoints, serving qualification and projection are real.

What a full loop would take minutes for, a candidate that the gate lets pass, is made at once: the baseline with changed
weights, and a decision issued on it. `python tests/reviewed_home.py HOME` makes one.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from loop_world import make_tasks, small_manifest
from release_world import a_decision

from ratchet.contracts.policy import Policy
from ratchet.loop import data, learning
from ratchet.loop.context import Run, open_run
from ratchet.loop.qualifying import qualify_version
from ratchet.policies.checkpoint import load, save
from ratchet.release.evidence import bundle_evidence, write_bundle
from ratchet.release.ledger import Ledger
from ratchet.release.records import Version
from resources.mlflow_models import PolicyCard
from resources.registry import Registry

MANIFEST = small_manifest(**{"release.authorised_rule": "none", "release.four_eyes": True})
NOISE = 0.02


def reviewed_home(home: Path) -> Version:
    """Make it; returns the version."""
    with open_run(home, MANIFEST) as run:
        make_tasks(run)
        data.task_catalogue(run)
        data.split_lock(run)
        learning.baseline_policy(run)
        baseline = learning.open_policy(run, "baseline")
        version, ledger = _register(run, baseline), Ledger.of(home)
        decision = a_decision(MANIFEST, version.policy, baseline, "review")
        ledger.apply(version, decision)
        record = qualify_version(run, version, by="rule:gate")
        assert record.passed, record.reasons
        bundle = bundle_evidence(
            version, MANIFEST, decision, split_lock="a" * 64, datasets={}, grants={}, scorecards={"sft": "b" * 64}
        )
        write_bundle(run.store, bundle)
        page = home / "report.html"
        page.write_text("<h1>Report of a version that waits</h1>")
        card = PolicyCard(
            version.policy,
            MANIFEST.digest,
            {"largest_difference_nats": record.largest_difference, "probes": float(len(record.probes))},
            {"method": "sft", "experiment": MANIFEST.run_id},
            report=page,
            description=f"sft, the baseline with weights moved by {NOISE}, in experiment `{MANIFEST.run_id}`.\n\n"
            f"Tried by the serving engine on {len(record.probes)} validation prompts: the largest difference to the "
            f"trainer is {record.largest_difference:.2g} nats.",
        )
        Registry.of(home).project(ledger, MANIFEST.tenant, MANIFEST.experiment, [card])
    return version


def _register(run: Run, baseline: Policy) -> Version:
    import torch

    model, tokenizer = load(run.store.folder(baseline.checkpoint))
    torch.manual_seed(0)
    with torch.no_grad():
        for weights in model.parameters():
            weights.add_(NOISE * torch.randn_like(weights))
    place = run.name("policies", "sft", "checkpoint")
    with tempfile.TemporaryDirectory() as folder:
        save(model, tokenizer, Path(folder))
        weights_digest = run.store.publish_folder(Path(folder), place)
    policy = Policy(name="sft", method="sft", checkpoint=place, weights_digest=weights_digest, harness=baseline.harness)
    return Ledger.of(run.home).register(MANIFEST, policy, by=MANIFEST.author)


if __name__ == "__main__":
    print(reviewed_home(Path(sys.argv[1])).id)
