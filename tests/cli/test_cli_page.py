"""The page on the command line names every command and option that there is, and none that there is not."""

from __future__ import annotations

import re
from pathlib import Path

import typer.main

from ratchet.cli.main import app

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")


def shown() -> dict[str, set[str]]:
    """Options by command, as the table of the page has them."""
    rows = re.findall(r"^\| `ratchet (\w+)(.*?)` \|", PAGE, re.MULTILINE)
    return {name: set(re.findall(r"--[\w-]+", rest)) for name, rest in rows}


def test_the_table_shows_the_commands_and_options_that_there_are() -> None:
    group = typer.main.get_command(app)
    real = {
        name: {option for parameter in command.params for option in parameter.opts if option.startswith("--")}
        - {"--help", "--home"}
        for name, command in group.commands.items()  # type: ignore[attr-defined]
    }
    assert shown() == real
