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
- A native call that never gives up the interpreter's lock stops every thread, this one too; only a limit from outside
  helps there, such as the hard wall of a training process.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

T = TypeVar("T")
TOLD = 400
"""Characters of an error's message that enter a reason."""


class Overdue(TimeoutError):
    """The call did not come back in time."""


class Ended(RuntimeError):
    """The call tried to end the thread or the process that made it."""


class _Job(Generic[T]):
    """One call: its result or its error, and whether anybody still waits for it."""

    def __init__(self, action: Callable[[], T], late: Callable[[T], object] | None) -> None:
        self.action, self.late = action, late
        self.done = threading.Event()
        self.lock = threading.Lock()
        self.left_behind = False
        self.result: T | None = None
        self.error: BaseException | None = None

    def run(self) -> None:
        result: T | None = None
        try:
            result = self.action()
        except BaseException as error:  # every error belongs to the caller
            self.error = error
        with self.lock:
            if not self.left_behind:
                self.result = result
                self.done.set()
                return
        if self.late is not None and self.error is None:
            # Nobody is left to whom a failing clean-up could be told.
            with contextlib.suppress(BaseException):
                self.late(result)  # type: ignore[arg-type]

    def leave(self) -> bool:
        """Stop waiting; False where the call has just come back."""
        with self.lock:
            self.left_behind = not self.done.is_set()
            return self.left_behind


class _Worker:
    """A thread that runs one call after another, until one of them is overdue."""

    def __init__(self) -> None:
        self.jobs: SimpleQueue[_Job[Any]] = SimpleQueue()
        threading.Thread(target=self._work, name="ratchet-deadline", daemon=True).start()

    def _work(self) -> None:
        while True:
            job = self.jobs.get()
            job.run()
            if job.left_behind:
                return
            del job


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
    try:
        worker = _idle.pop()
    except IndexError:
        worker = _Worker()
    job = _Job(action, late)
    worker.jobs.put(job)
    try:
        back = job.done.wait(seconds) or not job.leave()
    except BaseException:  # an interrupt of the caller
        job.leave()
        raise
    if not back:
        raise Overdue(f"no answer within {seconds:g} s")
    _idle.append(worker)
    error = job.error
    if error is None:
        return job.result  # type: ignore[return-value]
    try:
        if isinstance(error, Exception | KeyboardInterrupt):
            raise error
        raise Ended(f"it raised {type(error).__name__}: {error}") from error
    finally:
        # The traceback holds this frame, and this frame the error.
        del error, job


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
