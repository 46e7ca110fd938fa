"""Policies: the baseline as it came, and every method of the manifest, trained in a process of its own."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ratchet.contracts.environment import Task
from ratchet.contracts.manifest import MethodSection
from ratchet.contracts.policy import Decoding, Harness, Policy, refuse_widened
from ratchet.contracts.trajectory import Trajectory
from ratchet.errors import NothingToLearn, TrainingError
from ratchet.intake import write_atif
from ratchet.loop.apart import train_apart
from ratchet.loop.auditing import audit_for_training
from ratchet.loop.context import Run, Stage, stage
from ratchet.loop.data import certificate, demonstrations, landing, teachers
from ratchet.loop.engines import sampled
from ratchet.loop.incumbent import NAME, certified_ancestors, pinned, start_version
from ratchet.loop.intake import ingest_landing
from ratchet.loop.judge_drift import require_calibrated
from ratchet.loop.leaving_out import leave_out, left_out, place, refuse_missing_start
from ratchet.loop.lineage import record_base, record_training
from ratchet.loop.playing import kept, played, told_of
from ratchet.methods import base as methods
from ratchet.policies.checkpoint import place_base, verified
from ratchet.policies.compute import compute
from ratchet.policies.eligibility import refuse_ineligible
from ratchet.policies.record import LeftOut, read_policy, seal
from ratchet.rights import recheck, reopen
from ratchet.rollouts.episodes import run_batch
from ratchet.rollouts.judged import Judged, Request, reasons_told
from ratchet.rollouts.record import to_trajectory
from ratchet.rollouts.rollout import Rollout

PURPOSES: dict[str, Any] = {
    "demonstrations": "train_sft", "pairs": "train_preference", "tasks": "train_rl", "cases": "evaluate",
}  # fmt: skip
ACTING = ("tasks", "cases")
"""What a method needs that acts, and reads no log."""
FACTS = ("step", "validation", "seconds", "stopped", "curve", "search", "bought", "regression", "trained_on")
"""What a policy's record keeps of its training."""
IMPORTS_S = 180.0
"""Time a training process may take beyond its budget: imports, a last validation, saving."""


def harness_of(run: Run) -> Harness:
    """The harness of the experiment: exactly the permissions of the manifest."""
    section = run.manifest.environment
    decoding = Decoding(
        temperature=run.manifest.evaluation.temperature, max_tokens_per_turn=section.limits.max_tokens_per_turn
    )
    codec = run.manifest.base.codec
    told = () if codec == "single_token" else run.environment.spec.tools
    return Harness(codec=codec, told=told, tools=section.tools, max_calls=section.limits.max_calls, decoding=decoding)


def open_policy(run: Run, name: str) -> Policy:
    """A policy of this run, by name: `baseline` or a candidate. Raises IntegrityError where its record was changed."""
    place = run.name("policies", name, "policy.json")
    return read_policy(run.store.read(place), place)


def policy_names(run: Run) -> list[str]:
    """Baseline and candidates, in the order of the manifest."""
    return ["baseline", *(section.name for section in run.manifest.methods)]


def baseline_policy(run: Run) -> Stage:
    """Bring in the base checkpoint with its harness, once. Raises EligibilityError where it may not be trained."""
    manifest = run.manifest
    refuse_ineligible(manifest.base, manifest.tenant)

    def make() -> bytes:
        place = run.name("policies", "baseline", "checkpoint")
        name, weights = place_base(manifest.base.checkpoint, run.store, place, seed=manifest.seed)
        harness = harness_of(run)
        refuse_widened("baseline", harness, run.environment.spec)
        record_base(run)
        return seal(
            Policy(name="baseline", method="baseline", checkpoint=name, weights_digest=weights, harness=harness)
        )

    _, reused = run.once("policies/baseline/policy.json", make)
    policy = open_policy(run, "baseline")
    return stage("baseline_policy", reused, f"{manifest.base.checkpoint}, policy {policy.digest[:12]}", policy.digest)


def train_method(run: Run, method: str) -> list[Stage]:
    """Train every candidate of the manifest that uses `method`, each once, in order."""
    return [_train(run, section) for section in run.manifest.methods if section.method == method]


def _train(run: Run, section: MethodSection) -> Stage:
    name = run.name("policies", section.name, "policy.json")
    reused = run.store.exists(name)
    if not reused:
        # The evaluation was opened without it, and what is judged does not grow by a candidate.
        settled = left_out(run, section.name) if pinned(run) else None
        try:
            if settled is None:
                _make(run, section)
        except NothingToLearn as error:
            settled = leave_out(run, section, error)
            return _told_left_out(settled, reused=False)
        if settled is not None:
            return _told_left_out(settled, reused=True)
    policy = open_policy(run, section.name)
    curve = policy.training["curve"]
    failed = _failed(run, section, policy) | _lost(run, policy)
    summary = (
        f"validation acceptance {policy.training['validation']:.3f} at step {policy.training['step']}, "
        f"{policy.training['seconds']:.0f} s of training, {policy.training['stopped']}"
    )
    summary += f"; {policy.training['search']['changes']}" if "search" in policy.training else ""
    summary += f"; {failed['invalid']} invalid episodes: {failed['reasons']}" if failed.get("invalid") else ""
    return stage(
        section.name, reused, summary, policy.digest, curve,
        validation=policy.training["validation"], seconds=policy.training["seconds"], parent=policy.parent, **failed,
    )  # fmt: skip


def _told_left_out(found: LeftOut, *, reused: bool) -> Stage:
    return stage(found.name, reused, f"left out: {found.reason}", found.digest, left_out=found.reason)


def _make(run: Run, section: MethodSection) -> None:
    """Train one candidate, and keep it. Raises NothingToLearn where there is nothing to train it on."""
    refuse_missing_start(run, section)
    parent = _parent(run, section)
    data, facts = _learning_data(run, section, parent)
    work = run.home / "work" / run.manifest.run_id
    outcome, facts["kept_apart"] = train_apart(
        run,
        "ratchet.loop.trainer:train",
        {
            "home": str(run.home),
            "run_id": run.manifest.run_id,
            "section": section.model_dump(mode="json"),
            "dataset": data,
            "certificate": facts["certificate"],
            "corpus": facts["corpus"],
            "output": str(work / section.name),
        },
        work / f"{section.name}.process",
        output=work / section.name,
        hard_wall_s=section.max_wall_s + IMPORTS_S,
        accelerate=compute().accelerate if methods.method(section.method).NEEDS not in ACTING else None,
    )
    # The right may have ended after the last step: then no candidate comes of it.
    recheck(run.rights, reopen(run.store.read(data), data), run.now())
    _publish(run, section, parent, outcome, facts)
    run.store.delete(place(run, section.name))


def _parent(run: Run, section: MethodSection) -> Policy:
    """The policy that a method starts from: one of this run, or the one in production."""
    held = start_version(run) if section.start == NAME else None
    if held is not None:
        refuse_widened(section.name, harness_of(run), run.environment.spec, held.harness)
    return held or open_policy(run, "baseline" if section.start in ("base", NAME) else section.start)


def _lost(run: Run, policy: Policy) -> dict[str, Any]:
    """The regression report of a candidate in short, and the tasks that it lost, with what they are."""
    report = policy.training.get("regression")
    if report is None:
        return {}
    tasks = {task.task_id: task for task in run.validation_tasks()}
    lost = [tasks[name] for name in report["lost"]]
    return {
        "start_validation": report["start"],
        "lost": len(lost),
        "gained": len(report["gained"]),
        "held": report["held"],
        "lost_tasks": ", ".join(f"{task.task_id} ({task.segment})" for task in lost) or None,
    }


def _failed(run: Run, section: MethodSection, policy: Policy) -> dict[str, Any]:
    """What failed among the episodes that a method learned from: those of its pairs, or of its steps."""
    if methods.method(section.method).NEEDS not in ACTING:
        start = policy.parent or ""
        return told_of(run, f"{section.name}.{start[:12]}")
    counts: Counter[str] = Counter()
    for row in policy.training["curve"]:
        counts.update(row.get("invalid", {}))
    return {"invalid": counts.total(), "reasons": reasons_told(counts)}


def _learning_data(run: Run, section: MethodSection, parent: Policy) -> tuple[str, dict[str, Any]]:
    """Authorise what the method reads, and certify it. Returns the dataset's place in the store, and digests."""
    needs = methods.method(section.method).NEEDS
    if needs == "demonstrations":
        dataset = demonstrations(
            run, section.data.policies, accepted_only=section.data.accepted_only, purpose=PURPOSES[needs]
        )
    elif needs == "pairs":
        agents = section.data.policies or [scored_rollouts(run, section, parent)]
        dataset = demonstrations(run, agents, accepted_only=False, purpose=PURPOSES[needs])
    else:
        dataset = demonstrations(run, teachers(run), accepted_only=False, purpose=PURPOSES[needs])
    name = run.name("datasets", f"{dataset.digest}.json")
    run.store.create_same(name, dataset.to_bytes())
    certified = certificate(run, dataset)
    certified.certificate.require(run.lock.digest, certified.corpus)
    paid_by = None
    if needs == "tasks":
        _refuse_exploitable(run, section)
        paid_by = require_calibrated(run)
    behind = certified_ancestors(run, parent) if parent.name == NAME else []
    return name, {
        "dataset": dataset.digest,
        "certificate": certified.name,
        "certificate_digest": certified.certificate.digest,
        "corpus": certified.corpus,
        **({"judge_calibration": paid_by.digest} if paid_by else {}),
        **({"ancestor_certificates": [one.name for one in behind]} if behind else {}),
        "record": record_training(run, section.name, section.method, parent, dataset, reads=needs not in ACTING),
    }


def _refuse_exploitable(run: Run, section: MethodSection) -> None:
    """Raise TrainingError where a policy would be trained on a reward that can be earned without the work."""
    found = audit_for_training(run)
    if not found.passed and not run.manifest.reward.train_on_failed_audit:
        raise TrainingError(
            f"reward of {section.name!r}",
            seen=", ".join(found.failures),
            rule="no honeypot may earn what honest work earns",
            remedy="strengthen the reward; to show the exploit on purpose, set reward.train_on_failed_audit",
        )


def _publish(run: Run, section: MethodSection, parent: Policy, outcome: dict[str, Any], facts: dict[str, Any]) -> None:
    place = run.name("policies", section.name, "checkpoint")
    searched = outcome.get("harness")
    # A copy of its own where the weights are the parent's: what becomes of the one touches not the other.
    made = (
        Path(outcome["checkpoint"]) if not searched else verified(run.store, parent.checkpoint, parent.weights_digest)
    )
    weights = run.store.publish_folder(made, place)
    if outcome.get("adapter"):
        alone = run.name("policies", section.name, "adapter")
        digest = run.store.publish_folder(Path(outcome["adapter"]), alone)
        facts = facts | {"adapter": {"place": alone, "digest": digest}}
    # What is in production may have been made under wider or narrower permissions than this manifest's.
    started = harness_of(run) if section.start == NAME else parent.harness
    policy = Policy(
        name=section.name,
        method=section.method,
        checkpoint=place,
        weights_digest=weights,
        harness=Harness.model_validate(searched) if searched else started,
        parent=parent.digest,
        training={**facts, **{key: outcome[key] for key in FACTS if key in outcome}},
    )
    refuse_widened(section.name, policy.harness, run.environment.spec, parent.harness)
    run.store.create_same(run.name("policies", section.name, "policy.json"), seal(policy))


def scored_rollouts(run: Run, section: MethodSection, parent: Policy) -> str:
    """Sample and score episodes of the start policy on training tasks, and take them in as any other logs, once.

    Returns:
        The agent name that the trajectories carry in the index.
    """
    agent = f"{section.name}.{parent.digest[:12]}"
    path = landing(run, f"{agent}.atif.jsonl")
    if not path.exists():
        tasks = list(run.training_tasks())
        if section.data.tasks is not None:
            tasks = random.Random(f"{run.manifest.seed}/{section.name}").sample(
                tasks, min(section.data.tasks, len(tasks))
            )
        write_atif(_sampled(run, parent, tasks, section.data.rollouts_per_task, agent), path)
        kept(run, agent).drop()
    ingest_landing(run.home, run.manifest.tenant, run.now())
    return agent


def _sampled(run: Run, policy: Policy, tasks: Sequence[Task], each: int, agent: str) -> list[Trajectory]:
    manifest, environment = run.manifest, run.environment
    requests = [(task, seed) for task in tasks for seed in range(each)]
    decoding = policy.harness.decoding.model_copy(update={"temperature": 1.0})

    def act(some: Sequence[Request], pool: ThreadPoolExecutor) -> list[Rollout]:
        return run_batch(*opened, environment, policy.harness, some, salt=agent, decoding=decoding, pool=pool)

    def record(judged: Judged) -> Trajectory:
        return to_trajectory(
            judged.rollout,
            environment.spec,
            judged.outcome.score,
            policy=agent,
            policy_digest=policy.digest,
            decoding=decoding,
            tenant=manifest.tenant,
            grant_id=manifest.grants[0].grant_id,
        )

    with sampled(run, [policy]) as (opened,):
        return played(run, agent, requests, act, record)
