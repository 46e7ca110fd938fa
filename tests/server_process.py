"""A server as a process of its own: a free port, a wait until it answers, and an end of everything it started."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

END_S = 60.0


def free_port() -> int:
    """A loopback port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(url: str) -> bool:
    """Whether something answers at `url`."""
    with contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError):
        urllib.request.urlopen(url, timeout=5).close()
        return True
    return False


@contextlib.contextmanager
def started(
    command: list[str], *, folder: Path, environment: Mapping[str, str], log: Path, end: signal.Signals = signal.SIGTERM
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command in `folder`; end it by `end`, then by SIGKILL, with all that it started."""
    with log.open("ab") as said:
        child = subprocess.Popen(command, cwd=folder, env=environment, stdout=said, stderr=said, start_new_session=True)
    try:
        yield child
    finally:
        # What the child started can outlive it, so the group is killed in any case.
        for number in (end, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(timeout=END_S)


def await_ready(child: subprocess.Popen[bytes], ready: Callable[[], bool], log: Path, seconds: float) -> None:
    """Wait until a server is ready; fails with the end of its log where it ends or takes longer than `seconds`."""
    deadline = time.monotonic() + seconds
    while not ready():
        if child.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{child.args!r} did not start:\n{log.read_text(errors='replace')[-3000:]}")
        time.sleep(0.2)
