"""`ratchet ingest`: an agent's logs into the trajectory store, under a grant that the rights ledger knows."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ratchet.cli.options import HOME, Home, console

if TYPE_CHECKING:
    from rich.table import Table

    from ratchet.intake import IntakeReport


class Personal(StrEnum):
    """What becomes of a record with personal data."""

    keep = "keep"
    quarantine = "quarantine"


class Engine(StrEnum):
    """What looks for personal data."""

    shapes = "shapes"
    presidio = "presidio"


def ingest(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH...",
            help="Files, folders that are walked, or URLs such as s3://bucket/prefix that are listed.",
        ),
    ],
    tenant: Annotated[str, typer.Option("--tenant", help="Whose data it is.")],
    grant: Annotated[str, typer.Option("--grant", help="Grant it comes in under.")],
    format: Annotated[str, typer.Option("--format", help="auto, or the name of a format: see docs/formats.md.")] = (
        "auto"
    ),
    canaries: Annotated[
        Path | None,
        typer.Option(
            "--canaries", help="File with strings that must never come in, one a line; remembered for the tenant."
        ),
    ] = None,
    personal: Annotated[
        Personal, typer.Option("--personal", help="Keep and flag records with personal data, or set them aside.")
    ] = Personal.keep,
    personal_engine: Annotated[
        Engine, typer.Option("--personal-engine", help="presidio looks for names and places too, where installed.")
    ] = Engine.shapes,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Processes that read; by default one per core.")
    ] = None,
    home: Home = HOME,
) -> None:
    """Take logs in. A bad record is set aside and costs no good one; the same logs again change nothing."""
    from datetime import UTC, datetime

    from ratchet.intake import canaries as kept
    from ratchet.intake import ingest as take_in
    from ratchet.rights import Ledger
    from ratchet.store import open_store

    home = home.resolve()
    if canaries is not None:
        count = kept.remember(home, tenant, kept.from_file(canaries))
        typer.echo(f"canaries in force for {tenant}: {count:,}")
    done = take_in(
        open_store(home),
        Ledger.at_home(home),
        paths,
        tenant=tenant,
        grant_id=grant,
        at=datetime.now(UTC),
        format=format,
        workers=workers,
        personal=personal.value,
        personal_engine=personal_engine.value,
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
        ("with personal data", done.personal_found),
    ):
        table.add_row(label, f"{count:,}")
    for label, counts in (
        ("format", done.formats),
        ("set aside for", done.reasons),
        ("quirk kept", done.anomalies),
        ("dropped", done.dropped),
        ("personal data:", done.personal),
    ):
        for name, count in sorted(counts.items()):
            table.add_row(f"{label} {name}", f"{count:,}")
    rate = done.bytes / 1e6 / done.seconds if done.seconds else 0.0
    crew = "1 process" if done.workers == 1 else f"{done.workers} processes"
    table.add_row("time", f"{done.bytes / 1e6:,.1f} MB in {done.seconds:.1f} s: {rate:,.1f} MB/s with {crew}")
    for name in done.batches or ("none: nothing was new",):
        table.add_row("batch", name)
    return table
