"""Calls into code that is not ours: they come back in time, or they are left behind.

An environment, a verifier or a judge can be anybody's code, and code that never returns would stop a loop for good. So
whoever calls it waits at most so long, in a thread that nobody needs afterwards. What holds then:

- A call that is overdue raises `Overdue` in the caller. Its thread cannot be ended (Python has no way to), so it is
  left behind: it holds up neither the caller nor the end of the process. What it returns late is handed to `late`,
  which can close it; what it raises late is of no interest any more.
- Threads that answered in time are used again and never end, because the kernel ends a child process that dies with
  its parent when the *thread* that started it ends.
- An error of the call is raised in the caller as it is. One that would end the caller's process or task (`SystemExit`,
  `CancelledError`) is wrapped in `Ended`: foreign code may not stop the loop.
- Handing a call to another thread and waiting for it costs more than most calls take. So of many calls one thread makes
  one after another, and other threads join it only where one takes long.
- A native call that never gives up the interpreter's lock stops every thread, this one too; only a limit from outside
  helps there, such as the hard wall of a training process.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from queue import SimpleQueue
from typing import Any, Generic, NamedTuple, TypeVar

T = TypeVar("T")
TOLD = 400
"""Characters of an error's message that enter a reason."""

HELP_AFTER_S = 0.005
"""Seconds that one call of many may take before others are made beside it; about ten times what that costs."""

HELPERS = 16
"""Threads beyond the first that make many calls at once, where the pool has as many."""


class Overdue(TimeoutError):
    """The call did not come back in time."""


class Ended(RuntimeError):
    """The call tried to end the thread or the process that made it."""


class Outcome(NamedTuple, Generic[T]):
    """What became of one call."""

    result: T | None
    error: Exception | KeyboardInterrupt | None
    ended: float
    """When it came back or was left behind, by `time.monotonic`."""

    def get(self) -> T:
        """Return what the call returned, or raise what it raised."""
        if self.error is None:
            return self.result  # type: ignore[return-value]
        try:
            raise self.error
        finally:
            # The traceback holds this frame, and this frame the error.
            del self


class _Calls(Generic[T]):
    """Calls, which threads take one after another, and what became of them."""

    def __init__(self, actions: Sequence[Callable[[], T]], late: Callable[[T], object] | None) -> None:
        self.actions, self.late = actions, late
        self.lock = threading.Lock()
        self.taken = 0
        self.outcomes: list[Outcome[T] | None] = [None] * len(actions)

    def take(self) -> int | None:
        """Index of a call that nobody has made yet."""
        with self.lock:
            if self.taken == len(self.actions):
                return None
            self.taken += 1
            return self.taken - 1

    def help(self, seconds: float) -> None:
        """Make calls that are left, if any are, on one more thread."""
        if self.left:
            _made(seconds, self)

    @property
    def left(self) -> int:
        """How many calls nobody has made yet."""
        return len(self.actions) - self.taken

    def give_up(self) -> None:
        """Leave the calls that nobody has made yet unmade."""
        with self.lock:
            self.taken = len(self.actions)


class _Line(Generic[T]):
    """One thread's way through some calls, until one of them is overdue."""

    def __init__(self, calls: _Calls[T]) -> None:
        self.calls = calls
        self.done = threading.Event()
        self.lock = threading.Lock()
        self.left_behind = False
        self.at: tuple[int, float] | None = None

    def run(self) -> None:
        while (index := self.calls.take()) is not None:
            self.at = index, time.monotonic()
            outcome = _outcome(self.calls.actions[index])
            with self.lock:
                if not self.left_behind:
                    self.calls.outcomes[index] = outcome
                    self.at = None
                    continue
            if self.calls.late is not None and outcome.error is None:
                # Nobody is left to whom a failing clean-up could be told.
                with contextlib.suppress(BaseException):
                    self.calls.late(outcome.result)  # type: ignore[arg-type]
            return
        self.done.set()

    def spent(self) -> float:
        """Seconds that the present call has taken so far."""
        at = self.at
        return time.monotonic() - at[1] if at else 0.0

    def leave(self, seconds: float) -> bool:
        """Stop waiting for a call that has taken so long; False where there is none."""
        with self.lock:
            if self.at is None or time.monotonic() - self.at[1] < seconds:
                return False
            overdue = Overdue(f"no answer within {seconds:g} s")
            self.calls.outcomes[self.at[0]] = Outcome(None, overdue, time.monotonic())
            self.left_behind = True
            return True


class _Worker:
    """A thread that goes one way after another, until it is left behind on one."""

    def __init__(self) -> None:
        self.lines: SimpleQueue[_Line[Any]] = SimpleQueue()
        threading.Thread(target=self._work, name="ratchet-deadline", daemon=True).start()

    def _work(self) -> None:
        while True:
            line = self.lines.get()
            line.run()
            if line.left_behind:
                return
            del line


_idle: list[_Worker] = []
# A fork copies the list and none of the threads.
os.register_at_fork(after_in_child=_idle.clear)


def within(seconds: float, action: Callable[[], T], *, late: Callable[[T], object] | None = None) -> T:
    """Return what `action` returns, or raise what it raises, if it does so in time.

    Args:
        seconds: how long to wait.
        action: the call.
        late: gets the result of a call that came back after all, in its own thread; errors in it are dropped.

    Raises:
        Overdue: the call is not back in time.
        Ended: it raised what is no `Exception` and no `KeyboardInterrupt`.
    """
    return _made(seconds, _Calls([action], late))[0].get()


def all_within(
    seconds: float,
    actions: Sequence[Callable[[], T]],
    *,
    pool: Executor,
    late: Callable[[T], object] | None = None,
) -> list[Outcome[T]]:
    """Make calls of which each has its own deadline, and return what became of each, in order.

    Args:
        seconds: how long to wait for one call, from its own start.
        actions: the calls; several may be made at once.
        pool: its threads make calls, too, once one call takes longer than `HELP_AFTER_S`.
        late: as for `within`.
    """
    return _made(seconds, _Calls(actions, late), pool) if actions else []


def _made(seconds: float, calls: _Calls[T], pool: Executor | None = None) -> list[Outcome[T]]:
    """Have calls made, and return once each is back or overdue."""
    helpers: list[Future[None]] = []
    line, worker = _sent(calls)
    try:
        while not line.done.wait(HELP_AFTER_S if pool else seconds - line.spent()):
            if pool and line.spent() >= HELP_AFTER_S:
                helpers = [pool.submit(calls.help, seconds) for _ in range(min(calls.left, HELPERS))]
                pool = None
            elif line.leave(seconds):
                line, worker = _sent(calls)
        # A helper that did not start yet has nothing left to do, and its pool may be busy with those who wait here.
        for helper in helpers:
            if not helper.cancel():
                helper.result()
    except BaseException:  # an interrupt of the caller
        calls.give_up()
        line.leave(0.0)
        raise
    _idle.append(worker)
    return calls.outcomes  # type: ignore[return-value]


def _sent(calls: _Calls[T]) -> tuple[_Line[T], _Worker]:
    """Have a thread make calls, one after another."""
    try:
        worker = _idle.pop()
    except IndexError:
        worker = _Worker()
    line = _Line(calls)
    worker.lines.put(line)
    return line, worker


def _outcome(action: Callable[[], T]) -> Outcome[T]:
    try:
        return Outcome(action(), None, time.monotonic())
    except (Exception, KeyboardInterrupt) as error:
        return Outcome(None, error, time.monotonic())
    except BaseException as error:
        ended = Ended(f"it raised {type(error).__name__}: {error}")
        ended.__cause__ = error
        return Outcome(None, ended, time.monotonic())


def told(where: str, error: BaseException) -> str:
    """Say in one line where a call failed and with what error."""
    return f"{where}: {described(error)}"


def described(error: BaseException) -> str:
    """Describe an error in one line that can be written anywhere, whatever the error holds."""
    try:
        text = " ".join(str(error).split()).encode("utf-8", "replace").decode()
    except Exception:  # its own text is foreign code too
        text = "it has no text"
    return f"{type(error).__name__}: {text if len(text) <= TOLD else text[:TOLD] + '...'}"
