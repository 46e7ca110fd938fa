"""Two promoters in two processes race for the same position of the ledger: one wins, the other is told by whom.

The same rounds run on SQLite and, where the machine has one to start, on Postgres.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
import sqlalchemy
from release_world import World, spawned, world_on

from ratchet.contracts.canonical import digest_bytes
from ratchet.errors import ConflictError, IntegrityError
from ratchet.release.decision import read_decision
from ratchet.release.ledger import Ledger

ROUNDS = 50


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world_on(request.param, tmp_path_factory.mktemp("race")) as opened:
        yield opened


def promoter(url: str, name: str, barrier: Barrier, pipe: Connection) -> None:
    """Promote what is handed over at the moment that the other does, and answer how it went."""
    ledger = Ledger(url)
    while (job := pipe.recv()) is not None:
        version, data, seq = job
        decision = read_decision(data, "pipe")
        barrier.wait(timeout=60)
        try:
            ledger.transition(version, "staging", by=name, decision=decision, expected_seq=seq)
            pipe.send(("won", ""))
        except ConflictError as error:
            pipe.send(("lost", str(error)))


def test_exactly_one_of_two_racing_promoters_wins(world: World) -> None:
    spawn = multiprocessing.get_context("spawn")
    barrier = spawn.Barrier(2)
    names = ("Ann", "Ben")
    arguments = [(world.ledger.url, name, barrier) for name in names]
    winners = []
    with spawned(promoter, arguments) as pipes:
        racers = dict(zip(names, pipes, strict=True))
        for number in range(ROUNDS):
            # In odd rounds both promote the same version, in even rounds each its own.
            versions = [world.candidate(f"r{number}-{side}") for side in ("a", "b")]
            versions = [versions[0]] * 2 if number % 2 else versions
            seq = world.seq
            for pipe, version in zip(pipes, versions, strict=True):
                pipe.send((version.id, world.decision(version).to_bytes(), seq))
            answers = {name: pipe.recv() for name, pipe in racers.items()}
            assert sorted(outcome for outcome, _ in answers.values()) == ["lost", "won"], answers
            (winner,) = [name for name, (outcome, _) in answers.items() if outcome == "won"]
            (message,) = [text for outcome, text in answers.values() if outcome == "lost"]
            assert f"{winner} moved version" in message
            assert world.seq == seq + 1
            winners.append(winner)
    assert len(winners) == ROUNDS
    moves = [event.by for event in world.ledger.history() if event.kind == "moved"]
    assert moves == winners


def test_chain_and_cursor_are_whole_after_the_race(world: World) -> None:
    world.candidate("after")
    assert world.ledger.verify() == len(world.ledger.history())
    ids = [event.id for event in world.ledger.events_since(0)]
    assert ids == list(range(1, len(ids) + 1))


def test_rollback_works_on_this_database(world: World) -> None:
    world.produce("one")
    world.produce("two")
    _, restored = world.ledger.rollback(world.tenant, world.experiment, by="Olga", reason="slow")
    assert restored is not None
    assert restored.policy.name == "one"


@pytest.mark.parametrize(
    "statement", ["UPDATE events SET body = '{}'", "DELETE FROM events", "DELETE FROM versions", "TRUNCATE events"]
)
def test_history_cannot_be_edited_on_this_database(world: World, statement: str) -> None:
    engine = sqlalchemy.create_engine(world.ledger.url, poolclass=sqlalchemy.NullPool)
    if statement.startswith("TRUNCATE") and engine.dialect.name == "sqlite":
        pytest.skip("SQLite has no TRUNCATE")
    world.candidate(f"kept-{digest_bytes(statement.encode())[:8]}")
    with engine.connect() as connection, pytest.raises(sqlalchemy.exc.DatabaseError, match="append-only"):
        connection.execute(sqlalchemy.text(statement))


def open_and_register(url: str, folder: str, barrier: Barrier) -> None:
    barrier.wait(timeout=60)
    World(Path(folder), url).candidate("sft")


def test_two_processes_may_make_the_tables_at_once(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    url = f"sqlite:///{tmp_path / 'new.db'}"
    barrier = spawn.Barrier(2)
    processes = [
        spawn.Process(target=open_and_register, args=(url, str(tmp_path / side), barrier)) for side in ("a", "b")
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=60)
        assert process.exitcode == 0
        process.close()
    assert len(Ledger(url).history()) == 1


def test_forged_event_at_the_end_stops_the_next_promoter(tmp_path: Path) -> None:
    world = World(tmp_path)
    version = world.candidate("sft")
    engine = sqlalchemy.create_engine(world.ledger.url, poolclass=sqlalchemy.NullPool)
    with engine.begin() as connection:
        connection.execute(
            sqlalchemy.text(
                "INSERT INTO events SELECT 7, tenant, experiment, 2, version, 'moved', 'production', digest, body "
                "FROM events"
            )
        )
    with pytest.raises(IntegrityError, match="release ledger"):
        world.ledger.reject(version, by="Olga", reason="x")
