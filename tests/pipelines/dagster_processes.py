"""Dagster's own processes on a home folder that is its instance, too: a webserver that answers GraphQL, a daemon."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from server_process import answers, await_ready, free_port, started

ROOT = Path(__file__).resolve().parents[2]
READY_S = 240.0
WHERE = ["-m", "pipelines.definitions", "-d", str(ROOT)]
LOCATION = {"repositoryName": "__repository__", "repositoryLocationName": "pipelines.definitions"}
LAUNCH = """mutation($given: ExecutionParams!) { launchRun(executionParams: $given) {
  __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }"""
AGAIN = """mutation($given: ReexecutionParams!) { launchRunReexecution(reexecutionParams: $given) {
  __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }"""
ENDED = ("SUCCESS", "FAILURE", "CANCELED")


def configured(home: Path, **settings: Any) -> None:
    """Make a home a Dagster instance whose runs start at once, with further settings of `dagster.yaml`."""
    coordinator = {"module": "dagster._core.run_coordinator", "class": "DefaultRunCoordinator"}
    kept = {"telemetry": {"enabled": False}, "run_coordinator": coordinator, **settings}
    (home / "dagster.yaml").write_text(yaml.safe_dump(kept), encoding="utf-8")


@contextlib.contextmanager
def running(home: Path, command: list[str], **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of Dagster on `home`, ended with everything that it started."""
    environment = {**os.environ, "DAGSTER_HOME": str(home), "RATCHET_HOME": str(home), "OMP_NUM_THREADS": "1"}
    command, log = [sys.executable, "-m", *command], home / f"{command[0]}.log"
    with started(command, folder=ROOT, environment=environment | variables, log=log) as child:
        yield child


class Webserver:
    """A running webserver, asked over GraphQL."""

    def __init__(self, url: str) -> None:
        """Ask `url`."""
        self.url = url

    def ask(self, query: str, **variables: Any) -> Any:
        """Data of an answer."""
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(f"{self.url}/graphql", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as answer:
            found = json.load(answer)
        assert "errors" not in found, found
        return found["data"]

    def launch(self, job: str, key: str, assets: list[str]) -> str:
        """Launch some assets of a job for a partition, as the UI does; returns the run's id."""
        given = {
            "selector": {**LOCATION, "jobName": job, "assetSelection": [{"path": [name]} for name in assets]},
            "executionMetadata": {"tags": [{"key": "dagster/partition", "value": key}]},
        }
        return self._started(self.ask(LAUNCH, given=given)["launchRun"])

    def from_failure(self, run_id: str) -> str:
        """Execute a failed run again from where it failed; returns the new run's id."""
        given = {"parentRunId": run_id, "strategy": "FROM_FAILURE"}
        return self._started(self.ask(AGAIN, given=given)["launchRunReexecution"])

    def ended(self, run_id: str) -> str:
        """Wait for the end of a run; returns its status."""
        query = "query($id: ID!) { runOrError(runId: $id) { ... on Run { status } } }"
        deadline = time.monotonic() + READY_S
        while (status := self.ask(query, id=run_id)["runOrError"]["status"]) not in ENDED:
            assert time.monotonic() < deadline, status
            time.sleep(0.5)
        return str(status)

    @staticmethod
    def _started(answer: dict[str, Any]) -> str:
        assert answer["__typename"] == "LaunchRunSuccess", answer
        return str(answer["run"]["runId"])


@contextlib.contextmanager
def webserver(home: Path) -> Iterator[Webserver]:
    """A webserver on `home` that answers."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with running(home, ["dagster_webserver", "-h", "127.0.0.1", "-p", str(port), *WHERE]) as child:
        await_ready(child, lambda: answers(f"{url}/server_info"), home / "dagster_webserver.log", READY_S)
        yield Webserver(url)
