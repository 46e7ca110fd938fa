"""Calls that always come back by themselves: made between the turns, and by several threads once one takes long."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from test_episodes import roll, spoken
from test_episodes_apart import roll_apart

from ratchet.contracts.environment import Task, ToolCall, ToolResult, bounded
from ratchet.environments.repair import RepairEnvironment
from ratchet.environments.repair.episode import RepairEpisode
from ratchet.rollouts.rollout import Rollout

SLOW_S = 0.1


class Noting:
    """The real environment, which notes the thread of every call and whether the attempt was closed."""

    def __init__(self, inner: RepairEnvironment, stated: Any, before: Callable[[NotingEpisode], None] | None = None):
        self.inner, self.spec, self.bounded, self.before = inner, inner.spec, stated, before
        self.threads: list[tuple[int, int]] = []
        self.closed = 0

    def open(self, task: Task, seed: int) -> RepairEpisode:
        return NotingEpisode(self, task)

    def here(self, number: int) -> list[bool]:
        """Of the calls with a number in their episodes, whether each was made in this thread."""
        return [thread == threading.get_ident() for at, thread in self.threads if at == number]


class NotingEpisode(RepairEpisode):
    def __init__(self, outer: Noting, task: Task) -> None:
        super().__init__(task, outer.spec, outer.inner.sandbox, "short", outer.inner.true_fix)
        self.outer = outer

    def call(self, call: ToolCall) -> ToolResult:
        self.outer.threads.append((self.calls, threading.get_ident()))
        if self.outer.before:
            self.outer.before(self)
        return super().call(call)

    def __exit__(self, *error: Any) -> None:
        self.outer.closed += 1
        super().__exit__(*error)


def kept(rollouts: list[Rollout]) -> list[Any]:
    return [(spoken(one), one.deliverable, one.invalid) for one in rollouts]


def test_only_a_plain_true_promises_it(environment: RepairEnvironment) -> None:
    assert bounded(environment)
    for stated in ("yes", 1, False, None):
        assert not bounded(Noting(environment, stated))  # type: ignore[arg-type]


@pytest.mark.parametrize("promised", [True, False])
def test_quick_calls_are_made_by_the_thread_that_samples_where_they_are_bounded(
    environment: RepairEnvironment, tasks: list[Task], promised: bool
) -> None:
    requests = [(task, seed) for task in tasks[:4] for seed in range(2)]
    reference = roll(environment, requests)  # what is run is remembered now, so that every call is quick
    noting = Noting(environment, promised)
    assert kept(roll(noting, requests)) == kept(reference)
    here = [thread == threading.get_ident() for _, thread in noting.threads]
    assert len(here) == sum(one.calls for one in reference)
    # On a loaded machine a call can seem slow, and others of its turn are made elsewhere then.
    assert sum(here) > len(here) // 2 if promised else not any(here)


def test_a_server_s_episodes_never_make_them_in_their_own_threads(
    environment: RepairEnvironment, tasks: list[Task]
) -> None:
    own: set[str] = set()
    noting = Noting(environment, True, lambda _: own.add(threading.current_thread().name))
    found = roll_apart(noting, [(task, 0) for task in tasks[:4]])
    assert [one.invalid for one in found] == [None] * 4
    assert own
    assert not any(name.startswith("episode") for name in own)


def test_from_the_first_slow_call_of_a_turn_several_threads_make_the_others(
    environment: RepairEnvironment, tasks: list[Task]
) -> None:
    requests = [(task, seed) for task in tasks[:8] for seed in range(2)]
    reference = roll(environment, requests)
    noting = Noting(environment, True, lambda one: time.sleep(SLOW_S) if one.calls == 1 else None)
    assert kept(roll(noting, requests)) == kept(reference)
    assert noting.here(1) == [True] + [False] * 15
    assert len({thread for at, thread in noting.threads if at == 1}) >= 3
    # The next turn begins here again.
    assert noting.here(2)[0]


@pytest.mark.parametrize("seconds", [0.0, SLOW_S])
def test_one_that_raises_makes_its_own_episode_invalid(
    environment: RepairEnvironment, tasks: list[Task], seconds: float
) -> None:
    requests = [(task, 0) for task in tasks[:6]]
    reference = roll(environment, requests)

    def died(one: NotingEpisode) -> None:
        if one.task.task_id == tasks[2].task_id and one.calls == 1:
            time.sleep(seconds)
            raise OSError("it died")

    noting = Noting(environment, True, died)
    found = roll(noting, requests)
    assert [one.invalid for one in found] == [None, None, "tool: OSError: it died", None, None, None]
    assert kept(found[:2] + found[3:]) == kept(reference[:2] + reference[3:])
    assert noting.closed == 6
    if seconds:  # slow failures, too, are had by several threads
        assert noting.here(1)[-1] is False


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_in_the_middle_of_one_ends_the_batch_and_closes_every_episode(
    environment: RepairEnvironment, tasks: list[Task], kind: type[BaseException]
) -> None:
    def interrupted(one: NotingEpisode) -> None:
        if one.calls == 1:
            raise kind

    noting = Noting(environment, True, interrupted)
    with pytest.raises(kind):
        roll(noting, [(task, 0) for task in tasks[:4]])
    assert noting.closed == 4
