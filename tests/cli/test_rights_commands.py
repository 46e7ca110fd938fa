"""`ratchet rights`, as a data steward gives it: events, traces, erasures, and one clear error for bad input."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rights_world import PARTNER, WORD, RightsWorld, now
from typer.testing import CliRunner, Result

from ratchet.cli.main import app
from ratchet.release.states import State
from ratchet.rights import Ledger

WHO = ("--by", "steward", "--reason", "the partner asked for it")


@pytest.fixture(autouse=True)
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Dagster instance of the test's own, and no tracking server."""
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


def rights(home: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["rights", *arguments, "--home", str(home)])


def ok(home: Path, *arguments: str) -> str:
    done = rights(home, *arguments)
    assert done.exit_code == 0, done.output
    return done.stdout


def refused(home: Path, *arguments: str) -> str:
    done = rights(home, *arguments)
    assert done.exit_code == 2
    lines = [line for line in done.stderr.splitlines() if line]
    assert len(lines) == 1, done.output
    return lines[0]


def test_a_grant_is_recorded_shown_listed_narrowed_held_and_withdrawn(tmp_path: Path) -> None:
    made = ok(
        tmp_path, "grant", "logs", "--tenant", "acme", "--purpose", "train_sft", "--purpose", "evaluate",
        "--days", "90", *WHO,
    )  # fmt: skip
    assert "logs" in made
    assert "active" in made
    ok(tmp_path, "narrow", "logs", "--purpose", "evaluate", *WHO)
    ok(tmp_path, "hold", "logs", *WHO)
    shown = json.loads(ok(tmp_path, "show", "logs", "--json"))
    assert (shown["right"]["purposes"], shown["right"]["held"]) == (["evaluate"], True)
    assert [event["kind"] for event in shown["events"]] == ["grant", "narrow", "legal_hold"]
    assert {event["by"] for event in shown["events"]} == {"steward"}
    ok(tmp_path, "hold", "logs", "--lift", *WHO)
    ok(tmp_path, "withdraw", "logs", *WHO)
    (listed,) = json.loads(ok(tmp_path, "list", "--json"))
    assert (listed["state"], listed["held"]) == ("withdrawn", False)
    assert "hold placed" in ok(tmp_path, "show", "logs")
    assert "withdrawn" in ok(tmp_path, "list", "--tenant", "acme")
    assert "no grants of other" in ok(tmp_path, "list", "--tenant", "other")


def test_a_time_with_any_zone_is_kept_in_utc_and_an_end_may_lie_ahead(tmp_path: Path) -> None:
    ok(
        tmp_path, "grant", "logs", "--tenant", "acme", "--purpose", "train_sft", "--until", "2999-01-01T02:00:00+02:00",
        "--base-model", "package:starter", *WHO,
    )  # fmt: skip
    right = Ledger.at_home(tmp_path).effective("logs", now())
    assert right.retention_until == datetime(2999, 1, 1, tzinfo=UTC)
    assert right.base_models == ("package:starter",)
    ok(tmp_path, "expire", "logs", "--at", "2998-01-01T00:00Z", *WHO)
    assert Ledger.at_home(tmp_path).effective("logs", now()).state == "active"
    ok(tmp_path, "expire", "logs", *WHO)
    assert Ledger.at_home(tmp_path).effective("logs", now()).state == "expired"


GRANT = ("grant", "logs", "--tenant", "acme", "--purpose", "train_sft", "--days", "9")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("grant", "No Slug", *GRANT[2:], *WHO), ("grant is 'No Slug'", "slug")),
        ((*GRANT[:3], "Acme!", *GRANT[4:], *WHO), ("tenant is 'Acme!'", "slug")),
        ((*GRANT[:4], "--purpose", "sell", "--days", "9", *WHO), ("--purpose is 'sell'", "one of execute, evaluate")),
        ((*GRANT[:4], "--days", "9", *WHO), ("--purpose", "at least one")),
        ((*GRANT[:6], *WHO), ("exactly one of --until and --days",)),
        ((*GRANT, "--until", "2999-01-01T00:00Z", *WHO), ("exactly one of --until and --days",)),
        ((*GRANT[:6], "--until", "2999-01-01T00:00", *WHO), ("2999-01-01T00:00:00", "must carry a time zone")),
        ((*GRANT[:6], "--until", "soon", *WHO), ("--until is 'soon'", "ISO 8601")),
        ((*GRANT[:6], "--until", "2001-01-01T00:00Z", *WHO), ("--until is '2001-01-01T00:00:00+00:00'", "after now")),
        ((*GRANT, "--by", " ", "--reason", "x"), ("--by is ' '", "in words")),
        ((*GRANT, "--by", "x", "--reason", ""), ("--reason is ''", "in words")),
        (("withdraw", "nobody", *WHO), ("grant 'nobody'", "knows no such grant")),
        (("show", "nobody"), ("grant 'nobody'", "knows no such grant")),
        (("trace", "nobody"), ("version 'nobody'", "names none")),
        (("erase", "nobody"), ("grant 'nobody'", "knows no such grant")),
    ],
)
def test_bad_input_gets_one_clear_error(tmp_path: Path, arguments: tuple[str, ...], parts: tuple[str, ...]) -> None:
    line = refused(tmp_path, *arguments)
    assert [part for part in parts if part not in line] == []


def test_what_the_ledger_refuses_is_told_in_one_line(tmp_path: Path) -> None:
    ok(tmp_path, *GRANT, *WHO)
    assert "an id is granted once" in refused(tmp_path, *GRANT, *WHO)
    assert "narrowing may not add train_rl" in refused(tmp_path, "narrow", "logs", "--purpose", "train_rl", *WHO)
    assert "takes something away" in refused(tmp_path, "narrow", "logs", *WHO)
    assert "belongs to another tenant" in refused(tmp_path, "withdraw", "logs", "--tenant", "other", *WHO)
    assert "does not end in the past" in refused(tmp_path, "expire", "logs", "--at", "2001-01-01T00:00Z", *WHO)
    assert "erasure of grant 'logs' is 'active'" in refused(tmp_path, "erase", "logs")
    assert "--apply needs --by and --reason" in refused(tmp_path, "erase", "logs", "--apply")
    assert rights(tmp_path, "withdraw", "logs").exit_code == 2
    assert Ledger.at_home(tmp_path).effective("logs", now()).state == "active"


def test_a_withdrawal_takes_what_serves_out_and_both_traces_say_so(tmp_path: Path, mlflow_database: Path) -> None:
    shutil.copy(mlflow_database, tmp_path / "mlflow.db")
    world = RightsWorld(tmp_path)
    _, learned = world.produce()
    done = ok(tmp_path, "withdraw", PARTNER, *WHO)
    assert "1 policy saw its data: sft" in done
    assert "production -> quarantined" in done
    assert world.ledger.state(learned) is State.QUARANTINED
    grant = ok(tmp_path, "trace", PARTNER)
    assert "grant partner of acme: withdrawn" in grant
    assert "1 of 2" in grant
    assert "quarantined" in grant
    for name in ("sft", learned.policy.digest[:12], "acme.repair/2"):
        version = ok(tmp_path, "trace", name)
        assert "sft" in version
        assert "withdrawn" in version
    answer = json.loads(ok(tmp_path, "trace", PARTNER, "--json"))
    assert [one["policy"] for one in answer["policies"]] == ["sft"]
    history = CliRunner().invoke(app, ["history", "--home", str(tmp_path)], env={"COLUMNS": "300"}).stdout
    assert "affected_withdrawn, stays production" in history
    approval = CliRunner().invoke(app, ["approve", "sft", "--by", "Olga", "--reason", "x", "--home", str(tmp_path)])
    assert approval.exit_code == 2
    assert "affected_withdrawn" in approval.stderr


def test_an_erasure_is_listed_then_done_then_certified_once(tmp_path: Path) -> None:
    world = RightsWorld(tmp_path)
    ok(tmp_path, "withdraw", PARTNER, *WHO)
    listed = json.loads(ok(tmp_path, "erase", PARTNER, "--json"))
    assert listed["size"] > 0
    assert {one["kind"] for one in listed["objects"]} >= {"landing file", "landing mark", "intake trajectories"}
    assert all(one["why"] for one in listed["objects"])
    assert "Nothing was removed" in ok(tmp_path, "erase", PARTNER)
    assert [path for path in tmp_path.rglob("*") if WORD in path.name]
    done = json.loads(ok(tmp_path, "erase", PARTNER, "--apply", "--json", *WHO))
    assert done["removed"] == len(listed["objects"])
    assert "objects" not in done
    assert not [path for path in tmp_path.rglob("*") if WORD in path.name]
    again = ok(tmp_path, "erase", PARTNER, "--apply", *WHO)
    assert "Nothing was left" in again
    assert "none has unlearned it" in " ".join(again.split())
    assert "erased on" in ok(tmp_path, "show", PARTNER)
    assert world.run.rights.has_head(world.run.rights.head)


def test_a_legal_hold_is_told_before_anything_is_listed(tmp_path: Path) -> None:
    RightsWorld(tmp_path)
    ok(tmp_path, "hold", PARTNER, *WHO)
    ok(tmp_path, "withdraw", PARTNER, *WHO)
    assert "a legal hold forbids it" in refused(tmp_path, "erase", PARTNER)
    assert "a legal hold forbids it" in refused(tmp_path, "erase", PARTNER, "--apply", *WHO)
    assert [path for path in tmp_path.rglob("*") if WORD in path.name]
