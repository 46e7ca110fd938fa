"""Held-out rows, scorecards and the audit of what each policy did."""

from __future__ import annotations

from collections import Counter

from ratchet.contracts.canonical import canonical_json, digest
from ratchet.contracts.policy import Policy
from ratchet.evaluation.arm import Arm as Rows
from ratchet.evaluation.compare import Comparison, compare
from ratchet.evaluation.economics import Investment, training_cost
from ratchet.evaluation.power import power_plan
from ratchet.evaluation.rows import EvaluationPlan, EvaluationRow, RowStore, rows_digest
from ratchet.evaluation.run import Arm, attempts_allowed, plan
from ratchet.evaluation.run import failed as failed_runs
from ratchet.evaluation.run import run as run_arms
from ratchet.evaluation.scorecard import Scorecard, read_scorecard, scorecard
from ratchet.loop.auditing import audit_again
from ratchet.loop.context import Run, Stage, stage
from ratchet.loop.learning import open_policy, policy_names
from ratchet.policies.checkpoint import load, verified
from ratchet.policies.rendering import Rendering
from ratchet.progress import say
from ratchet.progress import task as progress
from ratchet.rewards.compose import spec_digest
from ratchet.rewards.policy_audit import PolicyAudit, audit_policy, reopen_policy_audit
from ratchet.rollouts.judged import reasons_told


def policies(run: Run) -> list[Policy]:
    """Baseline first, then the candidates in the order of the manifest."""
    return [open_policy(run, name) for name in policy_names(run)]


def evaluation_plan(run: Run) -> EvaluationPlan:
    """The plan of the run's held-out evaluation."""
    return plan(
        run.lock.digest,
        run.environment.spec.digest,
        spec_digest(run.manifest.reward),
        run.heldout_tasks(),
        run.manifest.evaluation.seeds,
    )


def row_store(run: Run, policy: Policy, what: EvaluationPlan | None = None) -> RowStore:
    """The rows of one policy."""
    return RowStore(run.store, what or evaluation_plan(run), policy.digest, policy.harness.digest)


def heldout_rows(run: Run) -> Stage:
    """Run every policy on every held-out task and seed; fills gaps only.

    Raises:
        EvaluationError: the plan cannot see the minimum effect, and the manifest does not accept that.
        TooManyInvalid: more runs of a policy stay invalid than the manifest allows.
    """
    section = run.manifest.evaluation
    tasks = run.heldout_tasks()
    outlook = power_plan(
        len(tasks),
        len(section.seeds),
        section.minimum_effect,
        accept_underpowered=section.accept_underpowered,
        clusters=len({task.repo for task in tasks}),
    )
    what = evaluation_plan(run)
    found = policies(run)
    stores = [row_store(run, policy, what) for policy in found]
    share = run.manifest.max_invalid_share
    reused = not any(store.missing(attempts_allowed(store, section.retries, share)) for store in stores)
    if not reused:
        say(f"  {outlook}")
        arms = []
        for policy in found:
            opening = {
                "policy": policy.digest,
                "evaluation": what.digest,
                "at": run.now().isoformat(),
                "by": run.manifest.author,
            }
            run.store.create(run.name("openings", f"{digest(opening)}.json"), canonical_json(opening).encode())
            model, tokenizer = load(verified(run.store, policy.checkpoint, policy.weights_digest))
            arms.append(Arm(policy, model, Rendering(tokenizer)))
        run_arms(arms, what, tasks, run.environment, run.manifest.reward, section, run.store,
                 max_invalid_share=share)  # fmt: skip
    rows = [_tally(policy, store.complete()) for policy, store in zip(found, stores, strict=True)]
    openings = len(run.store.names(run.name("openings")))
    summary = f"{len(tasks)} tasks x {len(section.seeds)} seeds x {len(found)} policies, none missing or double"
    invalid = sum(int(str(row["invalid"])) for row in rows)
    summary += f", {invalid} invalid" if invalid else ""
    return stage(
        "heldout_rows",
        reused,
        summary,
        digest([row["digest"] for row in rows]),
        rows,
        openings=openings,
        invalid=invalid,
        plan=str(outlook),
    )


def _tally(policy: Policy, rows: list[EvaluationRow]) -> dict[str, object]:
    status, seen = Counter(row.status for row in rows), failed_runs(rows)
    return {
        "policy": policy.name,
        "rows": len(rows),
        "accepted": status["accepted"],
        "rejected": status["rejected"],
        "invalid": status["invalid"],
        "mended": sum(seen.mended.values()),
        "invalid_reasons": reasons_told(seen.invalid),
        "exploits": sum(row.exploit for row in rows),
        "digest": rows_digest(rows),
    }


def investment(run: Run, policy: Policy) -> Investment:
    """Training cost of a policy: its own stage, and those of the policies it started from."""
    by_digest = {other.digest: other for other in policies(run)}
    stages: list[float] = []
    step: Policy | None = policy
    while step is not None:
        stages.insert(0, training_cost(float(step.training.get("seconds", 0.0)), run.manifest.prices))
        step = by_digest.get(step.parent) if step.parent else None
    return Investment.of(stages)


def scorecards(run: Run) -> list[Scorecard]:
    """The stored scorecards, verified: the incumbent's first."""
    names = [run.name("scorecards", f"{policy.name}.json") for policy in policies(run)]
    return [read_scorecard(run.store.read(name), name) for name in names]


def heldout_scorecard(run: Run) -> Stage:
    """Compare every candidate with the incumbent, once."""
    section, found = run.manifest.evaluation, policies(run)
    what = evaluation_plan(run)
    rows = [row_store(run, policy, what).complete() for policy in found]
    reused = True
    with progress(f"statistics of {len(found)} policies, {section.resamples} resamples"):
        for policy, own in zip(found, rows, strict=True):

            def make(policy: Policy = policy, own: list[EvaluationRow] = own) -> bytes:
                return scorecard(
                    own,
                    None if policy is found[0] else rows[0],
                    method=policy.method,
                    manifest_digest=run.manifest.digest,
                    lock_digest=run.lock.digest,
                    prices=run.manifest.prices,
                    training=investment(run, policy),
                    minimum_effect=section.minimum_effect,
                    horizon_runs=run.manifest.release.horizon_runs,
                    max_void_share=section.max_void_share,
                    resamples=section.resamples,
                    seed=run.manifest.seed,
                ).to_bytes()

            reused = run.once(f"scorecards/{policy.name}.json", make)[1] and reused
    cards = scorecards(run)
    table = [
        {
            "policy": card.name,
            "method": card.method,
            "accepted": f"{card.accepted_tasks}/{card.n_tasks}",
            "acceptance": card.acceptance.model_dump(mode="json"),
            "paired_difference": card.comparison.paired_difference.model_dump(mode="json") if card.comparison else None,
            "exploit_rate": card.model_dump(mode="json")["exploit_rate"],
        }
        for card in cards
    ]
    summary = ", ".join(f"{card.name} {card.accepted_tasks}/{card.n_tasks}" for card in cards)
    return stage("heldout_scorecard", reused, summary, digest([card.digest for card in cards]), table)


def comparisons(run: Run) -> list[Comparison]:
    """Every candidate against the one it started from, paired and clustered as against the incumbent."""
    found = policies(run)
    by_digest = {policy.digest: policy for policy in found}
    made = []
    what = evaluation_plan(run)
    for policy in found:
        parent = by_digest.get(policy.parent or "")
        if parent is not None and parent is not found[0]:
            made.append(
                compare(
                    Rows(row_store(run, policy, what).complete()),
                    Rows(row_store(run, parent, what).complete()),
                    minimum_effect=run.manifest.evaluation.minimum_effect,
                    max_void_share=run.manifest.evaluation.max_void_share,
                    resamples=run.manifest.evaluation.resamples,
                    seed=run.manifest.seed,
                )
            )
    return made


def open_policy_audit(run: Run, name: str) -> PolicyAudit:
    """The audit of one candidate's episodes, as stored."""
    place = run.name("policy_audits", f"{name}.json")
    return reopen_policy_audit(run.store.read(place), place)


def policy_audit(run: Run) -> Stage:
    """Look for exploitation in what every candidate did on the held-out tasks, and try the reward again, once."""
    again = audit_again(run)
    found = policies(run)
    what = evaluation_plan(run)
    incumbent = row_store(run, found[0], what).complete()
    reused, table, failed = True, [], []
    for policy in found[1:]:

        def make(policy: Policy = policy) -> bytes:
            own = row_store(run, policy, what).complete()
            reward = run.manifest.reward
            judge = reward.judge.rubric if reward.judge else None
            return audit_policy(own, incumbent, call_discount=reward.call_discount, judge=judge).to_bytes()

        reused = run.once(f"policy_audits/{policy.name}.json", make)[1] and reused
        found_here = open_policy_audit(run, policy.name)
        failed += [f"{policy.name}: {failure}" for failure in found_here.failures]
        table += [
            {"policy": policy.name, **one.model_dump(mode="json", exclude={"episodes"}), "episodes": len(one.episodes)}
            for one in found_here.detections
        ]
    failed += [f"reward: {change}" for change in again]
    summary = f"flagged: {'; '.join(failed)}" if failed else "no detector fired on any candidate"
    return stage("policy_audit", reused, summary, table, table, failures=len(failed))
