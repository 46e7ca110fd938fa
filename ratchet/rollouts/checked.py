"""Tool results, checked as they come out of an environment, and each different one once.

Environments answer the same few things over and over, and to check an answer costs more than most environments take
to give it. A result that equals one that was checked before, in every value and type, is answered by that one: results
hold plain values only and are frozen, so episodes can share them.
"""

from __future__ import annotations

from ratchet.contracts.environment import ToolResult
from ratchet.contracts.model import revalidated

PLAIN = frozenset({str, bool, float, type(None)})
"""Types of the values that a result is made of: equal ones are the same, but for the sign of a zero."""


class CheckedResults:
    """The results of one batch of episodes. Remembers what it returns, so that it should not outlive the batch."""

    def __init__(self) -> None:
        """Begin with none."""
        self._known: dict[tuple[object, ...], ToolResult] = {}

    def checked(self, value: object) -> ToolResult:
        """Return what `revalidated` makes of a tool result; the same object for the same result.

        Raises:
            TypeError: it is something else.
            ValueError: a field is missing, unknown, of another type or out of range, or cannot be written.
        """
        key = _key(value)
        found = self._known.get(key) if key else None
        if found is not None:
            return found
        found = revalidated(ToolResult, value)
        # By its own values: those of the original, which is not ours, may have changed since.
        own = _key(found)
        return self._known.setdefault(own, found) if own else found


def _key(value: object) -> tuple[object, ...] | None:
    """What tells a result from every other one; None where it could hide something."""
    if type(value) is not ToolResult:
        return None
    fields = value.__dict__
    values = tuple(fields.values())
    types = tuple(map(type, values))
    if not PLAIN.issuperset(types) or value.__pydantic_extra__:
        return None
    # Zeros of both signs are equal, and are written differently.
    return tuple(fields), types, values, repr(fields.get("sandbox_s"))
