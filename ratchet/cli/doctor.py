"""`ratchet doctor`: whether the loop can run here and whether its state is whole, each found by really trying it.

Covered: the interpreter, the packages that the project asks for, the project folder, room on the disk, every part of
the sandbox, and in the home folder the store, the chain of the rights ledger and that of the release ledger. Packages
are looked up, not imported: importing them all takes longer than everything else together.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ratchet.cli.options import HOME, Home, console, project
from ratchet.errors import RatchetError

if TYPE_CHECKING:
    from rich.table import Table

    from ratchet.sandbox import Finding

ROOM_GB = 2.0
"""A full run of the reference experiment leaves about 0.1 GB; the rest is for the next ones."""
PYTHONS = ((3, 11), (3, 12))
SHOWN = ("torch", "transformers", "trl", "peft", "dagster", "mlflow", "great-expectations")
SETUP = "`make setup`"


def doctor(home: Home = HOME) -> None:
    """Say what works here and what does not, with the remedy. Exit status 1 where the loop cannot run."""
    found = list(findings(home.resolve()))
    console().print(findings_table(found))
    bad = [finding for finding in found if not finding.ok]
    if bad:
        typer.echo(f"{len(bad)} of {len(found)} do not hold: {', '.join(finding.name for finding in bad)}", err=True)
        raise typer.Exit(1)
    typer.echo(f"All {len(found)} hold: the loop can run here.")


def findings(home: Path) -> Iterator[Finding]:
    """Probe everything, in the order in which one thing rests on another."""
    from ratchet.sandbox import diagnose

    yield _probe("python", _python)
    yield _probe("packages", packages)
    yield _probe("project", lambda: str(project()))
    yield from diagnose()
    yield _probe("disk", lambda: _disk(home))
    yield _probe("home", lambda: _home(home))
    if home.is_dir() or os.environ.get("RATCHET_STORE"):
        yield _probe("store", lambda: store(home))
    if home.is_dir():
        yield _probe("rights ledger", lambda: _rights(home))
        yield _probe("release ledger", lambda: _release(home))


def findings_table(found: list[Finding]) -> Table:
    """Lay out the findings, a line each; the remedy stands under what it is for."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table("", "", "finding", box=box.SIMPLE)
    for finding in found:
        mark = "[green]ok[/]" if finding.ok and not finding.remedy else "[yellow]ok[/]" if finding.ok else "[red]NO[/]"
        remedy = f"\n[bold]->[/] {escape(finding.remedy)}" if finding.remedy else ""
        table.add_row(mark, finding.name, escape(finding.detail) + remedy)
    return table


def _probe(name: str, look: Callable[[], str]) -> Finding:
    from ratchet.sandbox import Finding

    try:
        return Finding(name, True, look(), "")
    except RatchetError as error:
        return Finding(name, False, str(error), error.remedy)
    except OSError as error:
        return Finding(name, False, str(error), "make the folder readable and writable for this user")


def _python() -> str:
    version = sys.version.split()[0]
    if sys.version_info[:2] not in PYTHONS:
        raise RatchetError("python", seen=version, rule="3.11 or 3.12 is needed", remedy=SETUP)
    return f"{version} at {sys.executable}"


def packages() -> str:
    """Compare what is installed with what the project asks for. Raises RatchetError naming all that do not fit."""
    from importlib.metadata import PackageNotFoundError, distribution, requires

    from packaging.requirements import Requirement

    wrong, seen = [], {}
    for text in requires("ratchet") or ():
        wanted = Requirement(text)
        if wanted.marker and not wanted.marker.evaluate({"extra": ""}):
            continue
        try:
            seen[wanted.name] = version = distribution(wanted.name).version
        except PackageNotFoundError:
            wrong.append(f"{wanted.name} is missing")
            continue
        if not wanted.specifier.contains(version, prereleases=True):
            wrong.append(f"{wanted.name} is {version}, not {wanted.specifier}")
    if wrong:
        raise RatchetError("packages", seen="; ".join(wrong), rule="all must fit pyproject.toml", remedy=SETUP)
    return f"{len(seen)} fit, among them " + ", ".join(f"{name} {seen[name]}" for name in SHOWN)


def _disk(home: Path) -> str:
    free = shutil.disk_usage(_existing(home)).free / 1e9
    if free < ROOM_GB:
        raise RatchetError(
            f"disk of {home}", seen=f"{free:.1f} GB free", rule=f"{ROOM_GB:g} GB are needed", remedy="make room"
        )
    return f"{free:.1f} GB free for {home}"


def _home(home: Path) -> str:
    if home.exists() and not home.is_dir():
        raise RatchetError(f"home {home}", seen="a file", rule="it must be a folder", remedy="give another --home")
    if not os.access(_existing(home), os.W_OK):
        raise RatchetError(
            f"home {home}", rule="it must be writable", remedy="give another --home, or change its owner"
        )
    if not home.is_dir():
        return f"{home} is not there yet; `ratchet run` makes it"
    from ratchet.loop.context import runs

    known = runs(home)
    return f"{home} holds {len(known)} runs" + (f", the newest {known[-1]}" if known else "")


def store(home: Path) -> str:
    """Try what the store promises: that nothing is written over, that one of racing writers wins. Raises StoreError."""
    from ratchet.store import open_store

    objects = open_store(home, remember=False)
    return f"{objects.where} keeps all {len(objects.prove())} promises: it writes, reads back, and writes nothing over"


def _rights(home: Path) -> str:
    from ratchet.rights import Ledger

    count = len(Ledger.at_home(home))
    return f"{count} events, chain verified" if count else "no grant recorded yet"


def _release(home: Path) -> str:
    if not (home / "release.db").exists() and not os.environ.get("RATCHET_LEDGER_URL"):
        return "nothing released yet"
    from ratchet.release.ledger import Ledger

    return f"{Ledger.of(home).verify()} events, chain verified"


def _existing(path: Path) -> Path:
    """The path, or the nearest folder above it that is there."""
    return next(folder for folder in (path, *path.parents) if folder.exists())
