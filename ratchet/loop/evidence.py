"""Gathering the evidence of a decided version: every file that the decision rests on, with its SHA-256, in one bundle.

Trajectories and tasks are not among them: they may have to be erased, and lock, datasets and certificates name each of
them by digest.
"""

from __future__ import annotations

from collections.abc import Iterator

from ratchet.contracts.canonical import canonical_json, digest_bytes
from ratchet.contracts.policy import Policy
from ratchet.loop.auditing import AGAIN, FIRST, audit_place, open_audit, open_audit_again
from ratchet.loop.context import Run
from ratchet.loop.incumbent import ancestors, origin, pin
from ratchet.loop.judge import open_calibration, place
from ratchet.loop.judging import candidates, evaluation_plan, open_policy_audit, policies, row_store, scorecards
from ratchet.loop.leaving_out import all_left_out
from ratchet.loop.leaving_out import place as left_out_place
from ratchet.loop.lineage import descent
from ratchet.release.decision import Decision
from ratchet.release.evidence import EvidenceBundle, EvidenceFile, Role, bundle_evidence
from ratchet.release.records import Version
from ratchet.splits import open_lock
from ratchet.store.base import listing

PLAN = "plan.json"
RIGHT = "right:"
"""How the digests of grants are named among the inputs of a decision."""
REUSED_NAMES = ("incumbent",)
"""Policies that this run knows but did not make: their records are those of the run that did."""


def bundled(run: Run, version: Version, decision: Decision) -> EvidenceBundle:
    """Gather the evidence of a decided version, as it was decided on: neither approvals nor a certificate yet."""
    run.store.create_same(run.name(PLAN), canonical_json(evaluation_plan(run)).encode())
    rights = {name.removeprefix(RIGHT): one for name, one in decision.inputs.items() if name.startswith(RIGHT)}
    return bundle_evidence(
        version,
        run.manifest,
        decision,
        split_lock=run.lock.digest,
        datasets={policy.name: policy.training["dataset"] for policy in descent(run, version.policy)},
        grants=rights,
        scorecards={card.name: card.digest for card in scorecards(run)},
        further={
            "reward_audit": open_audit(run).digest,
            "reward_audit_after": open_audit_again(run).digest,
            "policy_audit": open_policy_audit(run, version.policy.name).digest,
            "incumbent": pin(run).digest,
        },
        files=[
            EvidenceFile(role=role, about=about, name=name, sha256=digest_bytes(run.store.read(name)))
            for role, about, name in _named(run, version, decision)
        ]
        + _checkpoint(run, version.policy),
    )


def gate_inputs_name(run: Run, digest: str) -> str:
    """Place of the inputs that a decision was taken on, by their digest."""
    return run.name("gate_inputs", f"{digest}.json")


def _named(run: Run, version: Version, decision: Decision) -> Iterator[tuple[Role, str, str]]:
    """Role, subject and place of every object of the evidence but the checkpoint."""
    experiment = run.manifest.experiment
    yield "manifest", experiment, run.name("manifest.json")
    yield "split_lock", experiment, _lock_name(run)
    yield "reward_audit", "before", run.name(audit_place(run, FIRST))
    yield "reward_audit", "after", run.name(audit_place(run, AGAIN))
    if open_calibration(run) is not None:
        yield "calibration", experiment, run.name(place(run, "calibration.json"))
    yield "incumbent", experiment, run.name("incumbent.json")
    yield "plan", experiment, run.name(PLAN)
    yield "gate_inputs", experiment, gate_inputs_name(run, decision.inputs["gate_inputs"])
    yield "decision", experiment, run.name("decision.json")
    for policy in descent(run, version.policy):
        yield from _learned(run, policy)
    source = origin(run, version.policy)
    for one in ancestors(run, source) if source else ():
        if one.dataset:
            yield "dataset", one.policy.name, f"experiments/{one.run_id}/datasets/{one.dataset.digest}.json"
    for policy in candidates(run):
        yield "policy_audit", policy.name, run.name("policy_audits", f"{policy.name}.json")
    for gone in all_left_out(run):
        yield "left_out", gone.name, left_out_place(run, gone.name)
    what = evaluation_plan(run)
    for policy in policies(run):
        if policy.name not in REUSED_NAMES:
            yield "policy", policy.name, run.name("policies", policy.name, "policy.json")
        yield "scorecard", policy.name, run.name("scorecards", f"{policy.name}.json")
        for name in row_store(run, policy, what).parts():
            yield "rows", policy.name, name


def _learned(run: Run, policy: Policy) -> Iterator[tuple[Role, str, str]]:
    """What one policy of the candidate's descent learned from, and that it was clean."""
    facts = policy.training
    yield "dataset", policy.name, run.name("datasets", f"{facts['dataset']}.json")
    yield "training", policy.name, facts["record"]
    for name in (facts["certificate"], *facts.get("ancestor_certificates", ())):
        yield "contamination", policy.name, name


def _checkpoint(run: Run, policy: Policy) -> list[EvidenceFile]:
    files = listing(run.store.folder(policy.checkpoint))
    return [
        EvidenceFile(role="checkpoint", about=policy.name, name=f"{policy.checkpoint}/{name}", sha256=value)
        for name, value in files.items()
    ]


def _lock_name(run: Run) -> str:
    """The version of the lock that is in force."""
    names = run.store.names(run.name("splits"))
    return next(name for name in names if open_lock(run.store, name).digest == run.lock.digest)
