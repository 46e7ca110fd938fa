"""Tables of the release ledger on SQLite and Postgres, and the triggers that keep its history from being changed.

Versions, decisions, events, evidences and incidents are append-only: UPDATE, DELETE, TRUNCATE and SQLite's `INSERT OR
REPLACE` are refused by the database itself. `heads` and `clock` are the only rows that move. Whoever owns the database
can drop a trigger; the chain of digests in the events shows what was then changed (`Ledger.verify`).
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    Boolean,
    Column,
    Connection,
    Engine,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    create_engine,
    event,
    inspect,
    text,
)
from sqlalchemy.pool import NullPool

metadata = MetaData()

heads = Table(
    "heads",
    metadata,
    Column("tenant", String(64), primary_key=True),
    Column("experiment", String(64), primary_key=True),
    Column("seq", Integer, nullable=False),
    Column("digest", String(64), nullable=False),
)
clock = Table("clock", metadata, Column("id", Integer, primary_key=True), Column("at", Integer, nullable=False))
versions = Table(
    "versions",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("tenant", String(64), nullable=False),
    Column("experiment", String(64), nullable=False),
    Column("body", Text, nullable=False),
)
decisions = Table(
    "decisions", metadata, Column("digest", String(64), primary_key=True), Column("body", Text, nullable=False)
)
events = Table(
    "events",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("tenant", String(64), nullable=False),
    Column("experiment", String(64), nullable=False),
    Column("seq", Integer, nullable=False),
    Column("version", String(64), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("state", String(16), nullable=False),
    Column("digest", String(64), nullable=False),
    Column("body", Text, nullable=False),
    UniqueConstraint("tenant", "experiment", "seq"),
)
evidences = Table(
    "evidences",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("digest", String(64), nullable=False, index=True),
    Column("version", String(64), nullable=False),
    Column("kind", String(32), nullable=False),
    Column("body", Text, nullable=False),
)
incidents = Table(
    "incidents",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("tenant", String(64), nullable=False),
    Column("experiment", String(64), nullable=False),
    Column("repaired", Boolean, nullable=False),
    Column("body", Text, nullable=False),
)

APPEND_ONLY = {"versions": "id", "decisions": "digest", "events": "id", "evidences": "id", "incidents": "id"}


def open_engine(url: str) -> Engine:
    """Open the database at `url` and make the tables and triggers where they are missing.

    Connections are not pooled: the ledger is used rarely, from many processes, some of which fork.
    """
    engine = create_engine(url, poolclass=NullPool, **_options(url))
    if engine.dialect.name == "sqlite":
        _let_sqlite_begin_for_writing(engine)
    with engine.connect() as connection:
        ready = inspect(connection).has_table("evidences")
    if not ready:
        with writing(engine) as connection, connection.begin():
            if engine.dialect.name == "postgresql":
                connection.execute(text("SELECT pg_advisory_xact_lock(727274)"))
            _create(connection)
    return engine


def writing(engine: Engine) -> Connection:
    """A connection whose transaction takes SQLite's write lock at once instead of failing on the way to it."""
    return engine.connect().execution_options(ratchet_writes=True)


def _options(url: str) -> dict[str, Any]:
    return {"connect_args": {"timeout": 60}} if url.startswith("sqlite") else {}


def _let_sqlite_begin_for_writing(engine: Engine) -> None:
    @event.listens_for(engine, "connect")
    def _manual(connection: Any, record: Any) -> None:
        # The driver's own implicit BEGIN is deferred: two writers that have both read would deadlock.
        connection.isolation_level = None

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get("ratchet_writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _create(connection: Connection) -> None:
    metadata.create_all(connection)
    connection.execute(text("INSERT INTO clock (id, at) VALUES (1, 0) ON CONFLICT DO NOTHING"))
    for statement in _sqlite_triggers() if connection.dialect.name == "sqlite" else _postgres_triggers():
        connection.execute(text(statement))


def _sqlite_triggers() -> list[str]:
    statements = []
    for table, key in APPEND_ONLY.items():
        refuse = f"BEGIN SELECT RAISE(ABORT, '{table} of the release ledger are append-only'); END"
        for verb in ("UPDATE", "DELETE"):
            statements.append(
                f"CREATE TRIGGER IF NOT EXISTS {table}_no_{verb.lower()} BEFORE {verb} ON {table} {refuse}"
            )
        # REPLACE deletes without firing delete triggers, so an insert over an existing key is refused before it.
        taken = f"EXISTS (SELECT 1 FROM {table} WHERE {key} = NEW.{key})"
        if table == "events":
            same = "tenant = NEW.tenant AND experiment = NEW.experiment AND seq = NEW.seq"
            taken = f"{taken} OR EXISTS (SELECT 1 FROM events WHERE {same})"
        statements.append(
            f"CREATE TRIGGER IF NOT EXISTS {table}_no_replace BEFORE INSERT ON {table} WHEN {taken} {refuse}"
        )
    return statements


def _postgres_triggers() -> list[str]:
    statements = [
        "CREATE OR REPLACE FUNCTION ratchet_append_only() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "RAISE EXCEPTION '% of the release ledger are append-only', TG_TABLE_NAME; END $$"
    ]
    for table in APPEND_ONLY:
        call = "EXECUTE FUNCTION ratchet_append_only()"
        statements += [
            f"CREATE OR REPLACE TRIGGER {table}_keep BEFORE UPDATE OR DELETE ON {table} FOR EACH ROW {call}",
            f"CREATE OR REPLACE TRIGGER {table}_keep_all BEFORE TRUNCATE ON {table} FOR EACH STATEMENT {call}",
        ]
    return statements
