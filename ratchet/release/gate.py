"""The gate: a pure function of digested inputs, with one rule per line and no way around any of them.

It has no clock and reads nothing: the caller passes the time and the rights as they stand at this moment. Inputs that
do not belong together are an error, never a decision. A rule that cannot be computed blocks like one that failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from ratchet.contracts.canonical import digest
from ratchet.errors import IntegrityError
from ratchet.evaluation.scorecard import Scorecard
from ratchet.release.decision import Decision
from ratchet.release.inputs import Case, GateInputs
from ratchet.release.rules import RULES


def decide(
    candidate: Scorecard,
    incumbent: Scorecard,
    inputs: GateInputs,
    *,
    others: Sequence[Scorecard] = (),
    decided_at: datetime,
    decided_by: str,
) -> Decision:
    """Apply every rule to one candidate.

    Args:
        candidate: its scorecard, compared with the incumbent.
        incumbent: the incumbent's scorecard from the same evaluation.
        inputs: everything else, as it stands now.
        others: scorecards of the other candidates that opened the held-out set in this evaluation; Holm covers them.
        decided_at: time with zone.
        decided_by: person or rule.

    Raises:
        IntegrityError: the inputs do not belong to one manifest, lock, evaluation and pair of policies.
    """
    _refuse_mixed(candidate, incumbent, inputs, others)
    assert candidate.comparison is not None
    case = Case(candidate, incumbent, candidate.comparison, tuple(others), inputs)
    found = tuple(rule(case) for rule in RULES)
    blocking = {rule.on_failure for rule in found if rule.passed is not True}
    return Decision.issue(
        state="reject" if "reject" in blocking else "review" if blocking else "promote",
        candidate=candidate.name,
        candidate_digest=candidate.policy_digest,
        incumbent=incumbent.name,
        incumbent_digest=incumbent.policy_digest,
        incumbent_version=inputs.incumbent.version if inputs.incumbent else None,
        manifest_digest=inputs.manifest_digest,
        rules=found,
        reasons=tuple(rule.reason for rule in found if rule.passed is not True),
        inputs=_digests(case),
        decided_at=decided_at,
        decided_by=decided_by,
    )


def _refuse_mixed(candidate: Scorecard, incumbent: Scorecard, inputs: GateInputs, others: Sequence[Scorecard]) -> None:
    comparison = candidate.comparison
    checks = [
        ("candidate's comparison", comparison and comparison.reference_digest, incumbent.policy_digest),
        ("candidate's incumbent rows", candidate.incumbent_rows_digest, incumbent.rows_digest),
        ("minimum effect", comparison and comparison.paired_difference.minimum_effect, inputs.limits.minimum_effect),
        ("harness of the candidate", inputs.permissions.candidate_digest, candidate.harness_digest),
        ("harness of the incumbent", inputs.permissions.incumbent_digest, incumbent.harness_digest),
    ]
    for card in (candidate, incumbent, *others):
        checks += [
            (f"manifest of scorecard {card.name!r}", card.manifest_digest, inputs.manifest_digest),
            (f"split lock of scorecard {card.name!r}", card.lock_digest, inputs.lock_digest),
            (f"evaluation of scorecard {card.name!r}", card.evaluation, candidate.evaluation),
            (f"prices of scorecard {card.name!r}", card.prices_digest, candidate.prices_digest),
        ]
    checks += [(f"rows behind {card.name!r}", card.incumbent_rows_digest, incumbent.rows_digest) for card in others]
    if inputs.contamination:
        checks.append(("lock of the contamination certificate", inputs.contamination.lock_digest, inputs.lock_digest))
    if inputs.reward_audit:
        checks.append(("reward of the exploitation audit", inputs.reward_audit.subject_digest, inputs.reward_digest))
    if inputs.policy_audit:
        checks.append(("policy of the exploitation audit", inputs.policy_audit.subject_digest, candidate.policy_digest))
    for what, seen, wanted in checks:
        if seen != wanted:
            raise IntegrityError(
                what,
                seen=seen,
                rule=f"the inputs of a decision belong together, and this one should be {wanted!r}",
                remedy="build the inputs from one manifest, lock and evaluation",
            )


def _digests(case: Case) -> dict[str, str]:
    inputs = case.inputs
    found = {
        "manifest": inputs.manifest_digest,
        "split_lock": inputs.lock_digest,
        "reward": inputs.reward_digest,
        "limits": digest(inputs.limits),
        "gate_inputs": digest(inputs),
        f"scorecard:{case.candidate.name}": case.candidate.digest,
        f"scorecard:{case.incumbent.name}": case.incumbent.digest,
        f"rows:{case.candidate.name}": case.candidate.rows_digest,
        f"rows:{case.incumbent.name}": case.incumbent.rows_digest,
        "permissions": digest(inputs.permissions),
    }
    found |= {f"scorecard:{card.name}": card.digest for card in case.others}
    found |= {f"right:{right.grant_id}": right.digest for right in inputs.rights}
    found |= {f"judge:{judge.name}": judge.digest for judge in inputs.judges}
    if inputs.incumbent:
        found["incumbent"] = inputs.incumbent.digest
    if inputs.rights_head:
        found["rights_ledger"] = inputs.rights_head
    if inputs.contamination:
        found["contamination"] = inputs.contamination.digest
    if inputs.reward_audit:
        found["reward_audit"] = inputs.reward_audit.digest
    if inputs.policy_audit:
        found["policy_audit"] = inputs.policy_audit.digest
    return dict(sorted(found.items()))
