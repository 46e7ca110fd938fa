"""`ratchet approve`, `reject`, `rollback` and `history`: a person's hand on the release ledger.

The ledger is written first, and alone decides whether a command succeeded. Then MLflow's registry is brought up to date
in a process of its own; where that fails, one line says so and the registry sensor repairs it later.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ratchet.cli.options import HOME, Home, find_project
from ratchet.errors import TransitionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ratchet.release.ledger import Ledger
    from ratchet.release.records import Event, Version

PROJECTION_TIMEOUT_S = 180.0

VersionArgument = Annotated[
    str, typer.Argument(metavar="VERSION", help="Start of a version's or policy's digest, or a policy's name.")
]
By = Annotated[str, typer.Option("--by", help="Who does this; it stays in the ledger.")]
Reason = Annotated[str, typer.Option("--reason", help="Why, in words; it stays in the ledger.")]
Tenant = Annotated[str | None, typer.Option("--tenant", help="Tenant, where several have such an experiment.")]


def register(app: typer.Typer) -> None:
    """Mount the commands on the main app."""
    for command in (approve, reject, rollback, history):
        app.command()(command)


def approve(
    version: VersionArgument,
    by: By,
    reason: Reason,
    to: Annotated[str, typer.Option("--to", help="How far: staging, canary or production.")] = "canary",
    home: Home = HOME,
) -> None:
    """Approve the gate's latest decision on a version, and promote it."""
    from datetime import UTC, datetime

    from ratchet.loop.affected import approve as approve_version

    ledger = _ledger(home)
    found = ledger.find(version)
    upto = _promotion(to)
    events = approve_version(home, ledger, found, by=by, reason=reason, upto=upto, at=datetime.now(UTC))
    _say_moves(ledger, events)
    project_registry(home)


def reject(version: VersionArgument, by: By, reason: Reason, home: Home = HOME) -> None:
    """Reject a candidate, a staged version or a canary. It cannot come back."""
    ledger = _ledger(home)
    _say_moves(ledger, [ledger.reject(ledger.find(version), by=by, reason=reason)])
    project_registry(home)


def rollback(
    experiment: Annotated[str, typer.Argument(help="Experiment whose production is rolled back.")],
    by: By,
    reason: Reason,
    tenant: Tenant = None,
    home: Home = HOME,
) -> None:
    """Take the version in production out of it and put the previous one back, in one step."""
    ledger = _ledger(home)
    owner = _tenant_of(ledger, experiment, tenant)
    event, restored = ledger.rollback(owner, experiment, by=by, reason=reason)
    _say_moves(ledger, [event])
    typer.echo(f"production: {restored.label if restored else 'no version; the baseline serves again'}")
    project_registry(home)


def history(
    experiment: Annotated[str | None, typer.Argument(help="Experiment; all of them where it is left out.")] = None,
    tenant: Tenant = None,
    home: Home = HOME,
) -> None:
    """Show the release ledger, its slots and incidents, after verifying the chain of its events."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    ledger = _ledger(home)
    lines = [line for line in ledger.lines() if experiment in (None, line[1]) and tenant in (None, line[0])]
    if not lines:
        where = f"of {experiment}" if experiment else f"under {home}"
        typer.echo(f"The release ledger {where} has no events yet.")
        return
    count = ledger.verify()
    console = Console(soft_wrap=False)
    for owner, name in lines:
        known = ledger.versions(owner, name)
        table = Table(title=f"{owner}/{name}", box=box.SIMPLE, title_justify="left")
        for column in ("seq", "at", "version", "what", "by", "reason"):
            table.add_column(column, overflow="fold")
        for event in ledger.history(owner, name):
            at = event.at[:19].replace("T", " ")
            table.add_row(str(event.seq), at, known[event.version][0].label, _what(event), event.by, event.reason)
        console.print(table)
        for alias, held in ledger.current(owner, name).by_alias().items():
            typer.echo(f"  {alias}: {held.label}")
        for incident in ledger.incidents(owner, name):
            done = "put right" if incident.repaired else "left as it is"
            typer.echo(
                f"  incident at {incident.at[:19]}: {incident.what} was {incident.seen}, "
                f"expected {incident.expected}; {done}"
            )
    typer.echo(f"{count} events, chain verified.")


def _ledger(home: Path) -> Ledger:
    from ratchet.release.ledger import Ledger

    return Ledger.of(home)


def _promotion(name: str) -> str:
    from ratchet.release.states import PROMOTIONS

    if name not in PROMOTIONS:
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(PROMOTIONS)}", param_hint="--to")
    return name


def _tenant_of(ledger: Ledger, experiment: str, tenant: str | None) -> str:
    owners = [owner for owner, name in ledger.lines() if name == experiment and tenant in (None, owner)]
    if len(owners) != 1:
        raise TransitionError(
            f"experiment {experiment!r}",
            rule=f"it must name exactly one line of the release ledger, and names {', '.join(owners) or 'none'}",
            remedy="give --tenant" if owners else "see `ratchet history`",
        )
    return owners[0]


def _say_moves(ledger: Ledger, events: Sequence[Event]) -> None:
    version: Version = ledger.version(events[0].version)
    for event in events:
        typer.echo(f"{version.label} {_what(event)}, by {event.by}: {event.reason}")


def _what(event: Event) -> str:
    if event.kind == "moved":
        return f"{event.before} -> {event.state}"
    if event.kind == "approved":
        return f"approved up to {event.upto}"
    if event.kind == "watched":
        return f"live tasks came to a verdict, stays {event.state}"
    if event.kind in ("withdrawn", "expired"):
        return f"affected_{event.kind}, stays {event.state}"
    return "registered as candidate" if event.kind == "registered" else f"decided, stays {event.state}"


def project_registry(home: Path) -> None:
    """Bring MLflow up to date in a process of its own: `ratchet` itself never imports it."""
    root = find_project()
    if root is None:
        return
    command = [sys.executable, "-m", "resources.registry", "reconcile", "--home", str(home.resolve())]
    try:
        done = subprocess.run(
            command,
            cwd=root,
            env={**os.environ, "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1"},
            capture_output=True,
            text=True,
            timeout=PROJECTION_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        typer.echo(f"MLflow is not up to date yet ({error}); the registry sensor will repair it.", err=True)
        return
    for line in done.stdout.splitlines():
        typer.echo(line)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        typer.echo(f"MLflow is not up to date yet ({last}); the registry sensor will repair it.", err=True)
