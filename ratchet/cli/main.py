"""`ratchet`: the commands, and what a person sees when one of them refuses.

Every command imports what it needs inside itself, so that `ratchet --help` is quick. A `RatchetError` is one line on
standard error and exit status 2; anything else that escapes is a bug and keeps its traceback.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import ratchet
from ratchet.cli import doctor, ingest, judge, keys, release, report, rights, run, serve, splits, ui, verify
from ratchet.errors import RatchetError

REFUSED = 2
"""Exit status of a command that refused."""


class Commands(TyperGroup):
    """The one place where errors become words."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except RatchetError as error:
            typer.echo(f"error: {error}", err=True)
            raise typer.Exit(REFUSED) from None


app = typer.Typer(
    cls=Commands,
    help="A self-hosted, controlled learning loop for agent policies.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(ratchet.__version__)
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and stop.")
    ] = False,
) -> None:
    """A self-hosted, controlled learning loop for agent policies."""


for command in (run.run, report.report, doctor.doctor, ingest.ingest):
    app.command()(command)
release.register(app)
verify.register(app)
app.add_typer(rights.app, name="rights")
app.add_typer(splits.app, name="contamination")
app.add_typer(splits.locks, name="splits")
app.add_typer(judge.app, name="judge")
app.add_typer(keys.app, name="keys")
app.command()(serve.serve)
app.command()(serve.qualify)
app.command()(ui.ui)
