"""Dagster, MLflow and the release report in a real browser, after a fast loop: what a release owner reads is what
`ratchet report --json` says. Screenshots of every page go to `screenshots/`.

`RATCHET_UI_HOME` names a home folder to run the loop in, so that a second run of these tests reuses the first one's
work.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from server_process import free_port

from ratchet.evaluation.report import HEADLINE, headline

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is missing: `make setup` installs it")
expect = sync_api.expect
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

ROOT = Path(__file__).resolve().parents[2]
SHOTS = ROOT / "screenshots"
GROUPS = ("intake", "splits", "rewards", "training", "evaluation", "release")
PATIENCE_MS = 90_000
DESKTOP, PHONE = {"width": 1440, "height": 1000}, {"width": 390, "height": 844}


class Served(NamedTuple):
    """A home whose loop has run, as `ratchet ui` shows it."""

    home: Path
    environment: dict[str, str]
    dagster: str
    mlflow: str
    report: dict[str, Any]
    run_id: str

    @property
    def decided(self) -> dict[str, Any]:
        """The entry of the candidate that the gate decided on."""
        name = self.report["decision"]["candidate"]
        (found,) = (one for one in self.report["policies"] if one["name"] == name)
        return dict(found)

    def ratchet(self, *arguments: str) -> str:
        """What a command of `ratchet` prints."""
        command = [sys.executable, "-m", "ratchet.cli", *arguments, "--home", str(self.home)]
        return subprocess.run(
            command, cwd=ROOT, env=self.environment, stdout=subprocess.PIPE, text=True, check=True
        ).stdout

    def fetch(self, url: str, body: dict[str, Any] | None = None) -> Any:
        """JSON from one of the servers."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data=data, headers={"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def versions(self) -> list[dict[str, Any]]:
        """Versions of the registered model in MLflow, oldest first."""
        found = self.fetch(f"{self.mlflow}/api/2.0/mlflow/model-versions/search")["model_versions"]
        return sorted(found, key=lambda one: int(one["version"]))

    def version(self) -> dict[str, Any]:
        """The decided candidate's version."""
        name = self.report["decision"]["candidate"]
        found = [one for one in self.versions() if {"key": "ratchet.name", "value": name} in one["tags"]]
        return dict(found[-1])


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The fast loop, run or found done, and both servers on free ports."""
    given = os.environ.get("RATCHET_UI_HOME")
    home = Path(given).resolve() if given else tmp_path_factory.mktemp("home")
    environment = {**os.environ, "DAGSTER_HOME": str(tmp_path_factory.mktemp("dagster"))}
    environment.pop("MLFLOW_TRACKING_URI", None)
    before = Served(home, environment, "", "", {}, "")
    told = re.search(r"ratchet report (\S+) --json", before.ratchet("run", "--fast"))
    assert told, "`ratchet run` says how to read its report"
    run_id = told[1]
    ports = ["--dagster-port", str(free_port()), "--mlflow-port", str(free_port())]
    command = [sys.executable, "-m", "ratchet.cli", "ui", "--home", str(home), *ports]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(4)]
            assert lines[3] == "Ctrl-C stops them.\n", lines
            report = json.loads(before.ratchet("report", run_id, "--json"))
            yield Served(home, environment, lines[1].split()[1], lines[2].split()[1], report, run_id)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


def see(page: Any, url: str, text: str, name: str) -> str:
    """Open a page, wait for a text, save a screenshot; returns all text of the page."""
    page.goto(url, wait_until="domcontentloaded")
    expect(page.get_by_text(text).first).to_be_visible(timeout=PATIENCE_MS)
    # MLflow opens its assistant over a quarter of the width at a first visit.
    assistant = page.get_by_role("button", name="Close", exact=True)
    if assistant.is_visible():
        assistant.click()
    return shot(page, name)


def shot(page: Any, name: str, full: bool = False) -> str:
    page.wait_for_timeout(2000)
    page.screenshot(path=str(SHOTS / f"{name}.png"), full_page=full)
    return " ".join(str(page.inner_text("body")).split())


def test_dagster_shows_the_lineage_by_group(served: Served, page: Any) -> None:
    text = see(page, f"{served.dagster}/asset-groups", "evaluation", "dagster-lineage")
    assert all(group in text for group in GROUPS)
    place = f"{served.dagster}/assets/heldout_scorecard?view=lineage"
    text = see(page, place, "heldout_scorecard", "dagster-lineage-of-the-scorecard")
    expect(page.get_by_text("heldout_rows").first).to_be_visible(timeout=PATIENCE_MS)
    expect(page.get_by_text("release_decision").first).to_be_visible(timeout=PATIENCE_MS)
    assert "Join the Dagster community" not in text


def test_dagster_shows_the_policy_table_and_the_plot(served: Served, page: Any) -> None:
    place = f"{served.dagster}/assets/heldout_scorecard?view=events"
    text = see(page, place, HEADLINE[0], "dagster-scorecard")
    for row in headline(served.report["policies"]):
        assert " ".join(row.values()) in text
    page.get_by_role("row", name="acceptance (plot)").get_by_text("[Show Markdown]").click()
    plot = page.get_by_alt_text("acceptance with intervals")
    expect(plot).to_be_visible(timeout=PATIENCE_MS)
    assert plot.evaluate("image => image.naturalWidth") > 300
    shot(page, "dagster-acceptance-plot")


def test_dagster_shows_the_decision_rule_by_rule(served: Served, page: Any) -> None:
    decision = served.report["decision"]
    place = f"{served.dagster}/assets/release_decision?view="
    text = see(page, f"{place}events", "all rules", "dagster-decision")
    assert f"{decision['state']} {decision['candidate']}" in text
    by_outcome = {rule["passed"]: rule for rule in decision["rules"]}
    for passed, rule in by_outcome.items():
        text = see(page, f"{place}checks&checkDetail={rule['name']}", rule["reason"], f"dagster-check-{rule['name']}")
        assert f"Checks ({len(decision['rules']) + 1})" in text
        outcome = "Passed" if passed else "Warning" if rule["on_failure"] == "review" else "Failed"
        assert f"Evaluation result {outcome}" in text, rule["name"]


def test_dagster_shows_the_learning_curves(served: Served, page: Any) -> None:
    place = f"{served.dagster}/assets/grpo_policy?view=events"
    text = see(page, place, "learning curves (plot)", "dagster-grpo")
    assert "validation acceptance" in text
    page.get_by_role("row", name="learning curves (plot)").get_by_text("[Show Markdown]").click()
    plot = page.get_by_alt_text("learning curves")
    expect(plot).to_be_visible(timeout=PATIENCE_MS)
    assert plot.evaluate("image => image.naturalWidth") > 300
    shot(page, "dagster-grpo-curves")


def test_mlflow_shows_the_registered_versions(served: Served, page: Any) -> None:
    version, decision = served.version(), served.report["decision"]
    text = see(page, f"{served.mlflow}/#/models/{version['name']}", "Version 1", "mlflow-model")
    assert all(f"Version {one['version']}" in text for one in served.versions())
    place = f"{served.mlflow}/#/models/{version['name']}/versions/{version['version']}"
    text = see(page, place, "Open the release report", "mlflow-version")
    row = headline([served.decided])[0]
    assert f"{row['policy']}, made by {served.decided['method']}" in text
    assert f"Decision of the gate: {decision['state']}" in text
    for said in (*decision["reasons"], *(f"{label}: {row[label]}" for label in HEADLINE)):
        assert said in text
    tags = {tag["key"]: tag["value"] for tag in version["tags"]}
    assert tags["ratchet.state"] == served.report["release"]["state"]
    state = page.get_by_role("row").filter(has=page.get_by_text("ratchet.state", exact=True))
    state.scroll_into_view_if_needed()
    expect(state).to_contain_text(tags["ratchet.state"])
    shot(page, "mlflow-version-tags")


def test_mlflow_shows_the_figures_and_the_report_of_a_version(served: Served, page: Any) -> None:
    version = served.version()
    run = served.fetch(f"{served.mlflow}/api/2.0/mlflow/runs/get?run_id={version['run_id']}")["run"]
    place = f"{served.mlflow}/#/experiments/{run['info']['experiment_id']}/runs/{version['run_id']}"
    text = see(page, place, "accepted_tasks", "mlflow-run")
    for name, value in (
        ("accepted_tasks", served.decided["accepted_tasks"]),
        ("acceptance", served.decided["acceptance"]["value"]),
    ):
        found = re.search(rf" {name} ([\d.]+)", text)
        assert found, name
        assert float(found[1]) == pytest.approx(value)
    page.goto(f"{place}/model-metrics")
    page.get_by_placeholder("Search metric charts").fill("curve_")
    expect(page.get_by_text("curve_loss").first).to_be_visible(timeout=PATIENCE_MS)
    expect(page.locator(".js-plotly-plot").first).to_be_visible(timeout=PATIENCE_MS)
    shot(page, "mlflow-curves")
    page.goto(f"{place}/artifacts/report.html")
    lead = page.frame_locator("iframe").get_by_text(served.report["decision"]["reasons"][0]).first
    expect(lead).to_be_visible(timeout=PATIENCE_MS)
    shot(page, "mlflow-report")


def test_an_alias_moved_by_hand_is_put_right_by_the_sensor_and_told(served: Served, page: Any) -> None:
    name, api = served.version()["name"], f"{served.mlflow}/api/2.0/mlflow/registered-models"

    def alias() -> str | None:
        model = served.fetch(f"{api}/get?name={name}")["registered_model"]
        return next((one["version"] for one in model.get("aliases", []) if one["alias"] == "production"), None)

    before = alias()
    moved = next(one["version"] for one in served.versions() if one["version"] != before)
    served.fetch(f"{api}/alias", {"name": name, "alias": "production", "version": moved})
    assert alias() == moved
    selector = {"repositoryName": "__repository__", "repositoryLocationName": "ratchet"}
    started = served.fetch(
        f"{served.dagster}/graphql",
        {
            "query": "mutation ($it: SensorSelector!) { startSensor(sensorSelector: $it) { __typename } }",
            "variables": {"it": {**selector, "sensorName": "registry_reconciler"}},
        },
    )
    assert started["data"]["startSensor"]["__typename"] == "Sensor"
    deadline = time.monotonic() + 300
    while alias() != before and time.monotonic() < deadline:
        time.sleep(1)
    assert alias() == before
    expected = f"version {before}" if before else "not set"
    assert f"alias production of {name} was version {moved}, expected {expected}; put right" in served.ratchet(
        "history"
    )
    place = f"{served.dagster}/assets/production_policy?view=events"
    for _ in range(30):
        text = see(page, place, "production_policy", "dagster-incident")
        if f"alias production of {name}" in text:
            break
        page.wait_for_timeout(2000)
    assert f"alias production of {name} version {moved} {expected} yes" in text


@pytest.mark.parametrize(
    ("name", "size", "scheme"),
    [
        ("desktop", DESKTOP, "light"),
        ("desktop-dark", DESKTOP, "dark"),
        ("phone", PHONE, "light"),
        ("phone-dark", PHONE, "dark"),
    ],
)
def test_the_report_reads_without_a_network(
    served: Served, browser: Any, name: str, size: dict[str, int], scheme: str
) -> None:
    asked: list[str] = []
    with browser.new_context(viewport=size, color_scheme=scheme, offline=True) as context:
        page = context.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.goto((served.home / "reports" / f"{served.run_id}.html").as_uri())
        text = shot(page, f"report-{name}", full=True)
        assert len(asked) == 1
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 26)"
        assert dark == (scheme == "dark")
    for row in headline(served.report["policies"]):
        assert all(value in text for value in row.values())
