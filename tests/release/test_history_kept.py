"""Nobody edits the history of the release ledger with SQL; whoever owns the database and takes the triggers away is
noticed by the chain. The same on SQLite and, where the machine has one to start, on Postgres."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy
from postgres_server import postgres_url
from release_world import World
from sqlalchemy import Connection, text

from ratchet.contracts.canonical import digest_bytes
from ratchet.errors import IntegrityError
from ratchet.release.records import Incident
from ratchet.release.schema import APPEND_ONLY, metadata


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def server(request: pytest.FixtureRequest) -> Iterator[str | None]:
    if request.param == "sqlite":
        yield None
    else:
        with postgres_url() as url:
            yield url


@pytest.fixture(scope="module")
def kept(server: str | None, tmp_path_factory: pytest.TempPathFactory) -> World:
    """A line with versions, decisions, events and an incident; nothing below may change it."""
    world = World(tmp_path_factory.mktemp("kept"), server)
    world.ledger.apply(version := world.candidate("sft"), world.decision(version))
    world.ledger.approve(version, by="Olga", reason="good", upto="staging")
    where = {"tenant": world.tenant, "experiment": world.experiment}
    world.ledger.report(Incident(**where, what="alias", seen="1", expected="2", repaired=True, at="now"))
    return world


def connected(world: World) -> Connection:
    return sqlalchemy.create_engine(world.ledger.url, poolclass=sqlalchemy.NullPool).connect()


def columns(table: str) -> str:
    return ", ".join(column.name for column in metadata.tables[table].columns)


@pytest.mark.parametrize("table", [table for table in APPEND_ONLY if table != "evidences"])
@pytest.mark.parametrize("verb", ["update", "delete", "truncate", "replace", "upsert", "update or replace"])
def test_no_statement_edits_a_table_of_the_history(kept: World, table: str, verb: str) -> None:
    key, mine = APPEND_ONLY[table], kept.ledger.url.startswith("sqlite")
    again = f"INTO {table} ({columns(table)}) SELECT {columns(table)} FROM {table}"
    statement = {
        "update": f"UPDATE {table} SET body = '{{}}'",
        "delete": f"DELETE FROM {table}",
        "truncate": f"TRUNCATE {table} CASCADE",
        "replace": f"INSERT OR REPLACE {again}",
        "upsert": f"INSERT {again} WHERE true ON CONFLICT ({key}) DO UPDATE SET body = '{{}}'",
        "update or replace": f"UPDATE OR REPLACE {table} SET body = '{{}}'",
    }[verb]
    if verb in (("truncate",) if mine else ("replace", "update or replace")):
        pytest.skip(f"this database has no {verb}")
    before = kept.ledger.history()
    with connected(kept) as connection, pytest.raises(sqlalchemy.exc.DatabaseError, match="append-only"):
        connection.execute(text(statement))
    assert kept.ledger.history() == before
    assert kept.ledger.verify() == len(before)


def new_database(server: str | None, purpose: str) -> str | None:
    """URL of an empty database of its own on the server, for what damages it; None for a file."""
    if server is None:
        return None
    name = f"of_{digest_bytes(purpose.encode())[:8]}"
    engine = sqlalchemy.create_engine(server, poolclass=sqlalchemy.NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    return server.replace("@/postgres?", f"@/{name}?")


def without_triggers(connection: Connection) -> None:
    """Take every trigger away, as only the owner of the database can."""
    if connection.dialect.name == "sqlite":
        for name in connection.execute(text("SELECT name FROM sqlite_master WHERE type = 'trigger'")).scalars().all():
            connection.execute(text(f"DROP TRIGGER {name}"))
    else:
        for table in APPEND_ONLY:
            connection.execute(text(f"ALTER TABLE {table} DISABLE TRIGGER ALL"))


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE events SET body = replace(body, 'Olga', 'Evil')",
        "UPDATE events SET state = 'production' WHERE seq = 1",
        "DELETE FROM events WHERE seq = 2",
        "DELETE FROM events WHERE seq = (SELECT max(seq) FROM events)",
        "DELETE FROM versions",
        "UPDATE versions SET body = replace(body, 'Ada', 'Eve')",
        "DELETE FROM decisions",
        "UPDATE decisions SET body = replace(body, '+11 points', '+99 points')",
    ],
)
def test_whoever_takes_the_triggers_away_is_noticed(server: str | None, tmp_path: Path, statement: str) -> None:
    world = World(tmp_path / "home", new_database(server, statement))
    world.ledger.apply(version := world.candidate("sft"), world.decision(version))
    world.ledger.approve(version, by="Olga", reason="good", upto="staging")
    with connected(world) as connection:
        without_triggers(connection)
        assert connection.execute(text(statement)).rowcount
        connection.commit()
    with pytest.raises(IntegrityError, match=r"release ledger of acme/repair|version|decision"):
        world.ledger.verify()


def test_a_version_whose_rules_were_edited_is_not_promoted(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.ledger.apply(version := world.candidate("sft"), world.decision(version))
    with connected(world) as connection:
        without_triggers(connection)
        wider = 'UPDATE versions SET body = replace(body, \'"authorised_rule":"none"\', \'"authorised_rule":"canary"\')'
        assert connection.exec_driver_sql(wider).rowcount
        connection.commit()
    with pytest.raises(IntegrityError, match="author, rules and policy never change"):
        world.ledger.transition(
            version, "staging", by="rule:gate", decision=world.decision(version), expected_seq=world.seq
        )
