"""`ratchet report`: what an experiment came to, as tables, as one JSON object, or as a page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ratchet.cli.options import HOME, Home, console
from ratchet.errors import RatchetError

if TYPE_CHECKING:
    from ratchet.loop.context import Run


LANGUAGES = ("en", "es")
"""What the page can be opened in."""


def report(
    which: Annotated[
        str | None,
        typer.Argument(
            metavar="[EXPERIMENT]", help="Name of an experiment, or the start of a run's id; else the newest."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    html: Annotated[Path | None, typer.Option("--html", help="Write the report as one page to this file.")] = None,
    csv: Annotated[Path | None, typer.Option("--csv", help="Write every figure as CSV to this file.")] = None,
    language: Annotated[
        str, typer.Option("--language", help="Language that the page opens in and that the CSV is in: en or es.")
    ] = "en",
    home: Home = HOME,
) -> None:
    """Show the policies, their comparison and the release decision of a finished run."""
    home = home.resolve()
    if language not in LANGUAGES:
        raise RatchetError(
            "--language",
            seen=language,
            rule=f"it must be one of {', '.join(LANGUAGES)}",
            remedy="the page holds them all, and a button on it changes it",
        )
    run_id = find_run(home, which)
    if html is not None:
        html.write_text(_page(home, run_id, language), encoding="utf-8")
        typer.echo(f"wrote {html}", err=True)
    if csv is not None:
        csv.write_text(_csv(home, run_id, language), encoding="utf-8")
        typer.echo(f"wrote {csv}", err=True)
    if as_json:
        typer.echo(json.dumps(complete(home, run_id), indent=2, ensure_ascii=False, allow_nan=False))
    elif html is None and csv is None:
        show(home, run_id)


def find_run(home: Path, which: str | None) -> str:
    """Id of the newest run of the home that `which` means. Raises RatchetError where there is none."""
    from ratchet.loop.context import runs

    known = runs(home)
    found = [run_id for run_id in known if which is None or run_id.startswith(which)]
    if not found:
        raise RatchetError(
            f"run {which!r} under {home}" if which else f"home folder {home}",
            rule=f"it must be one of {', '.join(known)}" if known else "it must hold an experiment, and holds none yet",
            remedy="check the name" if known else "`ratchet run` makes one, `--home` names another folder",
        )
    return found[-1]


def missing_stage(run: Run) -> str | None:
    """The first stage that has not left what the report is made of, or None where all have."""
    from ratchet.loop.incumbent import reference_names
    from ratchet.loop.leaving_out import made

    candidates = [section.name for section in made(run)]
    policies = ["baseline", *candidates]
    compared = [*reference_names(run), *candidates]
    left = [
        ("task_catalogue", "tasks.jsonl"),
        ("split_lock", "splits/lock.json"),
        ("reward_audit", "reward_audit.json"),
        *((f"{name} policy", f"policies/{name}/policy.json") for name in policies),
        *((f"heldout_scorecard of {name}", f"scorecards/{name}.json") for name in compared),
        *((f"policy_audit of {name}", f"policy_audits/{name}.json") for name in candidates),
        ("release_decision", "decision.json"),
        ("production_policy", "evidence.json"),
    ]
    return next((stage for stage, name in left if not run.store.exists(run.name(name))), None)


def complete(home: Path, run_id: str) -> dict[str, Any]:
    """The report of a run that is complete. Raises RatchetError naming the first stage that is missing."""
    from ratchet.loop.context import reopen_run
    from ratchet.loop.deciding import report_of
    from ratchet.loop.wall_time import breakdown, training_times

    with reopen_run(home, run_id) as run:
        _require_complete(run)
        spent = [one._asdict() for one in breakdown(run)]
        trained = [one._asdict() for one in training_times(run)]
        return {**report_of(run), "wall_time": spent, "training_time": trained}


def show(home: Path, run_id: str) -> None:
    """Print the tables, and where to look further."""
    from ratchet.evaluation.audits import audit_tables
    from ratchet.evaluation.report import comparison_table, decision_table, left_out_lines, policy_table
    from ratchet.loop.wall_time import Spent, Trained, told, told_trained

    body = complete(home, run_id)
    screen = console()
    audits = audit_tables(body["audits"]) if "audits" in body else []
    for table in (policy_table(body), comparison_table(body), *audits, decision_table(body)):
        screen.print()
        screen.print(table)
    for line in left_out_lines(body):
        typer.echo(f"left out  {line}")
    lines = told([Spent(**one) for one in body["wall_time"]])
    for line in ["", "wall time by stage", *lines] if lines else []:
        typer.echo(line)
    for line in ["", "training time", *told_trained([Trained(**one) for one in body["training_time"]])]:
        typer.echo(line)
    typer.echo("")
    typer.echo(f"release  {body['release']['version']} stands in {body['release']['state']}")
    for label, where in _further(home, run_id):
        typer.echo(f"{label:<8} {where}")


def _further(home: Path, run_id: str) -> list[tuple[str, str]]:
    page = home / "reports" / f"{run_id}.html"
    again = "" if home == HOME.resolve() else f" --home {home}"
    return [
        ("page", str(page) if page.exists() else f"ratchet report {run_id} --html report.html{again}"),
        ("json", f"ratchet report {run_id} --json{again}"),
        ("ledger", f"ratchet history{again}, then ratchet approve | reject | rollback"),
        ("lineage", f"ratchet ui{again} (make ui): Dagster and MLflow"),
    ]


def _page(home: Path, run_id: str, language: str) -> str:
    from ratchet.loop.context import reopen_run
    from ratchet.loop.deciding import report_html

    with reopen_run(home, run_id) as run:
        _require_complete(run)
        return report_html(run, language)


def _csv(home: Path, run_id: str, language: str) -> str:
    from ratchet.evaluation.language import ENGLISH
    from ratchet.evaluation.spanish import spanish
    from ratchet.evaluation.spreadsheet import to_csv

    return to_csv(complete(home, run_id), ENGLISH if language == ENGLISH.code else spanish())


def _require_complete(run: Run) -> None:
    missing = missing_stage(run)
    if missing is not None:
        raise RatchetError(
            f"run {run.manifest.run_id}",
            rule=f"it must be complete to be reported, and {missing} is missing",
            remedy="`ratchet run` with the same settings goes on where it stopped",
        )
