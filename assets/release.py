"""The release: the gate's decision with every rule as a check, and what stands in the ledger and in MLflow."""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from assets.display import cell, incidents, result, table
from assets.evaluation import heldout_scorecard, policy_audit
from assets.partitions import across, experiments
from assets.rewards import reward_audit
from assets.splits import contamination_report
from ratchet.evaluation.report import MARKS
from ratchet.loop import affected, canary, deciding
from ratchet.release.rules import RULES
from resources.home import Home
from resources.projection import project_run


@dg.asset(
    partitions_def=experiments,
    group_name="release",
    owners=["team:release"],
    kinds={"json"},
    deps=[heldout_scorecard, policy_audit, contamination_report, reward_audit, across("rights_ledger")],
    check_specs=[
        dg.AssetCheckSpec(rule.__name__, asset="release_decision", description=rule.__doc__) for rule in RULES
    ],
)
def release_decision(context: dg.AssetExecutionContext, home: Home) -> dg.MaterializeResult:
    """What the gate says of the candidate, rule by rule, from digested inputs alone."""
    with home.run(context.partition_key) as run:
        stage = deciding.release_decision(run)
    rows = [_row(rule) for rule in stage.rows]
    short = [{name: row[name] for name in ("rule", "outcome", "why")} for row in rows if row["outcome"] != MARKS[True]]
    more = {
        "rules that did not pass": dg.MetadataValue.md(table(short)) if short else "none",
        "all rules": dg.MetadataValue.md(table(rows)),
    }
    return result(stage._replace(rows=[]), more, [_check(rule) for rule in stage.rows])


@dg.asset(
    partitions_def=experiments,
    group_name="release",
    owners=["team:release"],
    kinds={"mlflow", "sqlite"},
    deps=[release_decision],
)
def production_policy(context: dg.AssetExecutionContext, home: Home) -> dg.MaterializeResult:
    """The candidate in the release ledger, as far as the decision and the owner's rule carry it, shown in MLflow."""
    with home.run(context.partition_key) as run:
        stage = deciding.registered_versions(run)
        shown = project_run(run)
    more = {
        "report": dg.MetadataValue.path(str(shown.page)),
        "registered model": shown.model,
        "mlflow": dg.MetadataValue.url(shown.link),
        "affected versions": dg.MetadataValue.md(table(list(affected.overview(home.folder, run.manifest.tenant)))),
        "incidents": dg.MetadataValue.md(incidents(shown.incidents)),
    }
    return result(stage, more)


@dg.asset(
    partitions_def=experiments,
    group_name="release",
    owners=["team:release"],
    kinds={"json"},
    deps=[production_policy],
)
def canary_window(context: dg.AssetExecutionContext, home: Home) -> dg.MaterializeResult:
    """What live tasks say of the version: both arms in order of arrival, and the verdict of the e-process."""
    with home.run(context.partition_key) as run:
        return result(canary.canary_window_stage(run))


def _row(rule: Mapping[str, Any]) -> dict[str, Any]:
    """A rule as a row: what is asked first stands first."""
    outcome = {"rule": rule["name"].replace("_", " "), "outcome": MARKS[rule["passed"]], "why": rule["reason"]}
    return outcome | {name: rule[name] for name in ("figure", "threshold", "evidence")}


def _check(rule: Mapping[str, Any]) -> dg.AssetCheckResult:
    """A rule of the decision as a check of the same name; one that cannot be computed did not pass."""
    # Numbers stay numbers: Dagster draws them over the experiments.
    shown = {
        name: rule[name] if isinstance(rule[name], float) else cell(rule[name]) for name in ("figure", "threshold")
    }
    return dg.AssetCheckResult(
        check_name=rule["name"],
        passed=rule["passed"] is True,
        severity=dg.AssetCheckSeverity.WARN if rule["on_failure"] == "review" else dg.AssetCheckSeverity.ERROR,
        description=rule["reason"],
        metadata={**shown, "evidence": rule["evidence"]},
    )
