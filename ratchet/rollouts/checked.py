"""Tool results, checked as they come out of an environment, and each different short one once.

Environments answer the same few things over and over, and to check an answer costs more than most environments take
to give it. A result that equals one that was checked before, in every value and type, is answered by that one: results
hold plain values only and are frozen, so episodes can share them.
"""

from __future__ import annotations

from ratchet.contracts.environment import ToolResult
from ratchet.contracts.model import revalidated

FIELDS = tuple(ToolResult.model_fields)
SHORT, AT_MOST = 400, 4096
"""Characters of a content that is remembered, and how many results are: a few megabytes."""

_known: dict[tuple[object, ...], ToolResult] = {}


def checked_result(value: object) -> ToolResult:
    """Return what `revalidated` makes of a tool result; the same object for the same result, where it is short.

    Raises:
        TypeError: it is something else.
        ValueError: a field is missing, unknown, of another type or out of range, or cannot be written.
    """
    key = _key(value)
    found = _known.get(key) if key else None
    if found is not None:
        return found
    found = revalidated(ToolResult, value)
    # By its own values: those of the original, which is not ours, may have changed since.
    own = _key(found)
    if own is None or len(found.content) > SHORT:
        return found
    if len(_known) >= AT_MOST:
        _known.clear()
    return _known.setdefault(own, found)


def _key(value: object) -> tuple[object, ...] | None:
    """What tells a result from every other one; None where it could hide something."""
    if type(value) is not ToolResult:
        return None
    fields = value.__dict__
    if tuple(fields) != FIELDS or value.__pydantic_extra__:
        return None
    content, status, violation, honeypot, ends_episode, sandbox_s = fields.values()
    if (
        type(content) is not str
        or type(status) is not str
        or not (violation is None or type(violation) is str)
        or not (honeypot is None or type(honeypot) is str)
        or type(ends_episode) is not bool
        or type(sandbox_s) is not float
    ):
        return None
    # Zeros of both signs are equal, and are written differently.
    return content, status, violation, honeypot, ends_episode, sandbox_s or repr(sandbox_s)
