"""`ratchet run`: the whole loop of one experiment, as runs that Dagster shows, then what came out of it.

The loop runs in a process of its own that this one only listens to: lines are relayed as they come, signals are passed
on. However it ends, the state under the home folder is whole, and running again goes on where it stopped.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from ratchet import children
from ratchet.cli.options import HOME, Home, project
from ratchet.errors import ManifestError

STAGE = re.compile(r"^\[ *\d+/\d+\] (?P<name>\w+): .*\((?P<how>reused|\d+\.\d s)\)$")
"""The line of `pipelines.launch` that says how a stage ended."""
LOOKED_UP = frozenset({"rights_ledger", "judge_disagreements"})
"""Stages that show the present state and do no work, so that they have nothing to reuse."""
REFUSED = 2
INTERRUPTED = 130
"""Status of a loop that heard the signal itself, and has said so."""


def run(
    experiment: Annotated[
        str, typer.Argument(help="A manifest, or the name of one in experiments/.")
    ] = "experiments/repair.yaml",
    fast: Annotated[bool, typer.Option("--fast", help="The short form that the manifest describes.")] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Another value for a field, such as seed=7. May be repeated."),
    ] = None,
    home: Home = HOME,
) -> None:
    """Run the improvement loop, to the release decision. Finished work is not done again."""
    from ratchet.contracts.manifest_file import load_manifest, read_overrides

    root, home = project(), home.resolve()
    path = find_manifest(experiment, root)
    # Read here too, so that a mistake is told at once and not after the imports of the loop.
    manifest = load_manifest(path, fast=fast, overrides=read_overrides(settings or []))
    command = [sys.executable, "-m", "pipelines.launch", "--home", str(home), "--manifest", str(path)]
    command += ["--fast"] if fast else []
    for setting in settings or []:
        command += ["--set", setting]
    stages = relay(command, root)
    from ratchet.cli.report import show

    show(home, manifest.run_id)
    typer.echo(said(stages))


def find_manifest(experiment: str, root: Path) -> Path:
    """The manifest that a path or a name means. Raises ManifestError where there is none."""
    places = [Path(experiment), root / experiment, root / "experiments" / f"{experiment}.yaml"]
    for place in places:
        if place.is_file():
            return place.resolve()
    known = sorted(path.stem for path in (root / "experiments").glob("*.yaml"))
    raise ManifestError(
        f"experiment {experiment!r}",
        rule="it must be a manifest file, or the name of one in experiments/",
        remedy=f"give a path, or one of: {', '.join(known)}",
    )


def relay(command: list[str], root: Path) -> dict[str, bool]:
    """Run the loop, relay its lines to standard error; returns for each stage whether it was reused.

    Raises:
        typer.Exit: the loop refused (2; it has said why), or was interrupted (128 and the signal's number).
    """
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    # Sampling depends on the number of threads in the last bit, so it is fixed; models this small gain nothing by more.
    environment.setdefault("OMP_NUM_THREADS", "1")
    stages: dict[str, bool] = {}
    child = children.start(command, cwd=root, env=environment, output=subprocess.PIPE, at_death=signal.SIGKILL)
    with children.passing_on(child) as heard, child:
        assert child.stdout is not None
        for line in child.stdout:
            typer.echo(line.rstrip("\n"), err=True)
            found = STAGE.match(line.rstrip())
            if found:
                stages[found["name"]] = found["how"] == "reused"
        status = child.wait()
    if heard.status is not None:
        if status != INTERRUPTED:
            typer.echo("interrupted; nothing is lost: the same command goes on where this one stopped", err=True)
        raise typer.Exit(heard.status)
    if status:
        raise typer.Exit(REFUSED if status > 0 else 128 - status)
    return stages


def said(stages: dict[str, bool]) -> str:
    """Say in one line how much of the loop was done already."""
    work = {name: reused for name, reused in stages.items() if name not in LOOKED_UP}
    done = [name for name, reused in work.items() if not reused]
    if not done:
        return f"Everything was reused: all {len(work)} stages were finished, so no work was done twice."
    if len(done) == len(work):
        return f"All {len(work)} stages were done; running again reuses them."
    return f"{len(work) - len(done)} of {len(work)} stages were reused; done now: {', '.join(done)}."
