"""One span, whatever its format calls it, and the tree that the spans of a trace form.

Times come as ISO 8601 text, with or without a zone, or as seconds, milliseconds, microseconds or nanoseconds since
1970; they are kept as ISO 8601 text (numbers as UTC) and compared in nanoseconds, a text without a zone as UTC.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import takewhile
from typing import Any, Literal

from ratchet.contracts.canonical import canonical_json
from ratchet.intake.jsontext import decode_sound
from ratchet.intake.records import Unreadable

Kind = Literal["llm", "tool", "agent", "other"]


@dataclass
class Span:
    """One unit of work of a trace."""

    trace: str
    id: str
    parent: str | None
    name: str
    kind: Kind
    raw: bytes = field(repr=False)
    """The span's own bytes."""
    offset: int
    """Byte offset in the source of the value that holds it."""
    started: str | None = None
    ended: str | None = None
    conversation: str | None = None
    """Session, thread or conversation that its trace belongs to."""
    agent: dict[str, str] = field(default_factory=dict)
    """`name` and `version` of the agent, as far as the span says them."""
    model: str | None = None
    inputs: list[dict[str, Any]] = field(default_factory=list)
    """The history a model call was given, as chat messages."""
    choices: list[list[dict[str, Any]]] = field(default_factory=list)
    """What it answered: one list of chat messages for each alternative."""
    tools: list[dict[str, Any]] = field(default_factory=list)
    metrics: dict[str, Any] = field(default_factory=dict)
    """Usage and cost, as ATIF has them."""
    tool: str | None = None
    call_id: str | None = None
    arguments: Any = None
    result: Any = None
    resource: dict[str, Any] = field(default_factory=dict)
    """What made it: service, host and their like; the same for many spans, kept once."""
    rest: dict[str, Any] = field(default_factory=dict)
    """What has no place of its own, to be kept in `extra`."""
    claims: dict[str, Any] = field(default_factory=dict)
    """Ratchet's own metadata, where the span carries it."""
    anomalies: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    """What of it has no place, and repeats what others say: dotted field names."""
    broken: Unreadable | None = None
    """Why it has no reading; its whole trace is rejected for it."""

    @property
    def start(self) -> float:
        """Nanoseconds since 1970; infinity where it is not known, so that arrival decides."""
        return nanoseconds(self.started)

    @property
    def end(self) -> float:
        """As `start`."""
        return nanoseconds(self.ended)

    @property
    def summary(self) -> dict[str, Any]:
        """What is kept of a span that is no step: who, when and the rest."""
        about = {"span_id": self.id, "parent_id": self.parent, "name": self.name, "kind": self.kind}
        times = {"started": self.started, "ended": self.ended}
        return {key: value for key, value in {**about, **times, **self.rest}.items() if value not in (None, {}, [])}


class Tree:
    """Who is under whom; a parent that is missing, or that leads in a circle, ends a line."""

    def __init__(self, spans: Iterable[Span]) -> None:
        """Take the spans of a trace."""
        self.spans = {span.id: span for span in spans}

    def above(self, span: Span) -> Iterator[Span]:
        """Yield the spans above one, the nearest first."""
        seen = {span.id}
        while span.parent is not None and span.parent in self.spans and span.parent not in seen:
            span = self.spans[span.parent]
            seen.add(span.id)
            yield span

    def agents(self, span: Span) -> list[str]:
        """Return the ids of the agents above a span, the nearest first."""
        return [item.id for item in self.above(span) if item.kind == "agent"]

    def roots(self) -> list[Span]:
        """Return the spans that say they have no parent."""
        return [span for span in self.spans.values() if span.parent is None]

    def orphans(self) -> list[Span]:
        """Return the spans whose parent is not there."""
        return [span for span in self.spans.values() if span.parent is not None and span.parent not in self.spans]


def instant(value: Any) -> str | None:
    """Return a time as text: a number as ISO 8601 in UTC, a text as it is; None where there is none."""
    if isinstance(value, str) and value.strip().isdecimal() and len(value.strip()) < 25:
        value = int(value)
    if isinstance(value, bool) or value in (None, "", 0):
        return None
    return _from_number(value) if isinstance(value, int | float) else str(value)


def _from_number(value: float) -> str:
    """Read a number by its size: the four units are a factor of 1,000 apart, and logs are from after 1973."""
    for unit in (10**9, 10**6, 10**3, 1):
        if abs(value) >= 10**8 * unit:
            seconds, rest = divmod(value, unit)
            if unit == 1:
                rest = int(value % 1 * 10**6)
            try:
                whole = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
            except (ValueError, OverflowError, OSError):
                break
            digits = len(str(unit)) - 1 or 6
            fraction = f".{int(rest):0{digits}d}".rstrip("0").rstrip(".")
            return f"{whole}{fraction}Z"
    return str(value)


def nanoseconds(text: str | None) -> float:
    """Return a time as nanoseconds since 1970, a text without a zone as UTC; infinity for None and for no time."""
    try:
        time = datetime.fromisoformat(text or "")
        seconds = int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp())
    except (ValueError, OverflowError):
        return math.inf
    # A datetime holds microseconds; the text may hold more.
    digits = "".join(takewhile(str.isdecimal, (text or "").partition(".")[2]))
    return seconds * 10**9 + int((digits + "0" * 9)[:9])


def name_or_none(value: Any) -> str | None:
    """Return an id that refers to another span: a text as it is, anything else as its JSON, None for an empty one."""
    if value in (None, ""):
        return None
    return value if isinstance(value, str) else canonical_json(value)


def decoded(value: Any) -> Any:
    """Return what a string of JSON holds, or the value itself where it is none."""
    if isinstance(value, str) and value.lstrip(" \t\r\n")[:1] in ("{", "["):
        inner = decode_sound(value)
        return value if inner is None else inner
    return value


def metrics_of(values: dict[str, Any], extra: dict[str, Any]) -> dict[str, Any]:
    """Return ATIF metrics: whole numbers of tokens and a finite cost in their fields, anything else in `extra`.

    Args:
        values: by ATIF field name, None where the source says nothing.
        extra: other metrics of the source, by its own names.
    """
    result: dict[str, Any] = {}
    other = {key: value for key, value in extra.items() if value is not None}
    for key, value in values.items():
        if value is None:
            continue
        number = _number(value)
        if number is not None and key == "cost_usd":
            result[key] = float(number)
        elif number is not None and number == int(number):
            result[key] = int(number)
        else:
            other[key] = value
    return {**result, "extra": other} if other else result


def _number(value: Any) -> float | int | None:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    return value if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) else None
