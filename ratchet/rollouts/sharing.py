"""Sharing one thing that can be set to one use at a time: those with the same use at once, the others after them."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Hashable, Iterator
from contextlib import contextmanager


class Sharing:
    """Lets in who wants what those inside want, in the order of arrival: whoever waits is not overtaken for ever."""

    def __init__(self) -> None:
        """Begin with nobody inside."""
        self._changed = threading.Condition()
        self._waiting: deque[object] = deque()
        self._use: Hashable = None
        self._inside = 0
        self._since = 0.0

    @contextmanager
    def inside(self, use: Hashable) -> Iterator[float]:
        """Wait until nobody inside wants anything else, and stay in; yields since when this use lasts, monotonic."""
        ticket = object()
        with self._changed:
            self._waiting.append(ticket)
            try:
                self._changed.wait_for(lambda: self._waiting[0] is ticket and (self._inside == 0 or self._use == use))
                if self._inside == 0:
                    self._use, self._since = use, time.monotonic()
                self._inside += 1
            finally:
                self._waiting.remove(ticket)
                self._changed.notify_all()
            since = self._since
        try:
            yield since
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()
