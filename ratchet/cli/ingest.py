"""`ratchet ingest`: an agent's logs into the trajectory store, under a grant that the rights ledger knows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ratchet.cli.options import HOME, Home, console

if TYPE_CHECKING:
    from rich.table import Table

    from ratchet.intake import IntakeReport


def ingest(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Files, or folders that are walked.")],
    tenant: Annotated[str, typer.Option("--tenant", help="Whose data it is.")],
    grant: Annotated[str, typer.Option("--grant", help="Grant it comes in under.")],
    format: Annotated[str, typer.Option("--format", help="auto, atif, openai_chat, or another that is installed.")] = (
        "auto"
    ),
    home: Home = HOME,
) -> None:
    """Take logs in. A bad record is set aside and costs no good one; the same logs again change nothing."""
    from datetime import UTC, datetime

    from ratchet import progress
    from ratchet.intake import ingest as take_in
    from ratchet.rights import Ledger
    from ratchet.store import open_store

    home = home.resolve()
    with progress.task("records read") as tick:
        done = take_in(
            open_store(home),
            Ledger.at_home(home),
            paths,
            tenant=tenant,
            grant_id=grant,
            at=datetime.now(UTC),
            format=format,
            progress=tick,
        )
    console().print(intake_table(done))
    if done.quarantined:
        typer.echo("What was set aside is kept, with the reason, in the batch's quarantine file; see docs/intake.md.")


def intake_table(done: IntakeReport) -> Table:
    """Lay out what one ingest did, a figure a line."""
    from rich.table import Table

    table = Table("", "", title=f"{done.tenant}: intake under {done.grant_id}", title_justify="left", show_header=False)
    for label, count in (
        ("files", done.sources),
        ("records read", done.read),
        ("stored", done.stored),
        ("known already", done.duplicates),
        ("set aside", done.quarantined),
        ("with a secret", done.secrets_found),
    ):
        table.add_row(label, f"{count:,}")
    for label, counts in (("format", done.formats), ("set aside for", done.reasons), ("quirk kept", done.anomalies)):
        for name, count in sorted(counts.items()):
            table.add_row(f"{label} {name}", f"{count:,}")
    table.add_row("batch", done.batch or "none: nothing was new")
    return table
