"""What the events of an Inspect sample say beyond its messages: usage and time of each answer, tools, approvals.

A model event repeats the whole history before its call; only the last one is ever read as a history. Newer logs keep
the repeated messages once, in a pool, and name ranges of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ratchet.contracts.canonical import canonical_json

_DECISIONS = {"approve": "approved", "modify": "approved", "reject": "refused", "terminate": "refused"}


def last_history(sample: dict[str, Any], events: list[dict[str, Any]]) -> list[Any]:
    """Return the messages that the last answered model call saw, with its answer; empty where there was none."""
    pooled = sample.get("events_data")
    pool = pooled.get("messages") if isinstance(pooled, dict) else sample.get("message_pool")
    for event in reversed(events):
        answer = _answer(event)
        if answer is None:
            continue
        seen = event.get("input")
        history = list(seen) if isinstance(seen, list) else []
        refs = event.get("input_refs")
        if not history and isinstance(refs, list) and isinstance(pool, list):
            pairs = [
                ref for ref in refs if isinstance(ref, list) and len(ref) == 2 and all(type(n) is int for n in ref)
            ]
            history = [message for start, end in pairs for message in pool[max(start, 0) : max(end, 0)]]
        return [*history, answer]
    return []


def measure(
    spoken: list[tuple[dict[str, Any], dict[str, Any]]], events: list[dict[str, Any]], resolve: Callable[[Any], Any]
) -> None:
    """Put time and usage of each model call on the step that it answered with: by message id, else by what it said.

    Args:
        spoken: the agent's own steps, each with the message that it came from.
        events: all events of the sample: a grader's calls answer no message of it.
        resolve: puts attachments in place, which events name where messages hold the text.
    """
    answered = [(event, answer) for event in events if (answer := _answer(event)) is not None]
    by_id = {answer["id"]: event for event, answer in answered if isinstance(answer.get("id"), str)}
    by_words: dict[str, list[dict[str, Any]]] = {}
    for event, answer in answered:
        if not isinstance(answer.get("id"), str):
            by_words.setdefault(_words(resolve(answer)), []).append(event)
    for step, message in spoken:
        named = by_id.get(message["id"]) if isinstance(message.get("id"), str) else None
        same = by_words.get(_words(message)) if named is None else None
        if named is None and not same:
            continue
        event = named or (same or []).pop(0)
        if isinstance(event.get("timestamp"), str):
            step["timestamp"] = event["timestamp"]
        usage = event["output"].get("usage")
        if isinstance(usage, dict):
            step["metrics"] = _metrics(usage)


def _words(message: dict[str, Any]) -> str:
    return canonical_json([message.get("content"), message.get("tool_calls")])


def acting(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the events up to where scoring begins, without a grader's: those of the agent."""
    own = []
    for event in events:
        if event.get("event") in ("step", "span_begin") and event.get("type") in ("scorer", "scorers"):
            break
        if event.get("role") != "grader":
            own.append(event)
    return own


def _metrics(usage: dict[str, Any]) -> dict[str, Any]:
    """Return usage in ATIF's terms. Providers differ in whether `input_tokens` counts cached ones; the total does."""
    read, sampled, total = (_count(usage.get(key)) for key in ("input_tokens", "output_tokens", "total_tokens"))
    prompt = total - sampled if total is not None and sampled is not None and total >= sampled + (read or 0) else read
    cost = usage.get("total_cost")
    return {
        "prompt_tokens": prompt,
        "completion_tokens": sampled,
        "cached_tokens": _count(usage.get("input_tokens_cache_read")),
        "cost_usd": float(cost) if isinstance(cost, int | float) and not isinstance(cost, bool) else None,
        "extra": usage,
    }


def tools_of_events(events: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
    """Return the tools that the last model call with tools could use, as function schemas."""
    for event in reversed(events):
        tools = event.get("tools") if event.get("event") == "model" else None
        if isinstance(tools, list) and tools and all(isinstance(tool, dict) for tool in tools):
            return [{"type": "function", "function": tool} for tool in tools]
    return None


def approvals(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the approvals that decided about a tool call; an escalation decides nothing."""
    found = []
    for event in events:
        decision = _DECISIONS.get(str(event.get("decision"))) if event.get("event") == "approval" else None
        call = event.get("call")
        subject = call.get("id") if isinstance(call, dict) else None
        by, at = event.get("approver"), event.get("timestamp")
        if decision and isinstance(subject, str) and isinstance(by, str) and by and isinstance(at, str):
            found.append({"by": by, "decision": decision, "at": at, "subject": subject})
    return found


def _answer(event: dict[str, Any]) -> dict[str, Any] | None:
    """Return the message that a model event answered with, or None for another event and a failed call."""
    output = event.get("output") if event.get("event") == "model" else None
    choices = output.get("choices") if isinstance(output, dict) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    answer = first.get("message") if isinstance(first, dict) else None
    return answer if isinstance(answer, dict) else None


def _count(value: Any) -> int | None:
    return value if type(value) is int else None
