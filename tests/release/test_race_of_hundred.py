"""A hundred promoters race for one position of the ledger: exactly one wins each round, the others are told by whom.

They meet at a barrier, each with a ledger of its own: as threads of one process, and (slow) of four processes at once.
Rounds alternate between all promoting one version and each promoting another. On SQLite and, where the machine has one
to start, on Postgres; there history also withstands whoever owns the database, as far as anything can.
"""

from __future__ import annotations

import multiprocessing
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from threading import Barrier
from typing import Any

import pytest
from release_world import World, spawned, world_on

from ratchet.errors import ConflictError
from ratchet.release.decision import read_decision
from ratchet.release.ledger import Ledger

PROMOTERS = 100
PROCESSES = 4
ROUNDS = 10


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world_on(request.param, tmp_path_factory.mktemp("hundred")) as opened:
        yield opened


@pytest.fixture(scope="module")
def crowd(world: World) -> list[tuple[str, bytes]]:
    """A version and a decision for each promoter."""
    versions = [world.candidate(f"of-{number}") for number in range(PROMOTERS)]
    return [(version.id, world.decision(version).to_bytes()) for version in versions]


def promote(ledger: Ledger, name: str, version: str, data: bytes, seq: int, meet: Any) -> tuple[str, str]:
    """Promote at the moment that all others do; says how it went. Whatever is no conflict comes out."""
    decision = read_decision(data, "test")
    meet.wait(timeout=120)
    try:
        ledger.transition(version, "staging", by=name, decision=decision, expected_seq=seq)
    except ConflictError as error:
        return "lost", str(error)
    return "won", name


def decided(world: World, answers: list[tuple[str, str]], seq: int) -> str:
    """Name of the one winner, after everything that must be true of a round was checked."""
    assert Counter(outcome for outcome, _ in answers) == {"won": 1, "lost": PROMOTERS - 1}
    (winner,) = [name for outcome, name in answers if outcome == "won"]
    assert all(f"{winner} moved version" in words for outcome, words in answers if outcome == "lost")
    assert world.seq == seq + 1
    return winner


def entered(world: World, number: int, crowd: list[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    """What each promotes in a round: one new version, or its own, of which one more is gone each time."""
    if number % 2 == 0:
        version = world.candidate(f"round-{world.seq}")
        return [(version.id, world.decision(version).to_bytes())] * PROMOTERS
    standing = {identity for identity, (_, state) in world.ledger.versions().items() if state == "candidate"}
    left = [one for one in crowd if one[0] in standing]
    return [left[at % len(left)] for at in range(PROMOTERS)]


def test_one_of_a_hundred_threads_wins_each_round(world: World, crowd: list[tuple[str, bytes]]) -> None:
    ledgers = [Ledger(world.ledger.url) for _ in range(PROMOTERS)]
    winners = []
    with ThreadPoolExecutor(PROMOTERS) as pool:
        for number in range(3):
            jobs, seq, meet = entered(world, number, crowd), world.seq, Barrier(PROMOTERS)
            runs = [
                pool.submit(promote, ledger, f"thread-{at}", *job, seq, meet)
                for at, (ledger, job) in enumerate(zip(ledgers, jobs, strict=True))
            ]
            # seq was read after the versions of the round were entered, so nothing but a promotion moves it.
            winners.append(decided(world, [run.result(timeout=120) for run in runs], seq))
    moved = [event.by for event in world.ledger.history() if event.kind == "moved"]
    assert moved[-3:] == winners
    assert world.ledger.verify() == len(world.ledger.history())


def racing(url: str, name: str, size: int, meet: Any, pipe: Connection) -> None:
    """A process of several promoters: answers how each of its promotions of a round went."""
    ledgers = [Ledger(url) for _ in range(size)]
    with ThreadPoolExecutor(size) as pool:
        while (job := pipe.recv()) is not None:
            entries, seq = job
            runs = [
                pool.submit(promote, ledger, f"{name}-{at}", *entry, seq, meet)
                for at, (ledger, entry) in enumerate(zip(ledgers, entries, strict=True))
            ]
            pipe.send([run.result() for run in runs])


@pytest.mark.slow
def test_one_of_a_hundred_promoters_in_four_processes_wins_each_round(
    world: World, crowd: list[tuple[str, bytes]]
) -> None:
    spawn = multiprocessing.get_context("spawn")
    size, meet = PROMOTERS // PROCESSES, spawn.Barrier(PROMOTERS)
    arguments = [(world.ledger.url, f"process-{number}", size, meet) for number in range(PROCESSES)]
    with spawned(racing, arguments) as pipes:
        winners = []
        for number in range(ROUNDS):
            jobs = entered(world, number, crowd)
            seq = world.seq
            for at, pipe in enumerate(pipes):
                pipe.send((jobs[at * size : (at + 1) * size], seq))
            answers = [answer for pipe in pipes for answer in pipe.recv()]
            winners.append(decided(world, answers, seq))
        moved = [event.by for event in world.ledger.history() if event.kind == "moved"]
        assert moved[-ROUNDS:] == winners
    assert world.ledger.verify() == len(world.ledger.history())
