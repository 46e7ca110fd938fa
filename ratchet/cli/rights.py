"""`ratchet rights`: a data steward's hand on the rights ledger, and the answer to what was learned from what.

An event is in the ledger before anything else happens. Where it ends a right, the models that saw the data are marked
at once and follow the policy of their manifest; Dagster's sensor does the same, so that nothing is lost where a command
was interrupted.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ratchet.cli.options import HOME, Home, console
from ratchet.errors import RightsError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ratchet.loop.erasing import Plan
    from ratchet.rights import Right

app = typer.Typer(
    help="Training rights: grant, narrow, withdraw, expire, hold; trace what was learned; erase.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Grant = Annotated[str, typer.Argument(metavar="GRANT", help="Id of the grant.")]
By = Annotated[str, typer.Option("--by", help="Who is accountable; it stays in the ledger.")]
Reason = Annotated[str, typer.Option("--reason", help="Why, in words; it stays in the ledger.")]
Tenant = Annotated[str | None, typer.Option("--tenant", help="Whose grant it is; checked where it is given.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object instead of tables.")]
Purposes = Annotated[list[str] | None, typer.Option("--purpose", help="A purpose, such as train_sft. May be repeated.")]
Models = Annotated[
    list[str] | None, typer.Option("--base-model", help="A base checkpoint, or `*` for all. May be repeated.")
]
Until = Annotated[str | None, typer.Option("--until", help="End of the right: ISO 8601 with a zone.")]
Days = Annotated[int | None, typer.Option("--days", min=1, help="End of the right, in days from now.")]


@app.command()
def grant(
    grant: Grant,
    tenant: Annotated[str, typer.Option("--tenant", help="Whose data it is.")],
    by: By,
    reason: Reason,
    purpose: Purposes = None,
    base_model: Models = None,
    until: Until = None,
    days: Days = None,
    home: Home = HOME,
) -> None:
    """Record a grant. An id is granted once; a wider right needs a new id."""
    from ratchet.contracts.manifest import Slug

    for name, value in (("grant", grant), ("tenant", tenant)):
        _checked(Slug, name, value, "it must be a slug of a-z, 0-9, _ and -, not longer than 63")
    now = _now()
    if (until is None) == (days is None):
        raise RightsError("end of the right", rule="exactly one of --until and --days says it", remedy="give one")
    ends = _time("--until", until) if until else now + timedelta(days=days or 0)
    if ends <= now:
        raise RightsError("--until", seen=ends.isoformat(), rule="a right ends after now", remedy="give a later time")
    _append(
        home, "grant", grant, tenant, by, reason, now,
        purposes=_purposes(purpose), base_models=tuple(base_model or ("*",)), retention_until=ends,
    )  # fmt: skip
    _say(home, grant)


@app.command()
def narrow(
    grant: Grant,
    by: By,
    reason: Reason,
    purpose: Purposes = None,
    base_model: Models = None,
    until: Until = None,
    days: Days = None,
    tenant: Tenant = None,
    home: Home = HOME,
) -> None:
    """Leave of a grant only these purposes and base models, or bring its end forward. It cannot be undone."""
    now = _now()
    if until is not None and days is not None:
        raise RightsError("end of the right", rule="one of --until and --days says it", remedy="give one")
    ends = _time("--until", until) if until else now + timedelta(days=days) if days else None
    if not purpose and not base_model and ends is None:
        raise RightsError(
            f"narrowing of {grant!r}", rule="it takes something away", remedy="give --purpose, --base-model or --until"
        )
    kept: dict[str, Any] = {"purposes": _purposes(purpose)} if purpose else {}
    kept |= {"base_models": tuple(base_model)} if base_model else {}
    kept |= {"retention_until": ends} if ends else {}
    _append(home, "narrow", grant, tenant, by, reason, now, **kept)
    _say(home, grant)
    _follow(home, grant)


@app.command()
def withdraw(grant: Grant, by: By, reason: Reason, tenant: Tenant = None, home: Home = HOME) -> None:
    """End a grant for good. Trainings stop at the next epoch; affected versions follow their manifest's policy."""
    _append(home, "withdraw", grant, tenant, by, reason, _now())
    _say(home, grant)
    _follow(home, grant)


@app.command()
def expire(
    grant: Grant,
    by: By,
    reason: Reason,
    at: Annotated[str | None, typer.Option("--at", help="When: ISO 8601 with a zone, not in the past.")] = None,
    tenant: Tenant = None,
    home: Home = HOME,
) -> None:
    """End a grant by its time: now, or at a time that is given."""
    now = _now()
    when = _time("--at", at) if at else now
    if when < now:
        raise RightsError("--at", seen=at, rule="a right does not end in the past", remedy="leave it out to end it now")
    _append(home, "expire", grant, tenant, by, reason, when)
    _say(home, grant)
    _follow(home, grant)


@app.command()
def hold(
    grant: Grant,
    by: By,
    reason: Reason,
    lift: Annotated[bool, typer.Option("--lift", help="Lift the hold instead of placing it.")] = False,
    tenant: Tenant = None,
    home: Home = HOME,
) -> None:
    """Place a legal hold, which forbids erasure and prolongs no right; or lift it."""
    _append(home, "legal_hold", grant, tenant, by, reason, _now(), hold=not lift)
    _say(home, grant)


@app.command()
def show(grant: Grant, as_json: Json = False, home: Home = HOME) -> None:
    """Show one grant: the right now, its events, and its erasures."""
    from ratchet.loop.erasing import certificates
    from ratchet.rights import Ledger
    from ratchet.store import open_store

    ledger = Ledger.at_home(home)
    right = _known(ledger.effective(grant, _now()))
    done = certificates(open_store(home), right)
    if as_json:
        events = [event.model_dump(mode="json") for event in ledger.history(grant)]
        erasures = [one.model_dump(mode="json", exclude={"objects"}) for one in done]
        _json({"right": right.model_dump(mode="json"), "events": events, "erasures": erasures})
        return
    _table("", [_right(right)])
    rows = [
        {
            "at": event.at.isoformat(timespec="seconds"),
            "event": event.kind if event.hold is None else f"hold {'placed' if event.hold else 'lifted'}",
            "by": event.by,
            "reason": event.reason,
        }
        for event in ledger.history(grant)
    ]
    _table("events", rows)
    for one in done:
        typer.echo(f"erased on {one.at.isoformat(timespec='seconds')} by {one.by}: certificate {one.digest[:12]}")


@app.command("list")
def list_grants(tenant: Tenant = None, as_json: Json = False, home: Home = HOME) -> None:
    """List all grants as they stand now."""
    from ratchet.rights import Ledger

    rights = list(Ledger.at_home(home).rights(_now(), tenant))
    if as_json:
        _json([right.model_dump(mode="json") for right in rights])
    elif rights:
        _table("", [_right(right) for right in rights])
    else:
        typer.echo("The rights ledger has no grants" + (f" of {tenant}." if tenant else "."))


@app.command()
def trace(
    what: Annotated[str, typer.Argument(metavar="GRANT|VERSION", help="A grant, MODEL/NUMBER, a digest, a name.")],
    as_json: Json = False,
    home: Home = HOME,
) -> None:
    """Say what was learned from a grant, or from which grants a version has learned."""
    from ratchet.cli.tracing import show_trace
    from ratchet.loop.tracing import trace as answer

    found = answer(home.resolve(), what, _now())
    if as_json:
        _json(found)
    else:
        show_trace(found)


@app.command()
def erase(
    grant: Grant,
    apply: Annotated[bool, typer.Option("--apply", help="Remove it; without this it is only listed.")] = False,
    by: Annotated[str | None, typer.Option("--by", help="Who is accountable; needed with --apply.")] = None,
    reason: Annotated[str | None, typer.Option("--reason", help="Why, in words; needed with --apply.")] = None,
    as_json: Json = False,
    home: Home = HOME,
) -> None:
    """Erase the data of a withdrawn or expired grant everywhere. Without --apply: list what that would remove."""
    from ratchet.cli.purging import project_purges
    from ratchet.loop.erasing import erase as remove
    from ratchet.loop.erasing import plan

    home = home.resolve()
    if not apply:
        _show_plan(plan(home, grant, _now(), project_purges(home)), as_json)
        return
    if not (by or "").strip() or not (reason or "").strip():
        raise RightsError(
            f"erasure of grant {grant!r}", rule="--apply needs --by and --reason", remedy="say who erases it, and why"
        )
    done = remove(home, grant, by=str(by), reason=str(reason), at=_now(), purges=project_purges(home))
    one = done.certificate
    if as_json:
        _json({"certificate": one.digest, "removed": done.removed, **one.model_dump(mode="json", exclude={"objects"})})
        return
    if not done.removed and one.objects:
        typer.echo(f"Nothing was left: it was erased on {one.at.isoformat(timespec='seconds')} by {one.by}.")
    _table("erased", [{"what": kind, "number": f"{count:,}"} for kind, count in one.counts.items()])
    typer.echo(f"{len(one.objects):,} things, {one.size:,} bytes; certificate {one.digest}")
    typer.echo(f"{_policies(len(one.affected))} saw the data. {one.statement}")


def _show_plan(found: Plan, as_json: bool) -> None:
    if as_json:
        _json({"grant": found.scope.grant_id, "size": found.size, "objects": [one._asdict() for one in found.items]})
        return
    rows = [{"kind": one.kind, "name": one.name, "bytes": f"{one.size:,}", "why": one.why} for one in found.items]
    _table(f"erasure of {found.scope.grant_id} ({found.right.state})", rows)
    typer.echo(f"{len(rows):,} things, {found.size:,} bytes. Nothing was removed; --apply --by --reason removes it.")


def _append(
    home: Path, kind: str, grant_id: str, tenant: str | None, by: str, reason: str, at: datetime, **fields: Any
) -> None:
    """Append an event. Raises RightsError for a blank name or reason, and for what the ledger refuses."""
    from ratchet.rights import Event, Ledger

    for option, value in (("--by", by), ("--reason", reason)):
        if not value.strip():
            raise RightsError(option, seen=value, rule="it must be said in words", remedy="give it")
    ledger = Ledger.at_home(home)
    owner = tenant or _known(ledger.effective(grant_id, at)).tenant
    ledger.append(
        Event.model_validate(
            {"kind": kind, "grant_id": grant_id, "tenant": owner, "by": by, "at": at, "reason": reason, **fields}
        )
    )


def _follow(home: Path, grant_id: str) -> None:
    """Mark what saw the data of an ended grant, let it follow its policy, and show that in MLflow."""
    from ratchet.cli.release import project_registry
    from ratchet.loop.affected import follow, mark

    marks = mark(home, grant_id, _now())
    found = follow(home, grant_id, _now())
    if marks:
        typer.echo(f"{_policies(len(marks))} saw its data: {', '.join(sorted(one.name for one in marks))}")
    if found:
        _table("affected versions", [one.row() for one in found])
        project_registry(home)


def _known(right: Right) -> Right:
    if right.tenant is None:
        raise RightsError(
            f"grant {right.grant_id!r}",
            rule="the ledger knows no such grant",
            remedy="see `ratchet rights list`, or record it with `ratchet rights grant`",
        )
    return right


def _say(home: Path, grant_id: str) -> None:
    from ratchet.rights import Ledger

    _table("", [_right(Ledger.at_home(home).effective(grant_id, _now()))])


def _right(right: Right) -> dict[str, str]:
    return {
        "grant": right.grant_id,
        "tenant": right.tenant or "",
        "state": right.state + (", held" if right.held else ""),
        "since": right.since.isoformat(timespec="seconds") if right.since else "",
        "purposes": ", ".join(right.purposes) or "none",
        "base models": ", ".join(right.base_models) or "none",
        "until": right.retention_until.isoformat(timespec="seconds") if right.retention_until else "",
    }


def _policies(count: int) -> str:
    return "1 policy" if count == 1 else f"{count} policies"


def _purposes(given: Iterable[str] | None) -> tuple[str, ...]:
    from ratchet.contracts.manifest import Purpose

    if not given:
        raise RightsError("--purpose", rule="a grant names at least one", remedy="such as --purpose train_sft")
    for one in given:
        _checked(Purpose, "--purpose", one, "it must be a purpose of the manifest")
    return tuple(given)


def _checked(kind: Any, name: str, value: str, rule: str) -> None:
    """Raise RightsError unless `value` is of the type `kind`, naming what a literal type allows."""
    from typing import get_args

    from pydantic import TypeAdapter, ValidationError

    try:
        TypeAdapter(kind).validate_python(value)
    except ValidationError:
        allowed = [str(one) for one in get_args(kind) if isinstance(one, str) and one != kind]
        remedy = f"one of {', '.join(allowed)}" if allowed and kind is not str else "correct it"
        raise RightsError(name, seen=value, rule=rule, remedy=remedy) from None


def _time(option: str, text: str) -> datetime:
    from ratchet.rights.events import utc

    try:
        return utc(datetime.fromisoformat(text))
    except ValueError:
        raise RightsError(
            option,
            seen=text,
            rule="it must be an ISO 8601 time with a zone",
            remedy="such as 2027-01-31T00:00Z",
        ) from None


def _now() -> datetime:
    return datetime.now(UTC)


def _json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def _table(title: str, rows: list[Mapping[str, str]] | list[dict[str, str]]) -> None:
    from rich import box
    from rich.table import Table

    table = Table(title=title or None, box=box.SIMPLE, title_justify="left")
    for column in rows[0] if rows else ():
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row.values())
    if rows:
        console().print(table)
