"""`ratchet ui`: Dagster and MLflow on one home folder, as long as the command runs.

Both are children that end with it; what they print goes to `<home>/logs/`. Where MLFLOW_TRACKING_URI names a server,
that one is shown and none is started.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from ratchet import children
from ratchet.cli.options import HOME, Home, project
from ratchet.errors import RatchetError

START_S = 180.0
"""Both take about 20 s on two free cores, and the first start migrates MLflow's database besides."""
LOOPBACK = "127.0.0.1"


class Service(NamedTuple):
    """A server to start: what it is called, how, and where it answers once it is ready."""

    name: str
    command: list[str]
    port: int
    health: str
    environment: Mapping[str, str]

    @property
    def url(self) -> str:
        """Where a browser finds it."""
        return f"http://{LOOPBACK}:{self.port}"


def ui(
    home: Home = HOME,
    dagster_port: Annotated[int, typer.Option("--dagster-port", help="Port of Dagster.")] = 3000,
    mlflow_port: Annotated[int, typer.Option("--mlflow-port", help="Port of MLflow.")] = 5000,
) -> None:
    """Show the home folder in Dagster (lineage, checks, runs) and MLflow (policies, versions) until Ctrl-C."""
    root, home = project(), home.resolve()
    services = [dagster(home, dagster_port)]
    elsewhere = os.environ.get("MLFLOW_TRACKING_URI", "")
    if not elsewhere:
        services.append(mlflow(home, mlflow_port))
    for service in services:
        _require_free(service)
    (home / "logs").mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        running = []
        for service in services:
            log = stack.enter_context(_log(home, service).open("w", encoding="utf-8"))
            child = children.start(
                service.command,
                cwd=root,
                env={**os.environ, **service.environment},
                output=log,
                at_death=signal.SIGTERM,
            )
            stack.callback(children.stop, child)
            running.append(child)
        heard = stack.enter_context(children.passing_on())
        typer.echo(f"starting; what they print is in {home / 'logs'}")
        for service, child in zip(services, running, strict=True):
            _wait_until_ready(home, service, child, heard)
            if not heard.signals:
                typer.echo(f"{service.name:<8} {service.url}")
        if elsewhere:
            typer.echo(f"MLflow   {elsewhere}")
        if not heard.signals:
            typer.echo("Ctrl-C stops them.")
        while not heard.signals:
            for service, child in zip(services, running, strict=True):
                _require_alive(home, service, child)
            time.sleep(0.5)
        typer.echo("stopping")


def dagster(home: Path, port: int) -> Service:
    """Dagster's web server and daemon, over the instance of the project's `dagster.yaml` or of DAGSTER_HOME."""
    command = [sys.executable, "-m", "dagster", "dev", "-w", "workspace.yaml", "-h", LOOPBACK, "-p", str(port)]
    environment = {"RATCHET_HOME": str(home), "DAGSTER_DISABLE_TELEMETRY": "1"}
    return Service("Dagster", command, port, "/server_info", environment)


def mlflow(home: Path, port: int) -> Service:
    """MLflow's server over the database and the files that the loop writes to."""
    command = [sys.executable, "-m", "mlflow", "server", "--host", LOOPBACK, "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{home / 'mlflow.db'}"]
    command += ["--artifacts-destination", str(home / "mlflow-artifacts")]
    environment = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    return Service("MLflow", command, port, "/health", environment)


def _log(home: Path, service: Service) -> Path:
    return home / "logs" / f"{service.name.lower()}.log"


def _require_free(service: Service) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, service.port))
        except OSError as error:
            raise RatchetError(
                f"port {service.port}",
                rule=f"{service.name} needs it ({error.strerror})",
                remedy=f"end what uses it, or give --{service.name.lower()}-port",
            ) from None


def _wait_until_ready(home: Path, service: Service, child: subprocess.Popen[str], heard: children.Heard) -> None:
    deadline = time.monotonic() + START_S
    while not heard.signals:
        _require_alive(home, service, child)
        with contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError):
            urllib.request.urlopen(f"{service.url}{service.health}", timeout=5).close()
            return
        if time.monotonic() > deadline:
            raise RatchetError(
                service.name,
                rule=f"it must answer at {service.url} within {START_S:.0f} s",
                remedy=f"see {_log(home, service)}",
            )
        time.sleep(0.3)


def _require_alive(home: Path, service: Service, child: subprocess.Popen[str]) -> None:
    status = child.poll()
    if status is not None:
        raise RatchetError(
            service.name, seen=f"ended with {status}", rule="it must keep running", remedy=f"see {_log(home, service)}"
        )
