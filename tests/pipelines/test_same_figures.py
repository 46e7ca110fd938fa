"""One real run, read on every surface: command line, JSON, CSV, page, MLflow and Dagster show the same figures.

The loop is run by Dagster, on a home of its own with an MLflow database; what each surface shows is then read back from
where it is kept, and held against `ratchet report --json`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from csv import DictReader
from html import unescape
from pathlib import Path
from typing import Any, NamedTuple

import dagster as dg
import pytest
from small_loop import Loop, small_manifest
from typer.testing import CliRunner

from ratchet.cli.main import app
from ratchet.evaluation.html import article
from ratchet.evaluation.language import ENGLISH
from ratchet.evaluation.origins import INPUTS
from ratchet.evaluation.report import FIGURES, HEADLINE, MARKS
from ratchet.evaluation.spanish import spanish
from ratchet.loop import deciding
from ratchet.loop.context import reopen_run
from ratchet.loop.learning import open_policy
from resources.mlflow_models import model_name
from resources.registry import Registry

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

METHODS = [
    {
        "name": "sft",
        "method": "sft",
        "start": "base",
        "data": {"policies": ["expert"]},
        "settings": {"epochs": 1, "batch_size": 8},
    },
    {
        "name": "grpo",
        "method": "grpo",
        "start": "sft",
        "settings": {"steps": 2, "prompts_per_step": 6, "group_size": 4, "validate_every": 1},
    },
]
METRICS = {
    "accepted_tasks": ("accepted_tasks",),
    "acceptance": ("acceptance", "value"),
    "acceptance_low": ("acceptance", "low"),
    "acceptance_high": ("acceptance", "high"),
    "mean_of_seeds": ("mean_of_seeds", "value"),
    "paired_difference": ("paired_difference", "value"),
    "paired_difference_low": ("paired_difference", "low"),
    "paired_difference_high": ("paired_difference", "high"),
    "paired_difference_p": ("paired_difference", "p"),
    "tool_call_precision": ("tool_call_precision",),
    "violations": ("violations",),
    "exploit_rate": ("exploit_rate",),
    "invalid_share": ("invalid_share",),
    "latency_p50_s": ("latency_s", "p50"),
    "latency_p95_s": ("latency_s", "p95"),
    "cost_variable_per_accepted": ("cost", "variable_per_accepted"),
    "cost_training": ("cost", "training"),
    "cost_training_cumulative": ("cost", "training_cumulative"),
    "cost_loaded": ("cost", "loaded"),
    "cost_amortised": ("cost", "amortised"),
    "cost_break_even": ("cost", "break_even"),
}
"""Where the report holds each metric that MLflow shows of a policy."""
LINES = {
    "accepted tasks": "accepted_tasks",
    "acceptance (majority)": "acceptance",
    "mean of seeds": "mean_of_seeds",
    "over the incumbent, paired": "paired_difference",
    "p": "paired_difference_p",
    "tool-call precision": "tool_call_precision",
    "policy violations": "violations",
    "exploit rate": "exploit_rate",
    "invalid tasks": "invalid_share",
    "latency p50": "latency_p50_s",
    "latency p95": "latency_p95_s",
    "variable cost per accepted run": "cost_variable_per_accepted",
    "training, own stage": "cost_training",
    "training, cumulative": "cost_training_cumulative",
    "loaded cost per accepted run": "cost_loaded",
    "amortised cost per accepted run": "cost_amortised",
    "break-even, accepted runs": "cost_break_even",
}
"""The metric that each figure of the CSV is."""

ASSETS = ("heldout_scorecard", "release_decision", "sft_policy", "grpo_policy")


class Told(NamedTuple):
    """What the surfaces show of one run."""

    body: dict[str, Any]
    """`ratchet report --json`."""
    csv: list[dict[str, str]]
    """`ratchet report --csv`, line by line."""
    terminal: str
    """`ratchet report`, one space between words."""
    page: str
    """The page that Dagster and MLflow link to, as it is read."""
    dagster: dict[str, dict[str, Any]]
    """Metadata of the materialisations, by asset."""
    checks: dict[str, Any]
    """Evaluations of the checks of `release_decision`, by name."""
    mlflow: dict[str, Any]
    """Runs in MLflow, by name of the policy."""
    descriptions: dict[str, str]
    """Descriptions of the registered versions, by name of the policy."""
    loop: Loop


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    home = tmp_path_factory.mktemp("told")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RATCHET_HOME", str(home))
        patch.setenv("COLUMNS", "400")
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        # A base that is accepted at times: from rewards that are all the same nothing can be learned.
        loop = Loop(home, small_manifest(methods=METHODS, **{"base.checkpoint": "package:starter"}))
        for job in ("prepare_experiment", "ingest_trajectories", "improve_policy"):
            assert loop.launch(job).success
        yield read(loop)
        loop.instance.dispose()


def read(loop: Loop) -> Told:
    """Read every surface."""

    def ratchet(*arguments: str) -> str:
        result = CliRunner().invoke(app, ["report", loop.manifest.run_id, *arguments, "--home", str(loop.home)])
        assert result.exit_code == 0, result.output
        return result.stdout

    registry = Registry.of(loop.home)
    client, name = registry.models.client, model_name(loop.manifest.tenant, loop.manifest.experiment)
    experiment = client.get_experiment_by_name(name)
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    versions = list(registry.models.versions(name))
    sheet = loop.home / "report.csv"
    ratchet("--csv", str(sheet))
    page = (loop.home / "reports" / f"{loop.manifest.run_id}.html").read_text(encoding="utf-8")
    return Told(
        body=json.loads(ratchet("--json")),
        csv=list(DictReader(sheet.read_text(encoding="utf-8").splitlines())),
        terminal=words(ratchet()),
        page=words(unescape(re.sub(r"<[^>]+>", " ", page))),
        dagster={asset: metadata(loop, asset) for asset in ASSETS},
        checks=checks(loop),
        mlflow={run.data.tags["mlflow.runName"]: run for run in runs},
        descriptions={item.tags["ratchet.name"]: item.description or "" for item in versions},
        loop=loop,
    )


def words(text: str) -> str:
    return " ".join(text.split())


def metadata(loop: Loop, asset: str) -> dict[str, Any]:
    event = loop.instance.get_latest_materialization_event(dg.AssetKey(asset))
    assert event is not None
    assert event.asset_materialization is not None
    return {key: value.value for key, value in event.asset_materialization.metadata.items()}


def checks(loop: Loop) -> dict[str, Any]:
    key = dg.AssetKey("release_decision")
    found = {}
    for rule in deciding_rules(loop):
        check = dg.AssetCheckKey(key, rule)
        (record,) = loop.instance.event_log_storage.get_asset_check_execution_history(check, limit=1)
        assert record.event is not None
        found[rule] = record.event.asset_check_evaluation
    return found


def deciding_rules(loop: Loop) -> list[str]:
    with reopen_run(loop.home, loop.manifest.run_id) as run:
        return [rule.name for rule in deciding.open_decision(run).rules]


def rows(markdown: str) -> list[dict[str, str]]:
    """A markdown table, by its headings."""
    lines = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in markdown.splitlines()]
    heads, _, *body = lines
    return [dict(zip(heads, line, strict=True)) for line in body]


def at(policy: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    """A figure of the report; the reason where it, or what holds it, cannot be computed."""
    value: Any = policy
    for part in path:
        if isinstance(value, Mapping) and "not_computable" in value:
            return value
        value = value[part]
    return value


def test_the_terminal_and_the_page_show_every_figure_of_every_policy(told: Told) -> None:
    for label, figure in FIGURES:
        for policy in told.body["policies"]:
            shown = words(figure(policy))
            assert shown in told.terminal, (label, policy["name"])
            assert shown in told.page, (label, policy["name"])


def test_dagster_shows_every_figure_of_every_policy(told: Told) -> None:
    shown = told.dagster["heldout_scorecard"]
    assert rows(shown["all figures"]) == [
        {"figure": label, **{policy["name"]: figure(policy) for policy in told.body["policies"]}}
        for label, figure in FIGURES
    ]
    first = dict(FIGURES)
    assert rows(shown["table"]) == [
        {"policy": policy["name"], **{label: first[label](policy) for label in HEADLINE}}
        for policy in told.body["policies"]
    ]
    for policy in told.body["policies"]:
        assert shown[f"acceptance of {policy['name']}"] == policy["acceptance"]["value"]


def test_mlflow_has_every_figure_of_every_policy_as_a_number_or_a_reason(told: Told) -> None:
    assert set(told.mlflow) == {policy["name"] for policy in told.body["policies"]}
    numbers = reasons = 0
    for policy in told.body["policies"]:
        data = told.mlflow[policy["name"]].data
        for metric, path in METRICS.items():
            value = at(policy, path)
            if isinstance(value, Mapping):
                # Below a whole figure that cannot be computed there is one reason, on the figure.
                assert metric not in data.metrics, (metric, policy["name"])
                whole = f"ratchet.not_computable.{metric}"
                if not metric.startswith("paired_difference_") or whole in data.tags:
                    assert data.tags[whole] == value["not_computable"]
                reasons += 1
            else:
                assert data.metrics[metric] == value, (metric, policy["name"])
                numbers += 1
    assert numbers > 30
    assert reasons >= 5


def test_the_csv_has_every_figure_of_every_policy_as_a_number_or_a_reason(told: Told) -> None:
    for policy in told.body["policies"]:
        mine = [line for line in told.csv if (line["policy"], line["part"]) == (policy["name"], "policy")]
        shown = {line["figure"]: line["value"] for line in mine}
        for label, metric in LINES.items():
            value = at(policy, METRICS[metric])
            if isinstance(value, Mapping):
                assert shown[label] == value["not_computable"]
            else:
                assert float(shown[label]) == value, (label, policy["name"])


def test_what_a_reviewer_reads_in_mlflow_are_the_same_words(told: Told) -> None:
    first = dict(FIGURES)
    candidates = [policy for policy in told.body["policies"] if policy["name"] in told.descriptions]
    assert len(candidates) == len(told.loop.manifest.methods)
    for policy in candidates:
        for label in HEADLINE:
            assert f"- {label}: {first[label](policy)}" in told.descriptions[policy["name"]]


def test_the_decision_reads_the_same_everywhere(told: Told) -> None:
    decision = told.body["decision"]
    table = {row["rule"]: row for row in rows(told.dagster["release_decision"]["all rules"])}
    assert len(table) == len(decision["rules"]) == len(told.checks)
    for rule in decision["rules"]:
        spoken, reason = rule["name"].replace("_", " "), words(rule["reason"])
        assert table[spoken]["outcome"] == MARKS[rule["passed"]]
        assert table[spoken]["why"] == rule["reason"]
        assert told.checks[rule["name"]].passed is (rule["passed"] is True)
        assert told.checks[rule["name"]].description == rule["reason"]
        assert reason in told.terminal
        assert reason in told.page
    assert decision["state"].upper() in told.terminal
    assert told.dagster["release_decision"]["state"] == decision["state"]
    assert f"Decision of the gate: **{decision['state']}**" in told.descriptions[decision["candidate"]]


def test_the_page_of_a_real_run_leaves_nothing_in_english(told: Told) -> None:
    with reopen_run(told.loop.home, told.loop.manifest.run_id) as run:
        curves = deciding.curves_of(run)
    language = spanish()
    shown = article(told.body, curves, language)
    assert language.missing == set()
    english = article(told.body, curves, ENGLISH)
    assert re.findall(r"<(\w+)", shown) == re.findall(r"<(\w+)", english)
    assert {key.partition(":")[0] for key in told.body["lineage"]["inputs"]} <= INPUTS.keys()
    simulated = len(told.body["logs"]) + bool(told.body["judge"].get("simulated"))
    assert english.count(">simulated</span>") == simulated >= 1


def test_the_page_goes_down_to_the_grants_of_the_run(told: Told) -> None:
    for grant in told.loop.manifest.grants:
        assert f"grant {grant.grant_id}/" in told.page
    assert len(told.body["openings"]) == len(told.body["policies"])


def test_mlflow_and_dagster_show_the_learning_curves_of_every_candidate_step_by_step(told: Told) -> None:
    client = Registry.of(told.loop.home).models.client
    steps = 0
    with reopen_run(told.loop.home, told.loop.manifest.run_id) as run:
        trained = {name: open_policy(run, name).training["curve"] for name in ("sft", "grpo")}
    for name, curve in trained.items():
        identity = told.mlflow[name].info.run_id
        logged = {
            metric: [(point.step, point.value) for point in client.get_metric_history(identity, f"curve_{metric}")]
            for metric in ("loss", "lr", "seconds", "grad_norm", "validation_acceptance", "reward", "entropy")
        }
        for metric, points in logged.items():
            assert sorted(points) == [(row["step"], row[metric]) for row in curve if row[metric] is not None], metric
        shown = told.dagster[f"{name}_policy"]
        assert [float(row["step"]) for row in rows(shown["table"])] == [row["step"] for row in curve]
        assert [row["loss"] for row in rows(shown["table"])] == [f"{row['loss']:.4g}" for row in curve]
        steps += len(logged["loss"])
        assert logged["validation_acceptance"]
    assert steps > len(trained), "a curve of one point is none"
    assert told.dagster["sft_policy"]["learning curves (plot)"].startswith("![learning curves](data:image/png;base64,")


def test_mlflow_and_dagster_keep_the_regression_report_of_every_candidate(told: Told) -> None:
    client = Registry.of(told.loop.home).models.client
    with reopen_run(told.loop.home, told.loop.manifest.run_id) as run:
        reports = {name: open_policy(run, name).training["regression"] for name in ("sft", "grpo")}
        validation = len(run.validation_tasks())
    for name, report in reports.items():
        assert report["compared"] == validation
        mine = told.mlflow[name]
        assert json.loads(Path(client.download_artifacts(mine.info.run_id, "regression.json")).read_text()) == report
        metrics = mine.data.metrics
        assert metrics["validation_lost"] == len(report["lost"])
        assert (metrics["validation_held"], metrics["validation_start"]) == (report["held"], report["start"])
        shown = told.dagster[f"{name}_policy"]
        assert (shown["lost"], shown["gained"]) == (len(report["lost"]), len(report["gained"]))
        assert (shown["held"], shown["start_validation"]) == (report["held"], report["start"])
        assert all(task in (shown.get("lost_tasks") or "") for task in report["lost"])
    assert "regression.json" not in [one.path for one in client.list_artifacts(told.mlflow["baseline"].info.run_id)]
