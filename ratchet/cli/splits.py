"""`ratchet contamination` and `ratchet splits`: what a person decides about findings and about locked tasks.

A finding between training and the locked tasks is shown with both texts, and waived where it is no leak. A task that
may be used no more is withdrawn, and the lock superseded.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from ratchet.cli.options import HOME, Home

if TYPE_CHECKING:
    from ratchet.evaluation.openings import Opening
    from ratchet.loop.waiving import Found
    from ratchet.splits import SplitLock

SHOWN = 400
"""Characters of each text that are shown without --full."""

app = typer.Typer(
    help="Contamination: show what was found between training and the locked tasks; waive what is no leak.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

locks = typer.Typer(
    help="Split locks: show the versions of an experiment's lock; withdraw a task from it.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Experiment = Annotated[str | None, typer.Option("--experiment", help="Id of the experiment; all where it is left out.")]


@app.command()
def show(
    experiment: Experiment = None,
    full: Annotated[bool, typer.Option("--full", help="The whole excerpts, not their beginnings.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON list instead of text.")] = False,
    home: Home = HOME,
) -> None:
    """Show every finding with both texts, the rule it breaks, and who waived it."""
    from ratchet.loop.waiving import findings

    found = findings(home, experiment)
    if as_json:
        rows = [
            {
                "experiment": one.run_id,
                **one.finding.model_dump(mode="json"),
                "waiver": one.waiver.model_dump(mode="json") if one.waiver else None,
            }
            for one in found
        ]
        typer.echo(json.dumps(rows, indent=2))
        return
    for one in found:
        _say(one, full)
    waived = sum(one.waiver is not None for one in found)
    typer.echo(f"{len(found)} findings, {waived} waived, {len(found) - waived} open.")


@app.command()
def waive(
    finding: Annotated[str, typer.Argument(metavar="FINDING", help="Start of a finding's id.")],
    by: Annotated[str, typer.Option("--by", help="Who decides; it stays in the certificate.")],
    reason: Annotated[str, typer.Option("--reason", help="Why it is no leak; it stays in the certificate.")],
    experiment: Experiment = None,
    home: Home = HOME,
) -> None:
    """Waive a finding that is no leak. The experiment's next stage issues the certificate with the waiver in it."""
    from ratchet.loop.waiving import waive_finding

    done = waive_finding(home, finding, by=by, reason=reason, at=datetime.now(UTC), run_id=experiment)
    _say(done, full=False)
    typer.echo("The waiver is recorded. Run the experiment again: its certificate will have it.")


@locks.command("show")
def show_lock(
    experiment: Annotated[str, typer.Argument(metavar="EXPERIMENT", help="Id of the experiment.")], home: Home = HOME
) -> None:
    """Show the lock in force: version, sizes, groups, what was withdrawn by whom, and who opened the held-out set."""
    from ratchet.evaluation.openings import openings
    from ratchet.loop.context import reopen_run

    with reopen_run(home, experiment) as run:
        _say_lock(run.lock)
        _say_openings(openings(run.store, run.lock.heldout))


@locks.command()
def withdraw(
    experiment: Annotated[str, typer.Argument(metavar="EXPERIMENT", help="Id of the experiment.")],
    tasks: Annotated[list[str], typer.Argument(metavar="TASK...", help="Ids of the tasks.")],
    by: Annotated[str, typer.Option("--by", help="Who withdraws them; it stays in the lock.")],
    reason: Annotated[str, typer.Option("--reason", help="Why; it stays in the lock.")],
    home: Home = HOME,
) -> None:
    """Supersede the lock by a version without these tasks. Nothing measured before compares with what comes after."""
    from ratchet.loop.withdrawing import withdraw_tasks

    _say_lock(withdraw_tasks(home, experiment, tasks, by=by, reason=reason, at=datetime.now(UTC)))


def _say_lock(lock: SplitLock) -> None:
    sizes = ", ".join(f"{name} {len(lock.split(name))}" for name in ("train", "validation", "heldout"))
    typer.echo(f"version {lock.version}, {lock.digest[:16]}: {sizes}, {len(lock.left_out)} left out")
    typer.echo(f"  groups: {', '.join(f'{name} {count}' for name, count in sorted(lock.groups.items()))}")
    if lock.supersedes:
        typer.echo(f"  supersedes {lock.supersedes[:16]}; figures do not compare with those before")
    for one in lock.withdrawn:
        typer.echo(f"  without {one.task_id} ({one.split or 'surplus'}), withdrawn by {one.by}: {one.reason}")


def _say_openings(found: list[Opening]) -> None:
    from ratchet.evaluation.openings import judged

    typer.echo(f"  held-out set opened {len(found)} times, for {len(judged(found))} candidates")
    for one in found:
        role = "candidate" if one.candidate else "reference"
        who = f"{role} {one.policy} {one.policy_digest[:12]}, by {one.by}"
        typer.echo(f"    {one.at.isoformat()[:19]}  {one.experiment}  {who}")


def _say(one: Found, full: bool) -> None:
    found = one.finding
    typer.echo(f"{found.finding_id}  {found.layer}: {found.rule}")
    typer.echo(f"  in {one.run_id}: {found.split} task {found.task_id!r} and {found.document!r} of {found.source!r}")
    for name, text in (("task", found.task_text), ("document", found.document_text)):
        cut = text if full or len(text) <= SHOWN else f"{text[:SHOWN]} ..."
        typer.echo(f"  {name}:")
        typer.echo("\n".join(f"    | {line}" for line in cut.splitlines()))
    if one.waiver:
        typer.echo(f"  waived by {one.waiver.by} at {one.waiver.at.isoformat()[:19]}: {one.waiver.reason}")
