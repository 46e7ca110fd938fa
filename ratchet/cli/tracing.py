"""How `ratchet rights trace` looks: the answer of `ratchet.loop.tracing` as short tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import typer

from ratchet.cli.options import console


def show_trace(found: Mapping[str, Any]) -> None:
    """Print the trace of a grant or of a version."""
    if "grant" in found:
        _grant(found)
    else:
        _version(found)


def _grant(found: Mapping[str, Any]) -> None:
    right = found["grant"]
    typer.echo(f"grant {right['grant_id']} of {right['tenant']}: {right['state']} since {right['since'][:19]}")
    trajectories = sum(batch["trajectories"] for batch in found["batches"])
    typer.echo(f"{trajectories:,} trajectories in {len(found['batches'])} batches")
    _table(
        "datasets that hold its records",
        [
            (one["dataset"][:12], one["experiment"], one["purpose"], f"{one['records']:,} of {one['of']:,}")
            for one in found["datasets"]
        ],
        ("dataset", "experiment", "purpose", "records"),
    )
    _table(
        "policies that saw its data",
        [
            (one["policy"], one["digest"][:12], one["experiment"], one["how"], _states(one["versions"]))
            for one in found["policies"]
        ],
        ("policy", "digest", "experiment", "how", "versions"),
    )
    for one in found["erasures"]:
        typer.echo(f"erased on {one['at'][:19]} by {one['by']}: {sum(one['counts'].values()):,} things")


def _version(found: Mapping[str, Any]) -> None:
    policy, stands = found["policy"], _states(found["versions"])
    typer.echo(f"policy {policy['name']} {policy['digest'][:12]} of {policy['experiment']}: {stands}")
    _table(
        "made from",
        [
            (one["policy"], one["digest"][:12], one["method"], (one["dataset"] or "none")[:12], f"{one['records']:,}")
            for one in found["chain"]
        ],
        ("policy", "digest", "method", "dataset", "records"),
    )
    _table(
        "grants behind it",
        [(one["grant_id"], one["state"], (one["since"] or "")[:19], "; ".join(one["how"])) for one in found["grants"]],
        ("grant", "state", "since", "how"),
    )


def _states(versions: Sequence[Mapping[str, str]]) -> str:
    return ", ".join(f"{one['model']} {one['version'][:12]} {one['state']}" for one in versions) or "not registered"


def _table(title: str, rows: Sequence[Sequence[str]], columns: Sequence[str]) -> None:
    from rich import box
    from rich.table import Table

    if not rows:
        typer.echo(f"{title}: none")
        return
    table = Table(title=title, box=box.SIMPLE, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    console().print(table)
