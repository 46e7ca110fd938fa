"""Child processes: they hear what the command hears, and never outlive it.

A child gets a session of its own, so that Ctrl-C reaches it once, through the command, and not a second time from the
terminal.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from types import FrameType
from typing import IO

PR_SET_PDEATHSIG = 1
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STOP_S = 15.0


@cache
def _keeper() -> ThreadPoolExecutor:
    """A thread that stays as long as this process."""
    return ThreadPoolExecutor(1, thread_name_prefix="ratchet-children")


# A fork copies the executor and not its thread.
os.register_at_fork(after_in_child=_keeper.cache_clear)


def start(
    command: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    output: IO[str] | int,
    at_death: signal.Signals,
) -> subprocess.Popen[str]:
    """Start a child whose standard output and error both go to `output`.

    Any thread may call this, and may end before the child does: the kernel takes the end of the thread that started a
    child for the end of the parent, so one starts it that stays.

    Args:
        command: program and arguments.
        cwd: its working directory.
        env: its environment.
        output: an open file, or `subprocess.PIPE`.
        at_death: signal that the kernel sends it when this process dies, however it dies.
    """
    begin = partial(_start, command, cwd, env, output, at_death)
    here = threading.current_thread() is threading.main_thread()
    return begin() if here else _keeper().submit(begin).result()


def _start(
    command: Sequence[str], cwd: Path, env: Mapping[str, str], output: IO[str] | int, at_death: signal.Signals
) -> subprocess.Popen[str]:
    library, parent = ctypes.CDLL(None), os.getpid()

    def follow_parent() -> None:
        library.prctl(PR_SET_PDEATHSIG, at_death)
        # A shell starts what it puts in the background with SIGINT ignored, and that is inherited.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)

    return subprocess.Popen(
        command,
        cwd=cwd,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        preexec_fn=follow_parent,
    )


class Heard:
    """The signals that came in while they were passed on, in order."""

    def __init__(self) -> None:
        """None so far."""
        self.signals: list[signal.Signals] = []

    @property
    def status(self) -> int | None:
        """Exit status by the custom of shells, 128 and the first signal's number; None where none came."""
        return 128 + self.signals[0] if self.signals else None


@contextlib.contextmanager
def passing_on(*children: subprocess.Popen[str]) -> Iterator[Heard]:
    """Pass SIGINT, SIGTERM and SIGHUP on to the children; a second one kills them."""
    heard = Heard()

    def pass_on(number: int, frame: FrameType | None) -> None:
        again = bool(heard.signals)
        heard.signals.append(signal.Signals(number))
        for child in children:
            if child.poll() is None:
                send(child, signal.SIGKILL if again else _understood(number))

    before = {number: signal.signal(number, pass_on) for number in PASSED_ON}
    try:
        yield heard
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _understood(number: int) -> signal.Signals:
    """A hang-up is a request to end that few programs handle."""
    return signal.SIGTERM if number == signal.SIGHUP else signal.Signals(number)


def send(child: subprocess.Popen[str], number: signal.Signals) -> None:
    """Send a signal to the child; SIGKILL goes to its whole session's group."""
    with contextlib.suppress(ProcessLookupError):
        if number == signal.SIGKILL:
            os.killpg(child.pid, number)
        else:
            child.send_signal(number)


def stop(*children: subprocess.Popen[str]) -> None:
    """Ask the children to end, wait, and kill those that do not, with everything they started."""
    for child in children:
        if child.poll() is None:
            child.send_signal(signal.SIGTERM)
    for child in children:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(STOP_S)
        send(child, signal.SIGKILL)
        child.wait()
