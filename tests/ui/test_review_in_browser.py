"""A person reviews a version in MLflow's own pages, and Dagster's show it in canary: real servers, daemon, checkpoint.

The item of the review queue is answered by clicking; afterwards, with both servers started anew, tags take the canary
away. Screenshots go to `screenshots/`.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from reviewed_home import MANIFEST, reviewed_home
from server_process import free_port

from ratchet.release.ledger import Ledger
from ratchet.release.records import Version
from ratchet.release.states import State

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is missing: `make setup` installs it")
expect = sync_api.expect
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
]

ROOT = Path(__file__).resolve().parents[2]
SHOTS = ROOT / "screenshots"
PATIENCE_MS = 120_000
MODEL = f"{MANIFEST.tenant}.{MANIFEST.experiment}"


class Servers(NamedTuple):
    """Where `ratchet ui` shows the home."""

    dagster: str
    mlflow: str


@contextlib.contextmanager
def shown(home: Path, instance: Path) -> Iterator[Servers]:
    """`ratchet ui` on a home, with sensors that look every five seconds, until the block ends."""
    environment = {
        **os.environ,
        "DAGSTER_HOME": str(instance),
        "RATCHET_SENSOR_INTERVAL_S": "5",
        "OMP_NUM_THREADS": "1",
    }
    environment.pop("MLFLOW_TRACKING_URI", None)
    command = [sys.executable, "-m", "ratchet.cli", "ui", "--home", str(home)]
    command += ["--dagster-port", str(free_port()), "--mlflow-port", str(free_port())]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(4)]
            assert lines[3] == "Ctrl-C stops them.\n", lines
            yield Servers(lines[1].split()[1], lines[2].split()[1])
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


def see(page: Any, url: str, text: str | re.Pattern[str], name: str) -> None:
    """Open a page until it shows a text (Dagster does not always redraw by itself), and save a screenshot."""
    for attempt in range(12):
        page.goto(url, wait_until="domcontentloaded")
        if attempt:
            page.reload(wait_until="domcontentloaded")
        with contextlib.suppress(AssertionError):
            expect(page.get_by_text(text).first).to_be_visible(timeout=PATIENCE_MS / 6)
            break
    expect(page.get_by_text(text).first).to_be_visible(timeout=1000)
    close_assistant(page)
    shot(page, name)


def close_assistant(page: Any) -> None:
    """MLflow opens its assistant over a quarter of the width at a first visit."""
    assistant = page.get_by_role("button", name="Close", exact=True)
    if assistant.first.is_visible():
        assistant.first.click()


def shot(page: Any, name: str) -> None:
    page.wait_for_timeout(1500)
    page.screenshot(path=str(SHOTS / f"{name}.png"))


def tag(page: Any, name: str, value: str) -> None:
    """Add a tag on the page of a version, as a person does."""
    page.get_by_placeholder("Name", exact=True).fill(name)
    page.get_by_placeholder("Value", exact=True).fill(value)
    page.locator("form").filter(has=page.get_by_placeholder("Value", exact=True)).get_by_role("button").click()
    expect(page.get_by_role("row").filter(has=page.get_by_text(name, exact=True))).to_be_visible()


def test_person_approves_in_mlflow_and_sees_the_canary_in_dagster_then_takes_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: Any
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    home, instance = tmp_path / "home", tmp_path / "instance"
    instance.mkdir()
    # No dialogue of Dagster's over its pages.
    (instance / "dagster.yaml").write_text("telemetry: {enabled: false}\nnux: {enabled: false}\n")
    version = reviewed_home(home)
    ledger = Ledger.of(home)
    with shown(home, instance) as servers:
        approve_in_the_queue(page, servers, version)
        place = f"{servers.dagster}/assets/production_policy?view=events"
        see(page, place, f"approve of {version.label} by Olga: now canary", "dagster-review-canary")
        assert ledger.state(version) is State.CANARY
        (approval,) = [event for event in ledger.history() if event.kind == "approved"]
        assert (approval.by, approval.reason) == ("Olga", "the figures hold")
        see(page, f"{servers.mlflow}/#/models/{MODEL}/versions/1", re.compile("now canary"), "mlflow-review-outcome")
        expect(page.get_by_text("canary", exact=True).first).to_be_visible()
    seq = ledger.position(MANIFEST.tenant, MANIFEST.experiment)
    with shown(home, instance) as servers:
        page.goto(f"{servers.mlflow}/#/models/{MODEL}/versions/1", wait_until="domcontentloaded")
        expect(page.get_by_placeholder("Name", exact=True)).to_be_attached()
        close_assistant(page)
        assert ledger.position(MANIFEST.tenant, MANIFEST.experiment) == seq
        tags = page.get_by_placeholder("Name", exact=True)
        tags.scroll_into_view_if_needed()
        for name, value in (("ratchet.review.by", "Olga"), ("ratchet.review.reason", "on second thoughts")):
            tag(page, name, value)
        tag(page, "ratchet.review", "Reject")
        page.get_by_text("ratchet.review.reason", exact=True).first.scroll_into_view_if_needed()
        page.screenshot(path=str(SHOTS / "mlflow-review-tags.png"))
        place = f"{servers.dagster}/assets/production_policy?view=events"
        see(page, place, f"reject of {version.label} by Olga: now rejected", "dagster-review-rejected")
    assert ledger.state(version) is State.REJECTED
    assert ledger.position(MANIFEST.tenant, MANIFEST.experiment) == seq + 1
    assert ledger.verify() == seq + 1


def approve_in_the_queue(page: Any, servers: Servers, version: Version) -> None:
    """From the page of the version to its item in the queue, and answer it."""
    page.goto(f"{servers.mlflow}/#/models/{MODEL}/versions/1", wait_until="domcontentloaded")
    link = page.get_by_role("link", name="Open the review queue")
    expect(link).to_be_visible()
    with page.context.expect_page() as opening:
        link.click()
    queue = opening.value
    queue.set_default_timeout(PATIENCE_MS)
    queue.get_by_text("release of versions").first.click()
    close_assistant(queue)
    shot(queue, "mlflow-review-queue")
    queue.get_by_role("button", name="Start review").click()
    expect(queue.get_by_text(f"May {version.label} answer live tasks?")).to_be_visible()
    for name in ("release report", "all figures", "the version", "evidence"):
        expect(queue.get_by_role("link", name=name, exact=True)).to_be_visible()
    queue.get_by_placeholder("Your name: this server asks for no login").fill("Olga")
    queue.get_by_text("Select an option").click()
    queue.get_by_role("option", name="approve").click()
    queue.get_by_placeholder("Rationale (optional)").fill("the figures hold")
    shot(queue, "mlflow-review-item")
    queue.get_by_role("button", name="Submit").click()
    expect(queue.get_by_text("All items in this queue have been reviewed!")).to_be_visible()
    queue.close()
