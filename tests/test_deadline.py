"""Calls that do not come back are left behind; nothing that foreign code does ends the caller."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue

import pytest

from ratchet.deadline import Ended, Overdue, all_within, described, told, within


def test_results_and_errors_are_those_of_the_call() -> None:
    assert within(5, lambda: 42) == 42
    assert within(5, lambda: None) is None
    with pytest.raises(KeyError, match="x"):
        within(5, lambda: {}["x"])


def test_an_overdue_call_raises_and_its_late_result_is_handed_on() -> None:
    go, got = threading.Event(), threading.Event()

    def slow() -> str:
        go.wait(30)
        return "late"

    begun = time.monotonic()
    with pytest.raises(Overdue, match=r"no answer within 0\.1 s"):
        within(0.1, slow, late=lambda result: got.set() if result == "late" else None)
    assert time.monotonic() - begun < 10
    assert not got.is_set()
    go.set()
    assert got.wait(10)


def test_threads_that_answered_are_used_again() -> None:
    first = within(5, threading.current_thread)
    assert within(5, threading.current_thread) is first
    assert first.daemon


def test_of_many_calls_each_comes_to_its_own_end_in_order() -> None:
    def call(index: int) -> int:
        if index == 3:
            raise KeyError("three")
        if index == 5:
            raise SystemExit(2)
        return 10 * index

    with ThreadPoolExecutor(2) as pool:
        assert all_within(5, [], pool=pool) == []
        found = all_within(5, [partial(call, index) for index in range(8)], pool=pool)
    assert [one.result for one in found] == [0, 10, 20, None, 40, None, 60, 70]
    assert [type(one.error) for one in found if one.error] == [KeyError, Ended]
    with pytest.raises(KeyError, match="three"):
        found[3].get()


def test_quick_calls_are_made_by_one_thread() -> None:
    with ThreadPoolExecutor(2) as pool:
        threads = {one.get() for one in all_within(5, [threading.current_thread] * 20, pool=pool)}
    assert len(threads) == 1


def test_calls_that_wait_for_each_other_are_made_at_the_same_time() -> None:
    meeting = threading.Barrier(3)
    with ThreadPoolExecutor(3) as pool:
        found = all_within(30, [meeting.wait] * 3, pool=pool)
    assert sorted(one.get() for one in found) == [0, 1, 2]


def test_each_overdue_call_is_left_behind_alone_and_the_rest_is_made() -> None:
    go, late = threading.Event(), SimpleQueue[str]()

    def slow() -> str:
        go.wait(60)
        return "late"

    calls = [slow, lambda: "a", slow, slow, lambda: "b"]
    with ThreadPoolExecutor(1) as pool:
        found = all_within(0.3, calls, pool=pool, late=late.put)
    assert [one.result for one in found] == [None, "a", None, None, "b"]
    assert [str(one.error) for one in found if one.error] == ["no answer within 0.3 s"] * 3
    assert late.empty()
    go.set()
    assert [late.get(timeout=30) for _ in range(3)] == ["late"] * 3
    assert found[0].result is None


def test_a_pool_whose_threads_all_wait_for_calls_holds_up_none() -> None:
    def outer(pool: ThreadPoolExecutor) -> int:
        naps = [partial(time.sleep, 0.02)] * 3
        return sum(one.error is None for one in all_within(30, naps, pool=pool))

    with ThreadPoolExecutor(2) as pool:
        assert [one.result(timeout=60) for one in [pool.submit(outer, pool) for _ in range(4)]] == [3] * 4


@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit(), asyncio.CancelledError()])
def test_what_would_end_the_caller_is_an_ordinary_error(error: BaseException) -> None:
    def end() -> None:
        raise error

    with pytest.raises(Ended, match=type(error).__name__):
        within(5, end)


def test_an_error_without_a_text_and_a_long_one_can_be_told() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ValueError

    assert told("tool", Mute()) == "tool: Mute: it has no text"
    assert described(OSError("a\nb\ud800")) == "OSError: a b?"
    assert len(described(OSError("x" * 10_000))) < 500


def test_calls_work_after_a_fork() -> None:
    within(5, lambda: None)
    child = os.fork()
    if child == 0:
        os._exit(0 if within(5, lambda: 7) == 7 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_call_that_was_left_behind_does_not_hold_up_the_end_of_the_process() -> None:
    script = (
        "import time\nfrom ratchet.deadline import Overdue, within\n"
        "try:\n    within(0.1, lambda: time.sleep(600))\nexcept Overdue:\n    print('left')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "left\n"
