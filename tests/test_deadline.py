"""Calls that do not come back are left behind; nothing that foreign code does ends the caller."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time

import pytest

from ratchet.deadline import Ended, Overdue, described, told, within


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
