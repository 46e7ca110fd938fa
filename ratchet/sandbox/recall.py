"""What was made of an object once, for objects that come again and again: to tell that it is the same one is cheap.

To compare two equal objects, or to hash one, can take longer than everything else that a remembered execution costs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
M = TypeVar("M")


class ByIdentity(Generic[T, M]):
    """Calls a function once for each object, while it is remembered. Safe to use from several threads."""

    def __init__(self, make: Callable[[T], M], *, at_most: int = 4096) -> None:
        """Remember what `make` returns for at most so many objects; all are forgotten where there are more.

        Args:
            make: the function; what it raises is raised, and not remembered.
            at_most: how many objects are kept, each with its result.
        """
        self.make, self.at_most = make, at_most
        # The object is kept, so that its identity is not another's.
        self._known: dict[int, tuple[T, M]] = {}

    def __call__(self, value: T) -> M:
        """Return what `make` returned for this very object, or returns now."""
        known = self._known.get(id(value))
        if known is not None and known[0] is value:
            return known[1]
        made = self.make(value)
        if len(self._known) >= self.at_most:
            self._known.clear()
        self._known[id(value)] = value, made
        return made
