"""What several commands share: the option for the home folder, the console, and where the project is.

The Dagster project (`pipelines`, `assets`, `resources`) is never installed. It is beside the package in a checkout, or
it is the folder that the command is given in.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import ratchet
from ratchet.errors import RatchetError

if TYPE_CHECKING:
    from rich.console import Console

Home = Annotated[Path, typer.Option("--home", envvar="RATCHET_HOME", help="Folder that holds the state.")]
HOME = Path(".ratchet")
MARK = Path("pipelines", "definitions.py")
WIDTH = 120
"""Columns of a table where the output is no terminal."""


def console() -> Console:
    """Standard output, as wide as the terminal; in a pipe or a file as wide as the tables need."""
    from rich.console import Console

    found = Console()
    return found if found.is_terminal or "COLUMNS" in os.environ else Console(width=WIDTH)


def find_project() -> Path | None:
    """The folder that `workspace.yaml` is in, or None where there is none."""
    places = (Path(ratchet.__file__).resolve().parents[1], Path.cwd())
    return next((folder for folder in places if (folder / MARK).is_file()), None)


def project() -> Path:
    """Like `find_project`. Raises RatchetError where there is none."""
    found = find_project()
    if found is None:
        raise RatchetError(
            f"folder {Path.cwd()}",
            rule="the loop runs from a checkout of the project, which has pipelines/definitions.py",
            remedy="change into the checkout, or install the package from it with `make setup`",
        )
    return found
