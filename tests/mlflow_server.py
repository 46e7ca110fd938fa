"""A real MLflow tracking server on a free loopback port, and a migrated database to copy."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from server_process import answers, await_ready, free_port, started

START_S = 120.0


def migrated_database(folder: Path) -> Path:
    """Make an MLflow database once; copying it spares each test several seconds of migrations."""
    from ratchet.store import Store
    from resources.mlflow_models import Models

    path = folder / "template.db"
    Models(f"sqlite:///{path}", Store(folder / "store"), folder / "files").client.search_experiments()
    return path


@contextlib.contextmanager
def running_server(folder: Path, database: Path, *, password: str = "") -> Iterator[str]:
    """Start `mlflow server` on `database` with proxied artifacts under `folder`; yield its URL and stop it.

    With a password it asks for a login, knows the user `admin` by it, and lets everybody edit.
    """
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    log = folder / "server.log"
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{database}", "--artifacts-destination", str(folder / "artifacts")]
    environment = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    if password:
        users = folder / "auth.ini"
        database_of_users = f"sqlite:///{folder / 'auth.db'}"
        users.write_text(
            "[mlflow]\nadmin_username = admin\ndefault_permission = EDIT\n"
            "authorization_function = mlflow.server.auth:authenticate_request_basic_auth\n"
            f"database_uri = {database_of_users}\n"
        )
        command += ["--app-name", "basic-auth"]
        environment |= {
            "MLFLOW_AUTH_CONFIG_PATH": str(users),
            "MLFLOW_AUTH_ADMIN_PASSWORD": password,
            "MLFLOW_FLASK_SERVER_SECRET_KEY": password,
        }
    with started(command, folder=folder, environment=environment, log=log) as server:
        await_ready(server, lambda: answers(f"{url}/health"), log, START_S)
        yield url
