"""The checks: each name is the sentence that is true when it passes, and its metadata show what it rests on.

They display, and stop the same run early. They are no locks: a later launch walks past a failed check, and is then
refused by the stage itself, which verifies the evidence that it needs.
"""

from datetime import UTC, datetime
from importlib.metadata import entry_points
from typing import Any

import dagster as dg

from assets.display import table
from assets.evaluation import heldout_rows, heldout_scorecard
from assets.intake import rights_ledger, trajectories
from assets.release import production_policy, release_decision
from assets.rewards import judge_calibration, reward_audit
from assets.splits import contamination_report, split_lock
from ratchet.contracts.score import NotComputable
from ratchet.errors import EvaluationError, IntegrityError, SplitError
from ratchet.evaluation.format import percent
from ratchet.intake import index
from ratchet.loop import affected, auditing, data, deciding, judge, judging
from ratchet.release.states import SERVING
from ratchet.rewards.compose import judge_counts
from ratchet.rights import Ledger
from resources.expectations import check_index
from resources.home import Home
from resources.projection import registry_differences


@dg.asset_check(asset=rights_ledger)
def no_affected_version_serves(context: dg.AssetCheckExecutionContext, home: Home) -> dg.AssetCheckResult:
    """No version in canary or production learned from data whose right has ended, unless its manifest keeps it."""
    rows = list(affected.overview(home.folder, context.partition_key))
    serving = [row for row in rows if row["state"] in SERVING]
    bad = [row for row in serving if row["policy"] != "keep"]
    why = f"{len(rows)} versions are affected, {len(serving)} of them serve, {len(serving) - len(bad)} kept by manifest"
    return verdict(not bad, why, rows, affected=len(rows), serving=len(serving))


@dg.asset_check(asset=trajectories)
def rights_hold(context: dg.AssetCheckExecutionContext, home: Home) -> dg.AssetCheckResult:
    """Every grant behind a stored trajectory is the tenant's and active at this moment."""
    tenant, now, ledger = context.partition_key, datetime.now(UTC), Ledger.at_home(home.folder)
    counts = index(home.store, tenant)["grant_id"].value_counts().to_dict()
    rights = [(ledger.effective(str(grant), now), rows) for grant, rows in sorted(counts.items())]
    bad = [right.grant_id for right, _ in rights if right.state != "active" or right.tenant != tenant]
    rows = [{"trajectories": rows, **right.model_dump(mode="json")} for right, rows in rights]
    return verdict(not bad, f"{len(rights) - len(bad)} of {len(rights)} grants are active", rows, bad=", ".join(bad))


@dg.asset_check(asset=trajectories)
def index_meets_expectations(context: dg.AssetCheckExecutionContext, home: Home) -> dg.AssetCheckResult:
    """The index table meets its suite: columns, unique ids, known grants, formats and segments, ranges, not empty."""
    tenant = context.partition_key
    grants = set(Ledger.at_home(home.folder).grants(tenant))
    formats = {point.name for point in entry_points(group="ratchet.formats")}
    found = check_index(index(home.store, tenant), grants=grants, formats=formats, segments=home.segments(tenant))
    bad = sum(not one.passed for one in found)
    return verdict(
        not bad, f"{len(found) - bad} of {len(found)} expectations are met", [one._asdict() for one in found]
    )


@dg.asset_check(asset=split_lock, blocking=True)
def split_lock_is_intact(context: dg.AssetCheckExecutionContext, home: Home) -> dg.AssetCheckResult:
    """The lock is what was locked, and every task is what the lock pins."""
    with home.run(context.partition_key) as run:
        try:
            lock = run.lock
        except (SplitError, IntegrityError) as error:
            return verdict(False, str(error))
    rows = [{"split": name, "groups": lock.groups.get(name), **counts} for name, counts in lock.segments.items()]
    return verdict(True, "every task is what the lock pins", rows, root=lock.root, largest_group=lock.largest_group)


@dg.asset_check(asset=contamination_report, blocking=True)
def zero_contamination(context: dg.AssetCheckExecutionContext, home: Home) -> dg.AssetCheckResult:
    """Training data and locked tasks share nothing."""
    with home.run(context.partition_key) as run:
        stage = data.contamination_report(run)
    return verdict(stage.figures["findings"] == 0, stage.summary, stage.rows, certificate=stage.digest)


@dg.asset_check(asset=reward_audit, blocking=True)
def reward_audit_passed(context: dg.AssetCheckExecutionContext, home: Home) -> dg.AssetCheckResult:
    """No honeypot earns more than doing nothing, and honest work is accepted and paid.

    A failure blocks, unless the manifest asks to train on the reward though its audit failed: then it is a warning.
    """
    with home.run(context.partition_key) as run:
        audit, wanted = auditing.open_audit(run), run.manifest.reward.train_on_failed_audit
    why = "; ".join(audit.failures) or f"{len(audit.probes)} kinds of probes on {audit.tasks} tasks"
    rows = [probe.model_dump(mode="json") for probe in audit.probes]
    if wanted and not audit.passed:
        why += " (reward.train_on_failed_audit is set: a warning here, and the gate rejects what is trained on it)"
    # Dagster stops a run at a blocking check that fails as an error, and goes on after one that fails as a warning.
    severity = dg.AssetCheckSeverity.WARN if wanted else dg.AssetCheckSeverity.ERROR
    return verdict(audit.passed, why, rows, severity, audit=audit.digest)


@dg.asset_check(asset=judge_calibration)
def kappa_above_floor(context: dg.AssetCheckExecutionContext, home: Home) -> dg.AssetCheckResult:
    """Kappa of judge and experts can be computed, on enough labels, and reaches the floor.

    A failure is a warning where nothing rests on the judge; where it counts, training refuses by itself.
    """
    with home.run(context.partition_key) as run:
        section, counts = run.manifest.reward.judge, judge_counts(run.manifest.reward)
        found = judge.open_calibration(run) if section else None
    if section is None:
        return verdict(True, judge.NONE)
    severity = dg.AssetCheckSeverity.ERROR if counts else dg.AssetCheckSeverity.WARN
    if found is None:
        return verdict(False, "there is no calibration", severity=severity)
    seen, rule = found.agreement, found.rule
    enough = seen.n >= rule.min_labels and not isinstance(seen.kappa, NotComputable)
    reached = enough and not isinstance(seen.kappa, NotComputable) and seen.kappa >= rule.floor
    figure = seen.kappa if isinstance(seen.kappa, NotComputable) else f"{seen.kappa:.3f}"
    note = "simulated labels" if found.simulated else "labels by persons"
    why = f"kappa {figure}, floor {rule.floor:g}, {seen.n} {note}, at least {rule.min_labels} needed"
    return verdict(reached, why, judge.companions(found), severity, simulated=found.simulated)


@dg.asset_check(asset=heldout_rows, blocking=True)
def evaluation_is_complete(context: dg.AssetCheckExecutionContext, home: Home) -> dg.AssetCheckResult:
    """Every policy has exactly one row for every held-out task and seed."""
    with home.run(context.partition_key) as run:
        try:
            plan = judging.evaluation_plan(run)
            rows = [judging.row_store(run, policy, plan).complete() for policy in judging.policies(run)]
        except (EvaluationError, IntegrityError) as error:
            return verdict(False, str(error))
    counts = [{"policy": arm[0].policy, "rows": len(arm)} for arm in rows]
    return verdict(True, f"{sum(map(len, rows))} rows, none missing or double", counts, evaluation=plan.digest)


@dg.asset_check(asset=heldout_scorecard)
def no_invalid_excess(context: dg.AssetCheckExecutionContext, home: Home) -> dg.AssetCheckResult:
    """No policy has more invalid tasks than the manifest allows; more make the evaluation void."""
    with home.run(context.partition_key) as run:
        cards, limit = judging.scorecards(run), run.manifest.evaluation.max_void_share
    rows = [{"policy": card.name, "invalid tasks": card.invalid_tasks, "void": card.void} for card in cards]
    worst = max(card.invalid_share for card in cards)
    return verdict(
        worst <= limit, f"at most {percent(worst)} of the tasks stay invalid, {percent(limit)} allowed", rows
    )


@dg.asset_check(asset=release_decision)
def every_rule_of_the_decision_is_computable(context: dg.AssetCheckExecutionContext, home: Home) -> dg.AssetCheckResult:
    """No rule of the gate went without its figure."""
    with home.run(context.partition_key) as run:
        rules = deciding.open_decision(run).rules
    bad = [rule.model_dump(mode="json") for rule in rules if rule.passed is None]
    return verdict(not bad, f"{len(rules) - len(bad)} of {len(rules)} rules are computable", bad)


@dg.asset_check(asset=production_policy)
def registry_matches_ledger(context: dg.AssetCheckExecutionContext, home: Home) -> dg.AssetCheckResult:
    """Versions, states and aliases in MLflow are those of the release ledger."""
    with home.run(context.partition_key) as run:
        rows = registry_differences(run)
    return verdict(not rows, f"{len(rows)} differences between MLflow and the release ledger", rows)


def verdict(
    passed: bool,
    why: str,
    rows: Any = (),
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR,
    **more: Any,
) -> dg.AssetCheckResult:
    """The outcome of a check with its reason in one sentence, and its table."""
    shown = {"table": dg.MetadataValue.md(table(list(rows)))} if rows else {}
    return dg.AssetCheckResult(passed=bool(passed), description=why, severity=severity, metadata={**shown, **more})
