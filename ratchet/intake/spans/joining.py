"""Spans to traces, and traces to conversations.

The spans of a trace may stand on any lines of a source, in any order. A span that occurs twice counts once, as it was
written last. Traces that name the same conversation (session, thread) become one where the first model call of the
later goes on where the earlier ended; where it does not, each stays a trace of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ratchet.intake.spans.chains import Chain, chains_of, continues
from ratchet.intake.spans.model import Span, Tree


@dataclass
class Trace:
    """The spans of one trace, or of the traces of one conversation."""

    names: list[str]
    spans: list[Span]
    anomalies: list[str] = field(default_factory=list)
    conversation: str | None = None

    @property
    def start(self) -> float:
        """When its first span began, in nanoseconds since 1970."""
        return min(span.start for span in self.spans)

    @property
    def calls(self) -> list[Span]:
        """The model calls with messages; where there are none, the agents, else the roots that carry some."""
        tree = Tree(self.spans)
        groups = (
            [span for span in self.spans if span.kind == "llm"],
            [span for span in self.spans if span.kind == "agent" and not tree.agents(span)],
            [span for span in self.spans if span.kind == "other" and span.parent is None],
        )
        spoken = ([span for span in group if span.inputs or span.choices] for group in groups)
        return next((group for group in spoken if group), [])

    def chains(self) -> list[Chain]:
        """The conversations with a model, the main one first: under the fewest agents, the longest, the last."""
        tree = Tree(self.spans)
        found = chains_of(self.calls)[::-1]
        main = min(found, key=lambda chain: (len(tree.agents(chain.spans[0])), -len(chain.body)), default=None)
        return [main, *(chain for chain in found[::-1] if chain is not main)] if main else []


def traces_of(spans: Iterable[Span]) -> list[Trace]:
    """Return the traces of a source in the order in which they first occur in it."""
    grouped: dict[str, dict[str, Span]] = {}
    repeated: dict[str, int] = {}
    for span in spans:
        group = grouped.setdefault(span.trace, {})
        if span.id in group:
            repeated[span.trace] = repeated.get(span.trace, 0) + 1
        group[span.id] = span
    traces = []
    for name, group in grouped.items():
        members = list(group.values())
        named = {span.conversation for span in members if span.conversation}
        trace = Trace([name], members, ["repeated_span"] * repeated.get(name, 0))
        if len(named) == 1:
            (trace.conversation,) = named
        elif named:
            trace.anomalies.append("several_conversations")
        traces.append(trace)
    return _conversations(traces)


def _conversations(traces: list[Trace]) -> list[Trace]:
    """Join the traces of a conversation that continue each other."""
    by_name: dict[str, list[Trace]] = {}
    for trace in traces:
        if trace.conversation:
            by_name.setdefault(trace.conversation, []).append(trace)
    gone: set[int] = set()
    for members in by_name.values():
        if len(members) < 2:
            continue
        members.sort(key=lambda trace: trace.start)
        earlier = members[0]
        for later in members[1:]:
            if _goes_on(earlier, later):
                earlier.names += later.names
                earlier.spans += later.spans
                earlier.anomalies += later.anomalies
                gone.add(id(later))
            else:
                earlier = later
    return [trace for trace in traces if id(trace) not in gone]


def _goes_on(earlier: Trace, later: Trace) -> bool:
    ended, begun = earlier.chains(), later.calls
    return bool(ended and begun) and continues(ended[0], min(begun, key=lambda span: span.start))
