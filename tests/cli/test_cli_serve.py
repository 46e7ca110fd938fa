"""`ratchet serve` refuses what it cannot serve; the server itself is tested in tests/serving."""

from __future__ import annotations

import fcntl
from pathlib import Path

from release_world import a_manifest
from typer.testing import CliRunner

from ratchet.cli.main import app
from ratchet.loop.context import open_run
from ratchet.release.ledger import Ledger
from ratchet.serving.depot import Depot


def test_a_line_without_an_experiment_is_refused_by_name(tmp_path: Path) -> None:
    open_run(tmp_path, a_manifest())
    for line in ("acme/other", "other/repair", "repair"):
        said = CliRunner().invoke(app, ["serve", line, "--home", str(tmp_path)])
        assert said.exit_code == 2
        assert "it must be TENANT/EXPERIMENT of a run" in said.output


def test_a_second_server_of_a_line_is_refused(tmp_path: Path) -> None:
    run = open_run(tmp_path, a_manifest())
    depot = Depot(tmp_path, run.store, Ledger.of(tmp_path), "acme", "repair")
    with (depot.root.parent / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        said = CliRunner().invoke(app, ["serve", "acme/repair", "--home", str(tmp_path)])
    assert said.exit_code == 2
    assert "one server of this home answers a line at a time" in said.output
