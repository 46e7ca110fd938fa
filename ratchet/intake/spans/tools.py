"""Tool spans to the calls that they carried out.

A span belongs to the call whose id it names, else to the first call of its tool that no span has yet, one with the
same arguments before another, of the conversation under the same agent before another. Where the messages have no
result for the call, the span gives it; where they have, the span is kept beside it, with its own result if that
differs. A span that no call explains becomes a call without a model, at its time, unless it ran inside another tool:
then it is a detail of that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ratchet.intake.calls import Calls
from ratchet.intake.spans.chains import Chain, Turn, key_of
from ratchet.intake.spans.content import call
from ratchet.intake.spans.model import Span, Tree, decoded


@dataclass
class Placed:
    """Where the tool spans of a trace went."""

    results: dict[str, Turn] = field(default_factory=dict)
    """The result that a span stands for, by the id of the span."""
    beside: list[Span] = field(default_factory=list)
    """Spans that are details of other tools."""
    anomalies: list[str] = field(default_factory=list)


@dataclass
class _Made:
    """A call that a chain shows."""

    chain: Chain
    turn: Turn
    call: dict[str, Any]
    key: tuple[str, str]
    agents: list[str]
    answer: Turn | None = None
    taken: bool = False

    @property
    def name(self) -> Any:
        return self.call["function"].get("name")


def place_tools(chains: Sequence[Chain], spans: Sequence[Span], tree: Tree) -> Placed:
    """Give every tool span its place, in the order of time."""
    made = [one for chain in chains for one in _calls(chain, tree)]
    placed = Placed()
    for span in sorted(spans, key=lambda span: span.start):
        found = _find(made, span, tree.agents(span))
        if found is not None:
            found.taken = True
            _join(found, span, placed)
        elif next((one.kind for one in tree.above(span) if one.kind in ("tool", "agent")), None) == "tool":
            placed.beside.append(span)
        else:
            _insert(chains, span, tree, placed)
    return placed


def _calls(chain: Chain, tree: Tree) -> list[_Made]:
    """Return the calls of a chain, each with the result that the messages have for it."""
    pairs = Calls(lambda: "")
    found: dict[str, _Made] = {}
    agents = tree.agents(chain.spans[0])
    for place, turn in enumerate(chain.turns):
        listed = turn.message.get("tool_calls")
        for position, one in enumerate(listed if isinstance(listed, list) else []):
            if isinstance(one, dict) and isinstance(one.get("function"), dict):
                issued, _ = pairs.issue(place + 1, position, one.get("id"), one["function"].get("name"))
                found[issued] = _Made(chain, turn, one, turn.key[2][position], agents)
        if turn.message["role"] == "tool":
            name = turn.message.get("name")
            answered = pairs.answer(turn.message.get("tool_call_id"), name if isinstance(name, str) else None)
            if answered and found[answered[1]].answer is None:
                found[answered[1]].answer = turn
    return [one for one in found.values() if not one.turn.copied]


def _find(made: Sequence[_Made], span: Span, agents: list[str]) -> _Made | None:
    free = [one for one in made if not one.taken]
    named = [one for one in free if span.call_id is not None and str(one.call.get("id")) == span.call_id]
    if not named and span.call_id is not None:
        free = [one for one in free if not one.call.get("id")]
    free = named or [one for one in free if one.name == span.tool]
    own = _own(span)
    return min(free, key=lambda one: (one.agents[:1] != agents[:1], (one.key,) != own), default=None)


def _own(span: Span) -> tuple[tuple[str, str], ...]:
    """Return the call that a span carried out, as the keys of messages have it."""
    return key_of({"role": "assistant", "tool_calls": [call(None, span.tool, span.arguments)]})[2]


def _join(made: _Made, span: Span, placed: Placed) -> None:
    about = {key: value for key, value in span.summary.items() if key != "kind"}
    if span.arguments is not None and (made.key,) != _own(span):
        about["arguments"] = span.arguments
    if made.answer is None:
        result = _result(span)
        if result is None:
            made.call["span"] = about
            return
        if not made.call.get("id") and span.call_id:
            made.call["id"] = span.call_id
        given = made.call.get("id")
        message = {"role": "tool", "tool_call_id": given, "name": span.tool, "content": result, "span": about}
        made.answer = Turn(message, key_of(message), compared=False)
        place = next(place for place, turn in enumerate(made.chain.turns) if turn is made.turn) + 1
        made.chain.turns.insert(_after_results(made.chain, place), made.answer)
        placed.anomalies.append("result_of_a_span")
    else:
        said = made.answer.message.get("content")
        if span.result is not None and decoded(span.result) != decoded(said):
            about["result"] = span.result
        made.answer.message["span"] = about
    placed.results[span.id] = made.answer


def _result(span: Span) -> Any:
    """Return what a tool gave back; of a failed one that gave nothing, the message of its failure."""
    return span.rest.get("status_message") if span.result is None else span.result


def _insert(chains: Sequence[Chain], span: Span, tree: Tree, placed: Placed) -> None:
    """Let a span that no call explains be a call of its own, after what was said before it began."""
    agents = tree.agents(span)
    chain = next((one for one in chains if tree.agents(one.spans[0])[:1] == agents[:1]), chains[0])
    said = [place for place, turn in enumerate(chain.turns) if turn.span is not None]
    before = [place for place in said if _time(chain.turns[place]) <= span.start]
    place = before[-1] + 1 if before else said[0] if said else len(chain.turns)
    place = _after_results(chain, place)
    given = span.call_id or span.id
    made: dict[str, Any] = {"role": "assistant", "content": "", "tool_calls": [call(given, span.tool, span.arguments)]}
    if span.started:
        made["timestamp"] = span.started
    about = {key: value for key, value in span.summary.items() if key != "kind"}
    answer = {"role": "tool", "tool_call_id": given, "content": _result(span), "span": about}
    turns = [Turn(made, key_of(made), compared=False, without_model=True), Turn(answer, key_of(answer), compared=False)]
    chain.turns[place:place] = turns
    placed.results[span.id] = turns[1]
    placed.anomalies.append("tool_span_without_call")


def _after_results(chain: Chain, place: int) -> int:
    while place < len(chain.turns) and (
        chain.turns[place].message["role"] == "tool" or chain.turns[place].without_model
    ):
        place += 1
    return place


def _time(turn: Turn) -> float:
    """When an answer was there: at the end of its call, or, where that is not known, at its start."""
    assert turn.span is not None
    return turn.span.end if turn.span.ended else turn.span.start
