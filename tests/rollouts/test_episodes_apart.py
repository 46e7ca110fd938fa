"""Episodes on a server: each by itself, so that one that waits for a tool holds up no other."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from test_episodes import HARNESS, Breaking, policy, roll, spoken

from ratchet.contracts.environment import Task, ToolCall, ToolResult
from ratchet.contracts.policy import Decoding, Harness
from ratchet.environments.repair import RepairEnvironment
from ratchet.environments.repair.episode import RepairEpisode
from ratchet.errors import EngineError
from ratchet.rollouts.engine import Conversations, PolicyEngine, Session, Turn
from ratchet.rollouts.episodes import run_batch
from ratchet.rollouts.rollout import Rollout

PATIENCE_S = 60.0


class Elsewhere:
    """An engine over the model of this process. Gives up at its turn number `fails_at`."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.fails_at, self.turns, self.lock = fails_at, 0, threading.Lock()

    def session(self, end: int, decoding: Decoding, seeds: list[str]) -> Conversations:
        return ElsewhereSession(self, Session(policy()[0], end, decoding, seeds))


class ElsewhereSession:
    def __init__(self, owner: Elsewhere, session: Session) -> None:
        self.owner, self.session = owner, session

    def turn(self, added: dict[int, list[int]]) -> dict[int, Turn]:
        with self.owner.lock:
            self.owner.turns += 1
            if self.owner.fails_at is not None and self.owner.turns >= self.owner.fails_at:
                raise EngineError("a server", rule="it must stay up", remedy="start it again")
            return self.session.turn(added)

    def take_back(self, row: int, ids: list[int]) -> None:
        with self.owner.lock:
            self.session.take_back(row, ids)


def roll_apart(
    environment: Any, requests: list[tuple[Task, int]], harness: Harness = HARNESS, engine: Elsewhere | None = None
) -> list[Rollout]:
    with ThreadPoolExecutor(4) as pool:
        return run_batch(engine or Elsewhere(), policy()[1], environment, harness, requests, pool=pool)


class Watched:
    """The real environment, which notes what is open and has one slow task: its first call waits for all others."""

    def __init__(self, inner: RepairEnvironment, slow: str | None, others: int) -> None:
        self.inner, self.spec, self.slow, self.others = inner, inner.spec, slow, others
        self.open_now: set[int] = set()
        self.opened = self.most_calls = self.calls = 0
        self.lock, self.all_others_over = threading.Lock(), threading.Event()

    def open(self, task: Task, seed: int) -> RepairEpisode:
        return WatchedEpisode(self, task)


class WatchedEpisode(RepairEpisode):
    def __init__(self, outer: Watched, task: Task) -> None:
        super().__init__(task, outer.spec, outer.inner.sandbox, "short", outer.inner.true_fix)
        self.outer, self.over = outer, False

    def __enter__(self) -> RepairEpisode:
        self.outer.open_now.add(id(self))
        self.outer.opened += 1
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        self.outer.open_now.remove(id(self))
        super().__exit__(*error)

    def call(self, call: ToolCall) -> ToolResult:
        with self.outer.lock:
            self.outer.calls += 1
            self.outer.most_calls = max(self.outer.most_calls, self.outer.calls)
        try:
            if self.task.task_id == self.outer.slow:
                assert self.outer.all_others_over.wait(PATIENCE_S), "the others waited for this call"
            time.sleep(0.02)
            result = super().call(call)
        finally:
            with self.outer.lock:
                self.outer.calls -= 1
        if (result.ends_episode or self.calls == HARNESS.max_calls) and not self.over:
            self.over = True
            with self.outer.lock:
                self.outer.others -= 1
                if not self.outer.others:
                    self.outer.all_others_over.set()
        return result


def test_episodes_are_those_of_a_batch(environment: RepairEnvironment, tasks: list[Task]) -> None:
    assert isinstance(Elsewhere(), PolicyEngine)
    requests = [(task, seed) for task in tasks[:6] for seed in (0, 1)]
    harness = HARNESS.model_copy(update={"retries": 2, "approval_rules": ("submit after run_tests",)})
    together, alone = roll(environment, requests, harness), roll_apart(environment, requests, harness)
    assert [spoken(one) for one in alone] == [spoken(one) for one in together]
    assert [[turn.ids for turn in one.taken_back] for one in alone] == [
        [turn.ids for turn in one.taken_back] for one in together
    ]
    assert [one.deliverable for one in alone] == [one.deliverable for one in together]
    assert any(one.taken_back for one in alone)


def test_an_episode_that_waits_for_a_tool_holds_up_no_other(environment: RepairEnvironment, tasks: list[Task]) -> None:
    watched = Watched(environment, slow=tasks[2].task_id, others=7)
    found = roll_apart(watched, [(task, 0) for task in tasks[:8]])
    assert [one.invalid for one in found] == [None] * 8
    assert all(one.latency_s <= found[2].latency_s for one in found)


def test_calls_at_once_are_as_many_as_the_pool_has_threads(environment: RepairEnvironment, tasks: list[Task]) -> None:
    watched = Watched(environment, slow=None, others=0)
    roll_apart(watched, [(task, seed) for task in tasks[:8] for seed in range(3)])
    assert 1 < watched.most_calls <= 4


@pytest.mark.parametrize(
    ("phase", "told"), [("open", "reset"), ("observation", "reset"), ("call", "tool"), ("deliverable", "deliverable")]
)
def test_an_episode_that_breaks_is_invalid_alone(
    environment: RepairEnvironment, tasks: list[Task], phase: str, told: str
) -> None:
    requests = [(task, 0) for task in tasks[:6]]
    whole = roll(environment, requests)
    found = roll_apart(Breaking(environment, phase, {tasks[3].task_id}), requests)
    assert [one.invalid for one in found].count(None) == 5
    assert found[3].invalid == f"{told}: OSError: {phase} of {tasks[3].task_id} died"
    assert [spoken(one) for one in found if not one.invalid] == [
        spoken(one) for one, other in zip(whole, found, strict=True) if not other.invalid
    ]


def test_an_engine_that_gives_up_ends_the_batch_and_every_episode_is_closed(
    environment: RepairEnvironment, tasks: list[Task]
) -> None:
    watched, engine = Watched(environment, slow=None, others=0), Elsewhere(fails_at=20)
    with pytest.raises(EngineError, match="it must stay up"):
        roll_apart(watched, [(task, 0) for task in tasks[:8]], engine=engine)
    assert watched.opened == 8
    assert watched.open_now == set()
    # Each of the others notices by its next turn at the latest.
    assert engine.turns <= 20 + 8
