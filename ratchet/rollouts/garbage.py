"""Garbage collection while a batch makes many small objects that stay: seldom, and not of what was there before.

A model's process holds so much that searching it costs as much as all calls of the tools, and what a batch makes is
kept to its end. Cycles that an environment leaves behind are still found, after more of them.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG = 10_000
"""Objects by which a batch may grow before the young ones are searched; Python's own figure is 700."""

_lock = threading.Lock()
_open = 0
_before = (0, 0, 0)


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Search for garbage seldom while this is open, in any thread; afterwards as before.

    A process that searches even more seldom, or never, keeps its way.
    """
    global _open, _before
    with _lock:
        _open += 1
        if _open == 1:
            _before = gc.get_threshold()
            if 0 < _before[0] < YOUNG:
                gc.set_threshold(YOUNG, *_before[1:])
            gc.freeze()
    try:
        yield
    finally:
        with _lock:
            _open -= 1
            if not _open:
                gc.unfreeze()
                gc.set_threshold(*_before)
