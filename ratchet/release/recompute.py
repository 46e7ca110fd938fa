"""What `ratchet verify` computes again from the files of the evidence; each function names the first difference.

Figures are held to the last digit. A scorecard that another processor sums in another order may differ in the last
bits: that is told as rounding, up to a relative difference of 1e-9, and is no failure.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from ratchet.contracts.canonical import canonical_json, digest, digest_bytes
from ratchet.contracts.manifest import Manifest
from ratchet.contracts.policy import Policy
from ratchet.errors import IntegrityError
from ratchet.evaluation.curves import learning_curves
from ratchet.evaluation.economics import Investment, training_cost
from ratchet.evaluation.rows import EvaluationPlan, EvaluationRow, RowStore
from ratchet.evaluation.scorecard import Scorecard, read_scorecard, scorecard
from ratchet.policies.record import read_left_out, read_policy
from ratchet.release.decision import Decision, read_decision
from ratchet.release.erasures import REMEDY, name_key, stated
from ratchet.release.evidence import EvidenceBundle, EvidenceFile, Role
from ratchet.release.gate import decide
from ratchet.release.inputs import GateInputs
from ratchet.rewards.audit import reopen_audit
from ratchet.rewards.policy_audit import audit_policy, reopen_policy_audit
from ratchet.rights import Right, reopen
from ratchet.splits import open_certificate, open_lock
from ratchet.store import Store
from ratchet.store.base import file_digest

T = TypeVar("T")
RightAsOf = Callable[[str, str, datetime], Right]
"""Grant, head of the rights ledger, time: the right as it was seen then."""
ROUNDING = 1e-9
"""Relative difference of two figures up to which it is a matter of the processor."""
RIGHT = "right:"


class Opened:
    """The files of a bundle, opened."""

    def __init__(self, store: Store, bundle: EvidenceBundle, rights: RightAsOf, gone: Mapping[str, str]) -> None:
        """Look at the files that `bundle` lists in `store`.

        Args:
            store: where they are.
            bundle: which they are.
            rights: gives a right as of a head of its ledger.
            gone: what was erased lawfully, see `erasures.erased`.
        """
        self.store, self.bundle, self.rights, self._gone = store, bundle, rights, gone

    def read(self, file: EvidenceFile) -> bytes:
        """The bytes of a file."""
        return self.store.read(file.name)

    def sha256(self, file: EvidenceFile) -> str:
        """SHA-256 of a file as it is now; those of the checkpoint, which may be large, are read in pieces."""
        if file.role != "checkpoint":
            return digest_bytes(self.read(file))
        found = self.folder / file.name.removeprefix(f"{self.bundle.policy['checkpoint']}/")
        if not found.is_file():
            raise IntegrityError(file.name, rule="it must be in the checkpoint", remedy=REMEDY)
        return file_digest(found)

    @cached_property
    def folder(self) -> Path:
        """The candidate's checkpoint folder."""
        return self.store.folder(str(self.bundle.policy["checkpoint"]))

    def one(self, role: Role, about: str | None = None) -> EvidenceFile:
        """The only file of a role. Raises IntegrityError where there is none or more."""
        found = self.bundle.of(role, about)
        if len(found) != 1:
            raise IntegrityError(
                f"{role.replace('_', ' ')} of {about or 'the experiment'} in the bundle",
                seen=len(found),
                rule="there must be one file",
                remedy=REMEDY,
            )
        return found[0]

    @cached_property
    def manifest(self) -> Manifest:
        """The manifest, as this release reads it."""
        return _parsed(Manifest.model_validate, self.bundle.manifest, "manifest in the bundle")

    @cached_property
    def decision(self) -> Decision:
        """The decision, as stored."""
        file = self.one("decision")
        return read_decision(self.read(file), file.name)

    @cached_property
    def policies(self) -> dict[str, Policy]:
        """The policies that the run made, by name."""
        return {one.about: read_policy(self.read(one), one.name) for one in self.bundle.of("policy")}

    @cached_property
    def pinned(self) -> Policy | None:
        """The incumbent that came from another run; None where the baseline was the incumbent."""
        file = self.one("incumbent")
        held = stated(self.read(file), file.name)[1]["policy"]
        return _parsed(Policy.model_validate, held, file.name) if held else None

    def policy(self, name: str) -> Policy:
        """A policy of the evaluation, by its name in it."""
        found = self.policies.get(name) or self.pinned
        if found is None or found.name != name:
            raise IntegrityError(f"policy {name!r}", rule="the bundle must have its record", remedy=REMEDY)
        return found

    @cached_property
    def chain(self) -> list[Policy]:
        """The candidate and the policies of its run that it started from, the nearest first."""
        return [self.policies[name] for name in _ordered(self.bundle)]

    @cached_property
    def plan(self) -> EvaluationPlan:
        """The plan of the held-out evaluation."""
        file = self.one("plan")
        return _parsed(EvaluationPlan.model_validate_json, self.read(file), file.name)

    @cached_property
    def cards(self) -> dict[str, Scorecard]:
        """Scorecards by the name of their policy, as stored."""
        return {one.about: read_scorecard(self.read(one), one.name) for one in self.bundle.of("scorecard")}

    @cached_property
    def rows(self) -> dict[str, list[EvaluationRow]]:
        """All rows of every policy."""
        return {
            name: RowStore(self.store, self.plan, card.policy_digest, card.harness_digest).complete()
            for name, card in self.cards.items()
        }

    def erased(self, name: str) -> str | None:
        """Under which certificate a file is gone, in words; None where it is there, or is missing without one."""
        return None if self.store.exists(name) else self._gone.get(name_key(name))

    @property
    def incumbent(self) -> str:
        """Name of the policy that the others were compared with."""
        return self.decision.incumbent


def manifest(evidence: Opened) -> str:
    """Manifest and reward: one text in bundle, file and decision."""
    bundle, file = evidence.bundle, evidence.one("manifest")
    same(f"manifest {file.name}", json.loads(evidence.read(file)), bundle.manifest)
    same("digest of the manifest", digest(bundle.manifest), bundle.manifest_digest)
    same("manifest of the decision", evidence.decision.manifest_digest, bundle.manifest_digest)
    same("reward in the bundle", bundle.reward, bundle.manifest["reward"])
    same("digest of the reward", digest(bundle.reward), bundle.reward_digest)
    for one in bundle.of("reward_audit"):
        same(
            f"reward of {one.name}", reopen_audit(evidence.read(one), one.name).spec_digest, _input(evidence, "reward")
        )
    before = reopen_audit(evidence.read(evidence.one("reward_audit", "before")), "reward audit")
    same("reward audit of the decision", _input(evidence, "reward_audit"), before.digest)
    after = reopen_audit(evidence.read(evidence.one("reward_audit", "after")), "reward audit after training")
    same("reward audit after training in the bundle", bundle.further["reward_audit_after"], after.digest)
    pinned = evidence.one("incumbent")
    same("incumbent of the bundle", stated(evidence.read(pinned), pinned.name)[0], bundle.further["incumbent"])
    same("incumbent of the decision", _input(evidence, "incumbent"), bundle.further["incumbent"])
    return f"{bundle.manifest['experiment']} {bundle.manifest_digest[:12]}, reward {bundle.reward_digest[:12]}"


def splits(evidence: Opened) -> str:
    """Split lock, and the contamination certificates of everything that was learned from."""
    file = evidence.one("split_lock")
    lock = open_lock(evidence.store, file.name)
    same(f"split lock {file.name}", lock.digest, evidence.bundle.split_lock)
    same("split lock of the decision", _input(evidence, "split_lock"), lock.digest)
    own = [policy.training["certificate"] for policy in evidence.chain]
    names = own + [name for one in evidence.chain for name in one.training.get("ancestor_certificates", ())]
    known = dict(zip(own, (policy.training["certificate_digest"] for policy in evidence.chain), strict=True))
    gone = [name for name in names if evidence.erased(name)]
    opened = {name: open_certificate(evidence.store, name) for name in names if name not in gone}
    for name, one in opened.items():
        same(f"lock of certificate {name}", one.lock_digest, lock.digest)
        if name in known:
            same(f"certificate {name}", one.digest, known[name])
    found = sum(one.open_findings for one in opened.values())
    told = f"{lock.digest[:12]}, {len(opened)} contamination certificates, {found} open findings"
    digests = [opened[name].digest if name in opened else known.get(name) for name in names]
    if None in digests:
        return f"{told}; {len(gone)} were erased, so that their joint digest cannot be computed again"
    same("contamination of the decision", _input(evidence, "contamination"), digest(digests))
    return told + (f"; {len(gone)} were erased, and counted by their digest" if gone else "")


def datasets(evidence: Opened) -> str:
    """What was learned from, under rights that the ledger shows to have held then."""
    bundle, count = evidence.bundle, 0
    digests = {}
    for file in bundle.of("dataset"):
        dataset = reopen(evidence.read(file), file.name)
        digests[dataset.digest] = file.name
        for grant in dataset.grant_ids:
            if f"{grant}/{dataset.purpose}" not in bundle.grants:
                raise IntegrityError(f"grant {grant!r} of {file.name}", rule="the bundle must name it", remedy=REMEDY)
            right = evidence.rights(grant, dataset.ledger_head, dataset.authorised_at)
            right.require(purpose=dataset.purpose, tenant=dataset.tenant, base_model=dataset.base_model)
        count += len(dataset.records)
    for policy in evidence.chain:
        for named in (bundle.datasets[policy.name], policy.training["dataset"]):
            if named not in digests:
                raise IntegrityError(
                    f"dataset of {policy.name}", seen=named, rule="its file must be in the bundle", remedy=REMEDY
                )
    return f"{len(digests)} with {count} records, each under a right that held when it was authorised"


def grants(evidence: Opened) -> str:
    """Every grant, folded again from the ledger as it stood when the decision was taken."""
    head, at = _input(evidence, "rights_ledger"), evidence.decision.decided_at
    stated = {name.removeprefix(RIGHT): one for name, one in evidence.decision.inputs.items() if name.startswith(RIGHT)}
    for name in sorted(stated.keys() | evidence.bundle.grants.keys()):
        same(f"grant {name} in the bundle", evidence.bundle.grants.get(name), stated.get(name))
        grant_id = name.rsplit("/", 1)[0]
        same(f"grant {name}", digest(evidence.rights(grant_id, head, at)), stated[name])
    return f"{len(stated)} as the rights ledger had them at {at.isoformat(timespec='seconds')}"


def trained(evidence: Opened) -> str:
    """Records of policies and trainings: the candidate is the one that was trained, and paid for."""
    bundle = evidence.bundle
    own = evidence.policies.get(str(bundle.policy["name"]))
    same("policy of the bundle", own.model_dump(mode="json") if own else None, bundle.policy)
    assert own is not None
    same("policy digest of the bundle", own.digest, bundle.policy_digest)
    for file in bundle.of("training"):
        content = stated(evidence.read(file), file.name)[1]
        same(f"dataset in {file.name}", content["dataset"], evidence.policies[file.about].training["dataset"])
    for policy in evidence.chain:
        card = evidence.cards[policy.name]
        paid = training_cost(policy.training, evidence.manifest.prices)
        same(f"training cost of {policy.name}", card.cost.training, paid)
        same(f"policy behind scorecard {policy.name!r}", card.policy_digest, policy.digest)
    return f"{len(evidence.chain)} trained, {len(evidence.policies)} policies in all"


def plan(evidence: Opened) -> str:
    """The evaluation ran the held-out tasks of the lock, and no others."""
    lock = open_lock(evidence.store, evidence.one("split_lock").name)
    planned = {(task.task_id, task.task_digest) for task in evidence.plan.tasks}
    same("tasks of the plan", planned == set(lock.heldout), True)
    same("split lock of the plan", evidence.plan.lock_digest, lock.digest)
    same("reward of the plan", evidence.plan.reward_digest, _input(evidence, "reward"))
    for name, card in evidence.cards.items():
        same(f"plan of scorecard {name!r}", card.evaluation, evidence.plan.digest)
    return f"{len(planned)} held-out tasks, {len(evidence.plan.seeds)} seeds"


def scorecards(evidence: Opened) -> str:
    """Every scorecard and policy audit again from its rows."""
    bundle, rounded, figures = evidence.bundle, 0.0, 0
    same("scorecards of the bundle", {name: card.digest for name, card in evidence.cards.items()}, bundle.scorecards)
    for name, card in evidence.cards.items():
        again = _again(evidence, name, card)
        for place, old, new in _leaves(json.loads(canonical_json(card)), json.loads(canonical_json(again))):
            figures += 1
            rounded = max(rounded, _difference(f"{place} of scorecard {name!r}", old, new))
    before, reward = evidence.rows[evidence.incumbent], evidence.manifest.reward
    judge = reward.judge.rubric if reward.judge else None
    for file in bundle.of("policy_audit"):
        audit = reopen_policy_audit(evidence.read(file), file.name)
        rows = evidence.rows[file.about]
        new = audit_policy(rows, before, call_discount=reward.call_discount, judge=judge)
        for place, one, other in _leaves(json.loads(canonical_json(audit)), json.loads(canonical_json(new))):
            _difference(f"{place} of {file.name}", one, other)
        if file.about == bundle.policy["name"]:
            same("policy audit of the decision", _input(evidence, "policy_audit"), audit.digest)
    rows_count = sum(len(rows) for rows in evidence.rows.values())
    exact = "to the last digit" if not rounded else f"but for rounding of at most {rounded:.0e}"
    return f"{len(evidence.cards)} from {rows_count} rows, {figures} figures the same {exact}"


def decided(evidence: Opened) -> str:
    """The decision again from its inputs: every rule, figure and reason."""
    file, old = evidence.one("gate_inputs"), evidence.decision
    same("decision of the bundle", evidence.bundle.decision_digest, old.digest)
    same("decision in full in the bundle", evidence.bundle.decision, old.model_dump(mode="json"))
    inputs = _parsed(GateInputs.model_validate_json, evidence.read(file), file.name)
    same(f"gate inputs {file.name}", digest(inputs), _input(evidence, "gate_inputs"))
    left_out = _left_out(evidence)
    names = [one.name for one in evidence.manifest.methods if one.name not in (old.candidate, *left_out)]
    same("candidates with neither a scorecard nor a reason", sorted(set(names) - evidence.cards.keys()), [])
    new = decide(
        evidence.cards[old.candidate],
        evidence.cards[old.incumbent],
        inputs,
        others=[evidence.cards[name] for name in names],
        decided_at=old.decided_at,
        decided_by=old.decided_by,
    )
    for place, one, other in _leaves(old.model_dump(mode="json"), new.model_dump(mode="json")):
        _difference(f"{place} of the decision", one, other)
    return f"{old.state}, {len(old.rules)} rules decided again to the same"


def _left_out(evidence: Opened) -> set[str]:
    """Names of the candidates that were not made, each by a record that says why, and that none was judged."""
    found = {read_left_out(evidence.read(file), file.name).name for file in evidence.bundle.of("left_out")}
    same("candidates that were left out, and judged", sorted(found & evidence.cards.keys()), [])
    return found


def _again(evidence: Opened, name: str, card: Scorecard) -> Scorecard:
    """A scorecard from its rows. What its training cost is taken from the card, and held against the records apart."""
    section, cost = evidence.manifest.evaluation, card.cost
    spent = (cost.training, cost.training_cumulative, cost.training_beyond_incumbent)
    stage, cumulative, beyond = (float(one) if isinstance(one, int | float) else 0.0 for one in spent)
    return scorecard(
        evidence.rows[name],
        None if name == evidence.incumbent else evidence.rows[evidence.incumbent],
        method=card.method,
        manifest_digest=evidence.bundle.manifest_digest,
        lock_digest=evidence.bundle.split_lock,
        prices=evidence.manifest.prices,
        training=Investment(stage=stage, cumulative=cumulative, beyond_incumbent=beyond),
        minimum_effect=section.minimum_effect,
        name=name,
        curves=learning_curves(evidence.policy(name).training.get("curve", ())),
        horizon_runs=evidence.manifest.release.horizon_runs,
        max_void_share=section.max_void_share,
        resamples=section.resamples,
        seed=evidence.manifest.seed,
    )


def _ordered(bundle: EvidenceBundle) -> list[str]:
    """Names of the candidate's descent, the candidate first: as their trainings are listed."""
    return [one.about for one in bundle.of("training")]


def _leaves(old: Any, new: Any, place: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Every figure and word of two JSON values side by side; what only one has is beside None."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            yield from _leaves(old.get(key), new.get(key), f"{place}.{key}".lstrip("."))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for number, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from _leaves(one, other, f"{place}[{number}]")
    else:
        yield place, old, new


def _difference(what: str, old: Any, new: Any) -> float:
    """Relative difference of two leaves. Raises IntegrityError where it is more than rounding."""
    if old == new:
        return 0.0
    floats = isinstance(old, float) and isinstance(new, float)
    if floats and math.isclose(old, new, rel_tol=ROUNDING, abs_tol=ROUNDING):
        return abs(old - new) / max(abs(old), abs(new), 1.0)
    raise IntegrityError(what, seen=old, rule=f"computed again it is {new!r}", remedy=REMEDY)


def _input(evidence: Opened, name: str) -> str:
    """Digest of an input of the decision. Raises IntegrityError where the decision does not name it."""
    found = evidence.decision.inputs.get(name)
    if found is None:
        raise IntegrityError(
            f"input {name!r} of the decision", rule="it must be named, or it cannot be checked", remedy=REMEDY
        )
    return found


def _parsed(read: Callable[[Any], T], data: Any, source: str) -> T:
    try:
        return read(data)
    except ValidationError as error:
        raise IntegrityError(source, rule=f"it must parse ({error})", remedy=REMEDY) from None


def same(what: str, seen: object, wanted: object) -> None:
    """Raise IntegrityError naming `what` where the two differ."""
    if seen != wanted:
        raise IntegrityError(what, seen=_short(seen), rule=f"it must be {_short(wanted)!r}", remedy=REMEDY)


def _short(value: object) -> object:
    text = str(value)
    return value if len(text) <= 80 else f"{text[:60]}..."
