"""A trace to one trajectory in ATIF.

The main chain of model calls gives the steps; what a call says about itself (time, model, usage, cost) goes to the
step of its answer. A tool span belongs to the call whose id it names, else to the first one of its tool that none
belongs to; it gives the result where the messages have none, and one that no message mentions becomes a step without
a model call. Every other chain is embedded, named by its first span, with the context that it shares with the main
one marked as copied; the result of the call that started it refers to it. All other spans are kept in `extra`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from ratchet.contracts.canonical import canonical_json
from ratchet.intake.messages import Conversation
from ratchet.intake.records import Record, Rejected, Unreadable
from ratchet.intake.spans.chains import Chain
from ratchet.intake.spans.chat import forget
from ratchet.intake.spans.joining import Trace, traces_of
from ratchet.intake.spans.model import Span, Tree
from ratchet.intake.spans.tools import place_tools

_NANOSECONDS = 1e9


def records_of(spans: Iterable[Span | Rejected], space: str) -> Iterator[Record | Rejected]:
    """Yield one record per trace, and what was rejected before.

    Args:
        spans: of a whole source, in any order.
        space: key of `extra` under which what has no place in ATIF is kept.
    """
    found: list[Span] = []
    for item in spans:
        if isinstance(item, Rejected):
            yield item
        else:
            found.append(item)
    for number, trace in enumerate(traces_of(found)):
        raw = b"\n".join(dict.fromkeys(span.raw for span in trace.spans))
        offset = min(span.offset for span in trace.spans)
        try:
            document, claims, anomalies = _document(trace, space)
        except Unreadable as error:
            yield Rejected(number, offset, raw, error.code, error.reason)
            continue
        dropped = tuple(f"{span.kind}.{name}" for span in trace.spans for name in span.dropped)
        yield Record(number, offset, raw, document, claims, tuple(anomalies), dropped)
    forget()


def _document(trace: Trace, space: str) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    for span in trace.spans:
        if span.broken is not None:
            raise span.broken
    chains = trace.chains()
    if not chains:
        raise Unreadable(
            "no_messages", "no span of the trace holds messages; content was not recorded, or is elsewhere"
        )
    tree = Tree(trace.spans)
    anomalies = [code for span in trace.spans for code in span.anomalies] + trace.anomalies
    if not tree.roots():
        anomalies.append("root_missing")
    else:
        anomalies += ["parent_missing"] * len(tree.orphans())
    if any(span.kind != "llm" for span in trace.calls):
        anomalies.append("messages_of_the_root")
    main, *others = chains
    for chain in others:
        _share(main, chain)
    placed = place_tools(chains, [span for span in trace.spans if span.kind == "tool"], tree)
    anomalies += placed.anomalies
    names = [trace.names[0], *(f"{trace.names[0]}/{chain.spans[0].id}" for chain in others)]
    for chain, name in zip(others, names[1:], strict=True):
        above = list(tree.above(chain.spans[0]))
        owner = next((placed.results[span.id] for span in above if span.id in placed.results), None)
        if owner is not None:
            owner.refers_to.append(name)
        if tree.agents(chain.spans[0]) == tree.agents(main.spans[0]) and owner is None:
            anomalies.append("separate_history")
    told: set[int] = set()
    documents = [_trajectory(*pair, trace, space, anomalies, told) for pair in zip(chains, names, strict=True)]
    shown = told | {id(span) for span in trace.spans if span.kind == "tool"} - {id(span) for span in placed.beside}
    rest = [span for span in trace.spans if id(span) not in shown]
    for chain in chains:
        for span in chain.spans:
            if span.kind != "llm":  # its messages are the steps
                span.dropped.clear()
    kept: dict[str, Any] = {"trace_ids": trace.names}
    if resources := {canonical_json(span.resource): span.resource for span in trace.spans if span.resource}:
        kept["resources"] = list(resources.values())
    if rest:
        kept["spans"] = [_summary(span) for span in rest]
    document = {**documents[0], "extra": {space: kept}}
    if others:
        document["subagent_trajectories"] = documents[1:]
    return document, _claims(trace, tree), anomalies


def _summary(span: Span) -> dict[str, Any]:
    about = {
        "model": span.model,
        "metrics": span.metrics,
        "tool": span.tool,
        "arguments": span.arguments,
        "result": span.result,
    }
    return {**span.summary, **{key: value for key, value in about.items() if value not in (None, {})}}


def _trajectory(
    chain: Chain, name: str, trace: Trace, space: str, anomalies: list[str], told: set[int]
) -> dict[str, Any]:
    """Return a chain as an ATIF document, and note its quirks, and in `told` the model calls that have a step."""
    model = next((span.model for span in chain.spans if span.model), None)
    agent: dict[str, Any] = {"name": "unknown", "version": "unknown", "model_name": model}
    for span in (chain.spans[0], *Tree(trace.spans).above(chain.spans[0])):
        for key in ("name", "version"):
            if agent[key] == "unknown" and span.agent.get(key):
                agent[key] = span.agent[key]
    for key in ("name", "version"):
        service = chain.spans[0].resource.get(f"service.{key}")
        if agent[key] == "unknown" and isinstance(service, str) and service:
            agent[key] = service
    agent["tool_definitions"] = _tools(chain) or None
    talk = Conversation(lambda: name, space)
    for turn in chain.turns:
        item = talk.add(turn.message)
        if turn.refers_to:
            item["subagent_trajectory_ref"] = [{"trajectory_id": one} for one in turn.refers_to]
        if "step_id" not in item:
            continue
        if turn.copied:
            item["is_copied_context"] = True
        if turn.without_model:
            item["llm_call_count"] = 0
        if turn.span is not None and item["source"] == "agent":
            _amend(item, turn.span, model, space, first=id(turn.span) not in told)
            told.add(id(turn.span))
        if turn.others:
            item["extra"][space]["other_choices"] = turn.others
            chain.anomalies.append("several_choices")
    if not talk.steps:
        raise Unreadable("no_messages", "the model calls of the trace hold no messages")
    anomalies += [*chain.anomalies, *talk.anomalies()]
    return {
        "schema_version": "ATIF-v1.8",
        "session_id": trace.conversation,
        "trajectory_id": name,
        "agent": agent,
        "steps": talk.steps,
    }


def _amend(step: dict[str, Any], span: Span, model: str | None, space: str, *, first: bool) -> None:
    """Put on a step what its model call says; metrics once, where a call answered in several messages."""
    extra = step.setdefault("extra", {}).setdefault(space, {})
    if not first:
        extra["span_id"] = span.id
        return
    about = {key: value for key, value in span.summary.items() if key not in ("kind", "started")}
    extra |= {key: value for key, value in about.items() if key not in extra}
    if span.started and "timestamp" not in step:
        step["timestamp"] = span.started
    if span.model and span.model != model:
        step["model_name"] = span.model
    if span.metrics:
        step["metrics"] = span.metrics


def _share(main: Chain, chain: Chain) -> None:
    """Mark what a chain has in common with the main one, from its beginning to its own first answer, as copied."""
    mine, theirs = ([turn for turn in one.turns if turn.compared] for one in (chain, main))
    for turn, other in zip(mine, theirs, strict=False):
        if turn.key != other.key or turn.span is not None:
            return
        turn.copied = True


def _tools(chain: Chain) -> list[dict[str, Any]]:
    """Return every tool that a call of the chain was offered; a change from call to call is an anomaly."""
    found: dict[str, dict[str, Any]] = {}
    offered = [{canonical_json(tool): tool for tool in map(_schema, span.tools)} for span in chain.spans if span.tools]
    for tools in offered:
        found |= {text: tool for text, tool in tools.items() if text not in found}
    if any(set(tools) != set(found) for tools in offered):
        chain.anomalies.append("tools_changed")
    return list(found.values())


def _schema(tool: dict[str, Any]) -> dict[str, Any]:
    """Return a tool as chat logs have it: a function's schema under `function`; a provider's own as it is."""
    if isinstance(tool.get("function"), dict) or not isinstance(tool.get("name"), str):
        return tool
    if tool.get("type") not in (None, "function", "custom"):
        return tool
    names = {"input_schema": "parameters"}
    return {"type": "function", "function": {names.get(key, key): tool[key] for key in tool if key != "type"}}


def _claims(trace: Trace, tree: Tree) -> dict[str, Any]:
    """Return Ratchet's own metadata of all spans, and how long the trace took."""
    claims: dict[str, Any] = {}
    for span in trace.spans:
        for key, value in span.claims.items():
            if claims.setdefault(key, value) != value:
                raise Unreadable("bad_metadata", f"spans of one trace say different things about ratchet.{key}")
    roots = tree.roots()
    if len(roots) == 1 and len(trace.names) == 1 and math.isfinite(took := roots[0].end - roots[0].start):
        claims.setdefault("latency_s", max(0.0, took / _NANOSECONDS))
    return claims
