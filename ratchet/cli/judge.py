"""`ratchet judge`: how far a judge agrees with the experts, what they should look at, and their labels back in."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ratchet.cli.options import HOME, Home
from ratchet.errors import RatchetError

if TYPE_CHECKING:
    from ratchet.loop.context import Run

app = typer.Typer(
    help="Judges: calibration and looks since, work for the experts, and their labels.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Experiment = Annotated[
    str | None, typer.Option("--experiment", help="Id of the experiment; the newest with a judge where it is left out.")
]


@app.command()
def show(experiment: Experiment = None, home: Home = HOME) -> None:
    """Show the calibration with all its companions, and every look at the judge since."""
    from ratchet.loop.judge import audit_rows, companions, open_calibration
    from ratchet.loop.judge_drift import looks

    run = _run(home, experiment)
    found = open_calibration(run)
    if found is None:
        typer.echo(f"{run.manifest.run_id}: the judge is not calibrated yet.")
        return
    note = "SIMULATED labels" if found.simulated else "labels by persons"
    typer.echo(f"{run.manifest.run_id}: {found.rubric} {found.rubric_version}, {note}")
    for row in companions(found):
        typer.echo(f"  {row['figure']}: {_told(row.get('value', row.get('interval')))}")
    for row in audit_rows(run):
        verdict = f" ({row['labels']})" if row["labels"] else ""
        typer.echo(f"  {row['figure']}: {_told(row['value'])}{verdict}")
    typer.echo("  calibrated" if found.passed else f"  NOT calibrated: {'; '.join(found.failures)}")
    for look in looks(run):
        typer.echo(f"  {look.told}")


@app.command()
def queue(
    out: Annotated[Path, typer.Argument(metavar="OUT.csv", help="File to write; it holds the works themselves.")],
    fresh: Annotated[int, typer.Option("--fresh", min=0, help="Also so many works that nobody has labelled.")] = 0,
    experiment: Experiment = None,
    home: Home = HOME,
) -> None:
    """Write what judge and experts grade differently, with both reasons, for experts to label."""
    from ratchet.loop.judge_queue import disagreements, to_csv, unlabelled

    run = _run(home, experiment)
    rows = [*disagreements(run), *unlabelled(run, fresh)]
    out.write_text(to_csv(run, rows), encoding="utf-8")
    typer.echo(f"{len(rows)} works in {out}. Fill in category, rater and reason, then `ratchet judge labels {out}`.")


@app.command()
def labels(
    source: Annotated[Path, typer.Argument(metavar="IN.csv", exists=True, dir_okay=False, help="Labels to take in.")],
    experiment: Experiment = None,
    home: Home = HOME,
) -> None:
    """Take labels in; rows without a category are passed over, and the same labels again add nothing."""
    from ratchet.loop.judge_queue import take_labels

    added = take_labels(_run(home, experiment), source.read_text(encoding="utf-8-sig"), datetime.now(UTC))
    typer.echo(f"{added} new labels.")


@app.command()
def recalibrate(
    reason: Annotated[str, typer.Option("--reason", help="Why; it is kept.")],
    experiment: Experiment = None,
    home: Home = HOME,
) -> None:
    """Make and calibrate the next generation of the judge, on labels that no earlier one was calibrated on."""
    from ratchet.loop import judge

    run = _run(home, experiment)
    judge.recalibrate(run, reason)
    typer.echo(judge.judge_calibration(run).summary)


def _run(home: Path, experiment: str | None) -> Run:
    from ratchet.loop.context import reopen_run, runs

    for run_id in [experiment] if experiment else reversed(runs(home)):
        run = reopen_run(home, run_id)
        if run.manifest.reward.judge is not None:
            return run
    raise RatchetError(
        f"home folder {home}",
        seen=experiment or "no experiment with a judge",
        rule="the manifest must state a judge under reward.judge",
        remedy="run such an experiment, for example experiments/judged.yaml",
    )


def _told(value: object) -> str:
    if isinstance(value, dict):
        if "low" in value:
            return f"[{value['low']:.3f}, {value['high']:.3f}]"
        return str(next(iter(value.values())))
    return f"{value:.3f}" if isinstance(value, float) else str(value)
