"""Held-out rows, scorecards and the audit of what each policy did."""

from __future__ import annotations

from collections import Counter

from ratchet.contracts.canonical import digest
from ratchet.contracts.policy import Policy, refuse_widened
from ratchet.evaluation.arm import Arm as Rows
from ratchet.evaluation.compare import Comparison, compare
from ratchet.evaluation.curves import learning_curves
from ratchet.evaluation.economics import Investment, training_cost
from ratchet.evaluation.openings import Conditions, judged, log_opening, openings
from ratchet.evaluation.power import power_plan
from ratchet.evaluation.rows import EvaluationPlan, EvaluationRow, RowStore, rows_digest
from ratchet.evaluation.run import Arm, attempts_allowed, plan
from ratchet.evaluation.run import failed as failed_runs
from ratchet.evaluation.run import run as run_arms
from ratchet.evaluation.scorecard import Scorecard, read_scorecard, scorecard
from ratchet.loop.auditing import audit_again
from ratchet.loop.context import Run, Stage, stage
from ratchet.loop.engines import sampled
from ratchet.loop.incumbent import NAME, ancestors, origin, pin, pinned, reference_names
from ratchet.loop.judge_heldout import graded, heldout_grader, heldout_reward
from ratchet.loop.learning import open_policy
from ratchet.loop.leaving_out import all_left_out, made, refuse_none_left
from ratchet.loop.lineage import descent
from ratchet.progress import say
from ratchet.progress import task as progress
from ratchet.rewards.policy_audit import PolicyAudit, audit_policy, reopen_policy_audit
from ratchet.rollouts.judged import reasons_told


def incumbent(run: Run) -> Policy:
    """What the candidates are compared with: the version pinned from production, else the baseline."""
    held = pinned(run)
    return held.policy if held and held.policy and NAME in reference_names(run) else open_policy(run, "baseline")


def candidates(run: Run) -> list[Policy]:
    """What the run trained, in the order of the manifest; candidates that were left out are not among them."""
    return [open_policy(run, section.name) for section in made(run)]


def policies(run: Run) -> list[Policy]:
    """The incumbent first, the baseline for reference where it is another policy, then the candidates."""
    references = [incumbent(run), open_policy(run, "baseline")][: len(reference_names(run))]
    return [*references, *candidates(run)]


def evaluation_plan(run: Run) -> EvaluationPlan:
    """The plan of the run's held-out evaluation."""
    return plan(
        run.lock.digest,
        run.environment.spec.digest,
        heldout_reward(run),
        run.heldout_tasks(),
        run.manifest.evaluation.seeds,
        run.manifest.evaluation.engine.name,
    )


def row_store(run: Run, policy: Policy, what: EvaluationPlan | None = None) -> RowStore:
    """The rows of one policy."""
    return RowStore(run.store, what or evaluation_plan(run), policy.digest, policy.harness.digest)


def heldout_rows(run: Run) -> Stage:
    """Run every policy on every held-out task and seed; fills gaps only.

    Raises:
        EvaluationError: the plan cannot see the minimum effect, and the manifest does not accept that.
        TooManyInvalid: more runs of a policy stay invalid than the manifest allows.
        TrainingError: every candidate was left out.
    """
    section = run.manifest.evaluation
    refuse_none_left(run)
    pin(run)
    found = policies(run)
    for policy in found[1:]:
        refuse_widened(policy.name, policy.harness, run.environment.spec, found[0].harness)
    # A candidate may be the very policy that it started from: what is the same is run once.
    found = list({policy.digest: policy for policy in reversed(found)}.values())[::-1]
    _log_openings(run, found)
    tasks = run.heldout_tasks()
    outlook = power_plan(
        len(tasks),
        len(section.seeds),
        section.minimum_effect,
        accept_underpowered=section.accept_underpowered,
        clusters=len({task.repo for task in tasks}),
    )
    what = evaluation_plan(run)
    stores = [row_store(run, policy, what) for policy in found]
    share = run.manifest.max_invalid_share
    reused = not any(store.missing(attempts_allowed(store, section.retries, share)) for store in stores)
    if not reused:
        say(f"  {outlook}")
        with sampled(run, found) as opened_arms, heldout_grader(run) as grader:
            arms = [Arm(policy, *one) for policy, one in zip(found, opened_arms, strict=True)]
            run_arms(arms, what, tasks, run.environment, run.manifest.reward, section, run.store,
                     max_invalid_share=share, grader=grader)  # fmt: skip
    rows = [_tally(run, policy, store.complete()) for policy, store in zip(found, stores, strict=True)]
    opened = openings(run.store, run.lock.heldout)
    summary = f"{len(tasks)} tasks x {len(section.seeds)} seeds x {len(found)} policies, none missing or double"
    invalid = sum(int(str(row["invalid"])) for row in rows)
    summary += f", {invalid} invalid" if invalid else ""
    missing = "; ".join(f"{one.name}: {one.reason}" for one in all_left_out(run))
    summary += f"; left out: {missing}" if missing else ""
    return stage(
        "heldout_rows",
        reused,
        summary,
        digest([row["digest"] for row in rows]),
        rows,
        openings=len(opened),
        candidates_judged=len(judged(opened)),
        invalid=invalid,
        plan=str(outlook),
        **({"left_out": missing} if missing else {}),
    )


def _log_openings(run: Run, found: list[Policy]) -> None:
    """Log, before a held-out task is read, who is judged on them; what is logged already is being resumed."""
    conditions = Conditions(
        heldout=run.lock.heldout,
        lock_digest=run.lock.digest,
        environment_digest=run.environment.spec.digest,
        reward_digest=heldout_reward(run),
        seeds=run.manifest.evaluation.seeds,
    )
    trained = {policy.digest for policy in candidates(run)} - {found[0].digest}
    for policy in found:
        log_opening(
            run.store,
            conditions,
            policy,
            candidate=policy.digest in trained,
            experiment=run.manifest.run_id,
            by=run.manifest.author,
            at=run.now(),
        )


def earlier_candidates(run: Run) -> int:
    """How many candidates of other runs have been judged on these held-out tasks, or on a set that shares some."""
    own = {policy.digest for policy in candidates(run)}
    return len(judged(openings(run.store, run.lock.heldout)).keys() - own)


def _tally(run: Run, policy: Policy, rows: list[EvaluationRow]) -> dict[str, object]:
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
        **graded(run, rows),
        "digest": rows_digest(rows),
    }


def investment(run: Run, policy: Policy) -> Investment:
    """Training cost of a policy: its own stage, and those of the policies it started from, in other runs too.

    Every stage is priced by this run's list, so that all costs of a comparison are in one currency.
    """
    source = origin(run, policy)
    behind = [one.policy for one in ancestors(run, source)] if source else []
    own = descent(run, policy) if policy.name not in (NAME, "baseline") else []
    costs = [training_cost(step.training, run.manifest.prices) for step in (*reversed(behind), *reversed(own))]
    shared = len(behind) if source and source.digest == incumbent(run).digest else 0
    return Investment.of(costs, shared)


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
                    name=policy.name,
                    curves=learning_curves(policy.training.get("curve", ())),
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
    first = incumbent(run)
    found = []
    what = evaluation_plan(run)
    for policy, section in zip(candidates(run), made(run), strict=True):
        parent = open_policy(run, "baseline" if section.start in ("base", NAME) else section.start)
        if section.start != NAME and parent.digest != first.digest:
            found.append(
                compare(
                    Rows(row_store(run, policy, what).complete(), policy.name),
                    Rows(row_store(run, parent, what).complete(), parent.name),
                    minimum_effect=run.manifest.evaluation.minimum_effect,
                    max_void_share=run.manifest.evaluation.max_void_share,
                    resamples=run.manifest.evaluation.resamples,
                    seed=run.manifest.seed,
                )
            )
    return found


def open_policy_audit(run: Run, name: str) -> PolicyAudit:
    """The audit of one candidate's episodes, as stored."""
    place = run.name("policy_audits", f"{name}.json")
    return reopen_policy_audit(run.store.read(place), place)


def policy_audit(run: Run) -> Stage:
    """Look for exploitation in what every candidate did on the held-out tasks, and try the reward again, once."""
    again = audit_again(run)
    what = evaluation_plan(run)
    before = row_store(run, incumbent(run), what).complete()
    reused, table, failed = True, [], []
    for policy in candidates(run):

        def make(policy: Policy = policy) -> bytes:
            own = row_store(run, policy, what).complete()
            reward = run.manifest.reward
            judge = reward.judge.rubric if reward.judge else None
            return audit_policy(own, before, call_discount=reward.call_discount, judge=judge).to_bytes()

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
