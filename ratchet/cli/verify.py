"""`ratchet verify` and `ratchet export`: whether a version still stands on what it was released on, here or apart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ratchet.cli.options import HOME, Home
from ratchet.errors import TransitionError

if TYPE_CHECKING:
    from ratchet.release.ledger import Ledger
    from ratchet.release.records import Version
    from ratchet.release.verify import Finding

CHANGED = 1
"""Exit status where something does not match; 2 is a command that could not be carried out."""

TrustFile = Annotated[
    Path | None, typer.Option("--trust", help="File of trusted keys; else that of the home.", exists=True)
]


def register(app: typer.Typer) -> None:
    """Mount the commands on the main app."""
    app.command()(verify)
    app.command()(export)


def verify(
    target: Annotated[
        str,
        typer.Argument(metavar="MODEL|VERSION|FOLDER", help="Model (TENANT.EXPERIMENT), version, or exported folder."),
    ],
    version: Annotated[
        str | None,
        typer.Argument(metavar="[VERSION]", help="Version of the model: an id, a policy's name, or a slot's."),
    ] = None,
    trust: TrustFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
    home: Home = HOME,
) -> None:
    """Look again at everything that a version was released on, with no network; status 1 where anything differs."""
    from ratchet.release.export import home_source, is_export, verify_export
    from ratchet.release.ledger import Ledger
    from ratchet.release.trust import Trust
    from ratchet.release.verify import failed
    from ratchet.release.verify import verify as verify_version

    folder = Path(target)
    trusted = Trust.read(trust) if trust else None
    if version is None and folder.is_dir() and is_export(folder):
        label, found = target, verify_export(folder, trusted or Trust.of(home))
    else:
        entry = find_version(Ledger.of(home), target, version)
        label, found = entry.label, verify_version(home_source(home, entry, trusted))
    wrong = failed(found)
    if as_json:
        typer.echo(json.dumps({"verified": not wrong, "findings": [one._asdict() for one in found]}, indent=2))
    else:
        for one in found:
            _say(one)
        typer.echo(f"{label}: {f'{len(wrong)} of {len(found)} items do not match' if wrong else 'verified'}.")
    if wrong:
        raise typer.Exit(CHANGED)


def export(
    version: Annotated[str, typer.Argument(metavar="VERSION", help="An id, a policy's name, or with --model a slot.")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="New folder.")],
    model: Annotated[str | None, typer.Option("--model", help="Model (TENANT.EXPERIMENT) that it is of.")] = None,
    home: Home = HOME,
) -> None:
    """Write a version with all its evidence into a folder that `ratchet verify FOLDER` checks on any machine."""
    from ratchet.release.export import export_version
    from ratchet.release.ledger import Ledger

    ledger = Ledger.of(home)
    entry = find_version(ledger, model, version) if model else find_version(ledger, version, None)
    count = export_version(home, entry, folder)
    typer.echo(f"{entry.label}: {count} files in {folder}; `ratchet verify {folder} --trust FILE` checks them.")


def find_version(ledger: Ledger, target: str, version: str | None) -> Version:
    """Find a version by itself, or within a model: by id, name of its policy, or the slot that it stands in.

    Raises:
        TransitionError: no model or version, or more than one, has that name.
    """
    if version is None:
        return ledger.find(target)
    lines = [line for line in ledger.lines() if target in (".".join(line), "/".join(line), line[1])]
    if len(lines) != 1:
        known = ", ".join(".".join(line) for line in ledger.lines()) or "none"
        raise TransitionError(
            f"model {target!r}",
            rule=f"it must name one line of the release ledger, which has {known}",
            remedy="name one",
        )
    tenant, experiment = lines[0]
    slot = ledger.current(tenant, experiment).by_alias().get(version)
    return slot or ledger.find(version, tenant=tenant, experiment=experiment)


def _say(one: Finding) -> None:
    mark = typer.style("ok      ", fg="green") if one.passed else typer.style("CHANGED ", fg="red")
    typer.echo(f"{mark} {one.item}: {one.words}")
