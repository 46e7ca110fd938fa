"""From `ratchet rights erase` to what Dagster and MLflow hold: a process of the project, which may import them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ratchet.cli.options import find_project
from ratchet.errors import RatchetError

if TYPE_CHECKING:
    from ratchet.loop.erasing import Purge
    from ratchet.loop.places import Item, Scope

TIMEOUT_S = 600.0


class ProjectPurge:
    """The hook of an erasure, in a process that may import Dagster and MLflow."""

    def __init__(self, root: Path) -> None:
        """Run it in the project at `root`."""
        self.root = root

    def listed(self, scope: Scope) -> list[Item]:
        """What the tools hold of the data."""
        from ratchet.loop.places import Item

        return [Item(**json.loads(line)) for line in self._run("list", scope).splitlines()]

    def purge(self, scope: Scope) -> None:
        """Remove it. Raises RatchetError with the last words of the process where that failed."""
        self._run("apply", scope)

    def _run(self, command: str, scope: Scope) -> str:
        given = json.dumps({**scope._asdict(), "home": str(scope.home)})
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "pipelines.purge", command],
            cwd=self.root,
            input=given,
            env={**os.environ, "RATCHET_HOME": str(scope.home)},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise RatchetError(
                "what Dagster and MLflow hold of the data",
                seen=last.removeprefix("error: "),
                rule="it must be emptied before an erasure is complete",
                remedy="remove the cause and erase again; what was removed stays removed",
            )
        return done.stdout


def project_purges(home: Path) -> list[Purge]:
    """The hook, where there is a project. Raises RatchetError where a tracking store is there and no project is."""
    root = find_project()
    if root is not None:
        return [ProjectPurge(root)]
    if os.environ.get("MLFLOW_TRACKING_URI") or (home / "mlflow.db").exists():
        raise RatchetError(
            "what Dagster and MLflow hold of the data",
            rule="it can only be found and emptied from the project folder",
            remedy="give this command in the folder that holds workspace.yaml",
        )
    return []
