"""The decision on the candidate that validation chose, its place in the release ledger, and the report."""

from __future__ import annotations

from typing import Any

from ratchet.contracts.canonical import canonical_json, digest
from ratchet.contracts.policy import Policy, widened
from ratchet.evaluation.audits import audits_entry
from ratchet.evaluation.html import release_page
from ratchet.evaluation.report import report
from ratchet.loop.affected import ended_grants, mark, refuse_affected
from ratchet.loop.auditing import changes, open_audit
from ratchet.loop.context import Run, Stage, stage
from ratchet.loop.evidence import bundled, gate_inputs_name
from ratchet.loop.incumbent import ancestors, origin, pin
from ratchet.loop.judge_heldout import judge_inputs
from ratchet.loop.judging import (
    candidates,
    comparisons,
    earlier_candidates,
    incumbent,
    open_policy_audit,
    scorecards,
)
from ratchet.loop.learning import open_policy
from ratchet.loop.lineage import descent, passed_on
from ratchet.loop.qualifying import qualify_version
from ratchet.loop.reporting import further, learned_from, rights_now
from ratchet.policies.checkpoint import verified
from ratchet.release.certificate import certify, write_certificate
from ratchet.release.decision import Decision, read_decision
from ratchet.release.evidence import with_approvals, write_bundle
from ratchet.release.gate import decide
from ratchet.release.inputs import (
    AuditInput,
    ContaminationInput,
    GateInputs,
    IncumbentInput,
    Limits,
    PermissionsInput,
    RightInput,
)
from ratchet.release.ledger import Ledger
from ratchet.release.records import Version
from ratchet.release.signing import sign_where_configured
from ratchet.release.states import PROMOTIONS
from ratchet.rewards.compose import spec_digest
from ratchet.rights import reopen
from ratchet.splits import open_certificate

CURVES = ("loss", "reward", "validation_acceptance", "entropy", "kl", "length", "invalid_share")
GATE = "rule:gate"


def chosen(run: Run) -> Policy:
    """The candidate that may be released: the best on validation, so that held-out tasks choose nothing."""
    allowed = {section.name for section in run.manifest.methods if section.candidate}
    found = [policy for policy in candidates(run) if policy.name in allowed]
    return max(found, key=lambda policy: policy.training["validation"])


def gate_inputs(run: Run, candidate: Policy) -> GateInputs:
    """Everything the gate looks at besides the scorecards, as it stands now."""
    manifest = run.manifest
    chain = descent(run, candidate)
    names = [policy.training["certificate"] for policy in chain]
    names += [name for policy in chain for name in policy.training.get("ancestor_certificates", ())]
    certificates = [open_certificate(run.store, name) for name in names]
    audit, behaviour = open_audit(run), open_policy_audit(run, candidate.name)
    first, held = incumbent(run), pin(run)
    return GateInputs(
        manifest_digest=manifest.digest,
        lock_digest=run.lock.digest,
        reward_digest=audit.spec_digest,
        limits=Limits(
            minimum_effect=manifest.evaluation.minimum_effect,
            max_latency_ratio=manifest.release.max_latency_ratio,
            max_cost_ratio=manifest.release.max_cost_ratio,
            max_segment_drop=manifest.release.max_segment_drop,
        ),
        incumbent=IncumbentInput(
            digest=held.digest,
            version=held.version,
            released_for=held.environment,
            evaluated_in=f"{manifest.environment.name} {manifest.environment.version}",
        ),
        contamination=ContaminationInput(
            digest=digest([one.digest for one in certificates]),
            lock_digest=certificates[0].lock_digest,
            passed=all(one.passed and one.lock_digest == run.lock.digest for one in certificates),
            findings=sum(one.open_findings for one in certificates),
            waived=tuple(waiver.finding_id for one in certificates for waiver in one.waivers),
        ),
        rights=_rights(run, chain),
        rights_head=run.rights.head,
        reward_audit=AuditInput(
            digest=audit.digest,
            subject_digest=audit.spec_digest,
            passed=audit.passed and not changes(run),
            failures=(*audit.failures, *changes(run)),
        ),
        policy_audit=AuditInput(
            digest=behaviour.digest,
            subject_digest=behaviour.policy_digest,
            passed=behaviour.passed,
            failures=behaviour.failures,
        ),
        permissions=PermissionsInput(
            incumbent_digest=first.harness.digest,
            candidate_digest=candidate.harness.digest,
            widened=tuple(widened(candidate.harness, run.environment.spec, first.harness)),
        ),
        earlier_candidates=earlier_candidates(run),
        judges=judge_inputs(run),
    )


def _rights(run: Run, chain: list[Policy]) -> tuple[RightInput, ...]:
    """Every grant behind the training data of a chain of policies, for each purpose, as the ledger has it now."""
    run.rights.refresh()
    found = []
    names = [run.name("datasets", f"{policy.training['dataset']}.json") for policy in chain]
    source = origin(run, chain[0])
    learned = [reopen(run.store.read(name), name) for name in names]
    learned += [one.dataset for one in (ancestors(run, source) if source else ()) if one.dataset]
    for dataset in learned:
        for grant_id in dataset.grant_ids:
            right = run.rights.effective(grant_id, run.now())
            refusal = right.refusal(purpose=dataset.purpose, tenant=run.manifest.tenant, base_model=dataset.base_model)
            found.append(
                RightInput(
                    grant_id=f"{grant_id}/{dataset.purpose}",
                    digest=digest(right),
                    state=right.state if refusal is None else refusal[0],
                    valid=refusal is None,
                    rows=sum(grant == grant_id for _, grant in dataset.records),
                )
            )
    for grant_id in passed_on(run, chain):
        right = run.rights.effective(grant_id, run.now())
        valid = right.state == "active"
        state = right.state if valid else f"{right.state} (learned through another policy)"
        found.append(RightInput(grant_id=f"{grant_id}/passed_on", digest=digest(right), state=state, valid=valid))
    return tuple(found)


def open_decision(run: Run) -> Decision:
    """The decision, as stored."""
    return read_decision(run.store.read(run.name("decision.json")), run.name("decision.json"))


def release_decision(run: Run) -> Stage:
    """Let the gate decide on the chosen candidate, once."""

    def make() -> bytes:
        candidate = chosen(run)
        cards = {card.name: card for card in scorecards(run)}
        others = [cards[policy.name] for policy in candidates(run) if policy.name != candidate.name]
        inputs = gate_inputs(run, candidate)
        run.store.create_same(gate_inputs_name(run, digest(inputs)), canonical_json(inputs).encode())
        return decide(
            cards[candidate.name],
            cards[incumbent(run).name],
            inputs,
            others=others,
            decided_at=run.now(),
            decided_by=run.manifest.author,
        ).to_bytes()

    _, reused = run.once("decision.json", make)
    decision = open_decision(run)
    rows = [rule.model_dump(mode="json") for rule in decision.rules]
    summary = f"{decision.state} {decision.candidate}" + (
        f": {'; '.join(decision.reasons)}" if decision.reasons else ""
    )
    return stage("release_decision", reused, summary, decision.digest, rows, state=decision.state)


def candidate_version(run: Run) -> Version:
    """The ledger's version of the decided candidate."""
    return Version.of(run.manifest, open_policy(run, open_decision(run).candidate))


def registered_versions(run: Run) -> Stage:
    """Register the candidates in the release ledger and do what the decision says, once; certify what is promoted.

    Raises:
        RightsError: a right behind the candidate has ended since the decision, which would have promoted it.
        IntegrityError: the candidate's checkpoint is no longer the one that was judged.
        SignatureError: the manifest demands a signature and there is none; the version stays a candidate, and the
            stage goes on where it stopped once its bundle is signed.
    """
    ledger, decision, manifest = Ledger.of(run.home), open_decision(run), run.manifest
    for policy in candidates(run):
        ledger.register(manifest, policy, by=manifest.author, at=run.now())
    version = candidate_version(run)
    # What is promoted is what was judged: the files are looked at again, as nothing else would after the held-out runs.
    verified(run.store, version.policy.checkpoint, version.policy.weights_digest)
    for grant_id in ended_grants(run.home, manifest.tenant, run.now()):
        mark(run.home, grant_id, run.now())
    known = ledger.decision(version)
    if decision.state == "promote" and (known is None or known.digest != decision.digest):
        refuse_affected(run.home, version, run.now())
    if decision.state != "reject" and ledger.qualification(version) is None:
        qualify_version(run, version, by=GATE)
    new = not run.store.exists(run.name("evidence.json"))
    if new:
        # Before anything moves, for what must be signed to move is signed here, or by its owner elsewhere.
        bundle = bundled(run, version, decision)
        write_bundle(run.store, bundle)
        sign_where_configured(run.home, run.store, bundle, run.now())
    events = ledger.apply(version, decision, at=run.now())
    if new:
        if ledger.state(version) in PROMOTIONS:
            approvals = ledger.approvals(version, decision)
            certificate = certify(version, decision, {}, approvals=approvals, by=GATE, at=run.now())
            bundle = with_approvals(bundle, approvals, write_certificate(run.store, certificate).digest)
            write_bundle(run.store, bundle)
            sign_where_configured(run.home, run.store, bundle, run.now())
        run.store.create(run.name("evidence.json"), canonical_json({"bundle": bundle.digest}).encode())
    held = ledger.versions(manifest.tenant, manifest.experiment)
    rows = [
        {"version": identity[:12], "policy": one.policy.name, "policy_digest": one.policy.digest, "state": str(state)}
        for identity, (one, state) in held.items()
    ]
    summary = f"{version.policy.name} stands in {ledger.state(version)}"
    if decision.state == "reject":
        summary += f": the gate rejected it, {'; '.join(decision.reasons)}"
    return stage("registered_versions", not events, summary, rows, rows, state=str(ledger.state(version)))


def lineage(run: Run) -> dict[str, Any]:
    """Digests from the decided version down to the grants."""
    decision = open_decision(run)
    candidate = candidate_version(run).policy
    chain = descent(run, candidate)
    source = origin(run, candidate)
    return {
        "version": candidate_version(run).id,
        "policy": candidate.digest,
        "weights": candidate.weights_digest,
        "decision": decision.digest,
        "inputs": decision.inputs,
        "trained_from": [
            {
                "policy": policy.name,
                "digest": policy.digest,
                "dataset": policy.training["dataset"],
                "certificate": policy.training["certificate_digest"],
                **learned_from(run, policy),
            }
            for policy in chain
        ],
        "ancestors": [
            {"policy": f"{one.run_id}/{one.policy.name}", "digest": one.policy.digest, "dataset": one.dataset.digest}
            for one in (ancestors(run, source) if source else ())
            if one.dataset
        ],
        "incumbent": {"version": pin(run).version, "label": pin(run).label, "policy": incumbent(run).digest},
        "grants": [right.model_dump(mode="json") for right in _rights(run, chain)],
        "base": run.manifest.base.checkpoint,
        "reward": spec_digest(run.manifest.reward),
        "environment": run.environment.spec.digest,
    }


def report_of(run: Run) -> dict[str, Any]:
    """The report of the run as one JSON object: what `ratchet report --json` prints, kept once it is complete."""

    def make() -> Any:
        lock = run.lock
        return report(
            experiment=run.manifest.experiment,
            manifest_digest=run.manifest.digest,
            split_lock={
                "digest": lock.digest,
                "train": len(lock.train),
                "validation": len(lock.validation),
                "heldout": len(lock.heldout),
            },
            scorecards=scorecards(run),
            comparisons=comparisons(run),
            decision=open_decision(run).summary(),
            lineage=lineage(run),
            audits=audits_entry(
                open_audit(run),
                changes(run),
                {policy.name: open_policy_audit(run, policy.name) for policy in candidates(run)},
            ),
            further=further(run),
        )

    body, _ = run.once_json("report.json", make)
    state = Ledger.of(run.home).state(candidate_version(run))
    release = {"version": candidate_version(run).label, "state": str(state)}
    return {**body, "release": release, "rights_now": rights_now(run, body["lineage"])}


def curves_of(run: Run) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """Learning curves by quantity and policy, as (step, value)."""
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for policy in candidates(run):
        for row in policy.training["curve"]:
            for quantity in CURVES:
                if row.get(quantity) is not None:
                    found.setdefault(quantity, {}).setdefault(policy.name, []).append((row["step"], row[quantity]))
    return found


def report_html(run: Run, language: str = "en") -> str:
    """The release report as one self-contained page, opened in a language."""
    return release_page(report_of(run), curves_of(run), language)
