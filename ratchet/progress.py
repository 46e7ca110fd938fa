"""Progress of long work, as lines that a person and a log file can both read.

`task(title, total)` yields a `Tick`; calls to it report at most every `every_s` seconds, and once at the end with the
time taken. Lines go to the process's sink: standard error by default. A child process writes plain lines too, so its
parent only has to pass them on.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

Sink = Callable[[str], None]


def _stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


_sink: Sink = _stderr


def set_sink(sink: Sink) -> Sink:
    """Send lines to `sink` from now on; returns the previous one."""
    global _sink
    previous, _sink = _sink, sink
    return previous


def say(line: str) -> None:
    """Report one line."""
    _sink(line)


class Tick:
    """Counts the parts of one task that are done."""

    def __init__(self, title: str, total: int | None, every_s: float) -> None:
        """Start at zero of `total` parts (None where the number is not known)."""
        self.title, self.total, self.every_s = title, total, every_s
        self.done = 0
        self.started = self.shown = time.monotonic()

    def __call__(self, parts: int = 1, note: str = "") -> None:
        """Count `parts` more, and report if it is time."""
        self.done += parts
        now = time.monotonic()
        if now - self.shown >= self.every_s:
            self.shown = now
            of = f"/{self.total}" if self.total else ""
            share = f" ({100 * self.done // self.total} %)" if self.total else ""
            say(f"  {self.title}: {self.done}{of}{share}{' · ' + note if note else ''}")


@contextlib.contextmanager
def task(title: str, total: int | None = None, every_s: float = 5.0) -> Iterator[Tick]:
    """Report the progress of one task and, when it ends well, the seconds it took."""
    tick = Tick(title, total, every_s)
    yield tick
    say(f"  {title}: done in {time.monotonic() - tick.started:.1f} s")
