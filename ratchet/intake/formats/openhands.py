"""OpenHands: event streams (a JSON array, or `{trajectory: [...]}`) and the `output.jsonl` of its evaluations.

Both generations of events are read (`ratchet.intake.openhands`), and both of `history`: the list of events and the
older list of (action, observation) pairs. So are rows of data sets whose `trajectory` holds the messages that the model
read and wrote. The patch of `test_result` is the deliverable, handed in where the agent
finished by itself. A stream in which one event cannot be read is set aside whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ratchet.contracts.canonical import digest
from ratchet.intake.jsontext import Value, values
from ratchet.intake.messages import object_of, records_of, text_or_none, tools_of
from ratchet.intake.openhands import Actions, Events, Messages, Telling
from ratchet.intake.records import Record, Rejected, Unreadable
from ratchet.intake.sniff import HEAD_BYTES, inside, roots
from ratchet.intake.tasks import deliverable, instance_claims, named_claims

TITLE = "OpenHands"
LINES = True
KEPT = (
    "messages, calls (by the model's response, or by the action's name), results, tools, reasoning, usage; events that "
    "no model read or wrote, `metadata`, `metrics`, `test_result` and the rest under `extra.openhands`; the patch as "
    "the deliverable `submission.diff`; task and repo from the instance"
)
DROPPED = (
    "copies of a model's response on the second and later events that it caused; all but the last report of an ACP call"
)

_KIND = re.compile(r'"(\w+Event|Condensation\w*|UserRejectObservation)"')
_RUN = {"test_result", "metadata", "instruction", "instance", "metrics", "git_patch"}


def sniff(head: bytes, name: str) -> bool:
    """Whether a source is an array of events, or has records that hold them."""
    found = roots(head)
    if _array(head):
        return any(_is_event(keys) for keys in found) or any(_holds(keys, head) for keys in found)
    return any(_holds(keys, head) for keys in found)


def _array(head: bytes) -> bool:
    return head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"[")


def _is_event(keys: dict[str, Any]) -> bool:
    """Whether an object is an event; the values are texts of JSON."""
    if "kind" in keys and _KIND.match(str(keys["kind"])):
        return bool({"source", "timestamp", "id"} & set(keys))
    if "action" in keys:
        return "args" in keys
    return "observation" in keys and "content" in keys and bool({"extras", "cause", "source"} & set(keys))


def _holds(keys: dict[str, str], head: bytes) -> bool:
    if keys.get("trajectory", "").startswith("["):
        first = inside(head, "trajectory")
        return _is_event(first) or ("instance_id" in keys and {"role", "content"} <= set(first))
    if "history" not in keys or "trajectory" in keys:
        return False
    return bool({"instance_id", "task_id", "id"} & set(keys)) and bool(_RUN & set(keys))


def read(data: bytes, source: str) -> Iterator[Record | Rejected]:
    """Yield one record per stream or evaluated instance."""
    if _array(data[:HEAD_BYTES]) and any(_is_event(keys) for keys in roots(data[:HEAD_BYTES])):
        yield _stream(data, source)
    else:
        yield from records_of(data, lambda item: _record(item, source))


def _stream(data: bytes, source: str) -> Record | Rejected:
    events: list[Any] = []
    anomalies: set[str] = set()
    for item in values(data):
        if isinstance(item, Rejected):
            return Rejected(0, 0, data, item.code, f"event {item.number} of the stream: {item.reason}")
        events.append(item.value)
        anomalies.update(item.anomalies)
    try:
        return _record(Value(0, 0, data, {"trajectory": events}, tuple(sorted(anomalies))), source)
    except Unreadable as error:
        return Rejected(0, 0, data, error.code, error.reason)


def _record(item: Value, source: str) -> Record:
    body = item.value
    field = "history" if "history" in body else "trajectory"
    events = body.get(field)
    if not isinstance(events, list) or not events:
        raise Unreadable("no_events", f"{field} must be an array with at least one event")
    telling = _reader(events)(lambda: digest(body)[:12], item.anomalies)
    telling.tell(events)
    placed = {field}
    if telling.tools is None:
        telling.tools = tools_of(body, telling.chat.noted)
        placed.add("tools")
    if not telling.chat.steps:
        raise Unreadable("no_messages", "the events must hold one that somebody said")
    metadata, instance = object_of(body, "metadata"), object_of(body, "instance")
    config = object_of(metadata, "llm_config") or object_of(metadata, "llm")
    result = object_of(body, "test_result")
    stated = (result.get("git_patch"), body.get("git_patch"), body.get("model_patch"))
    patch = next((value for value in stated if isinstance(value, str)), None)
    placed |= {"model_patch"} if patch is body.get("model_patch") else set()
    rest = {key: value for key, value in body.items() if key not in placed and value is not None}
    if patch and "git_patch" in result:
        rest["test_result"] = {key: value for key, value in result.items() if key != "git_patch"}
    if telling.events:
        rest["events"] = telling.events
    document = {
        "schema_version": "ATIF-v1.8",
        "agent": {
            "name": text_or_none(metadata.get("agent_class")) or "OpenHands",
            "version": _version(telling.chat.steps) or "unknown",
            "model_name": text_or_none(config.get("model")) or telling.model,
            "tool_definitions": telling.tools,
        },
        "steps": telling.chat.steps,
        "final_metrics": _totals(body.get("metrics")),
        "extra": {"openhands": rest} if rest else None,
    }
    claims = _task(body, instance, source)
    if patch is not None or telling.finished:
        claims["deliverable"] = deliverable(telling.finished, patch)
    return Record(
        item.number, item.offset, item.raw, document, claims, telling.chat.anomalies(), tuple(telling.dropped)
    )


def _reader(events: list[Any]) -> type[Telling]:
    """Return what reads such events, by the fields of any one of them."""
    fields = {key for event in events if isinstance(event, dict) for key in event}
    return (
        Events
        if "kind" in fields
        else Actions
        if {"action", "observation"} & fields or "role" not in fields
        else Messages
    )


def _task(body: dict[str, Any], instance: dict[str, Any], source: str) -> dict[str, Any]:
    stated = next((body[key] for key in ("instance_id", "task_id", "id") if isinstance(body.get(key), str | int)), None)
    claims = named_claims(source) if stated is None else instance_claims(str(stated))
    repo = instance.get("repo") or body.get("repo")
    return {**claims, "repo": repo} if isinstance(repo, str) and repo else claims


def _version(steps: list[dict[str, Any]]) -> str | None:
    """Return the version that the system message states."""
    for step in steps[:1]:
        event = _deep(step, "extra", "openhands", "event")
        return text_or_none(_deep(event, "args", "openhands_version"))
    return None


def _deep(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _totals(metrics: Any) -> dict[str, Any] | None:
    usage = _deep(metrics, "accumulated_token_usage")
    counts = {
        "total_prompt_tokens": _deep(usage, "prompt_tokens"),
        "total_completion_tokens": _deep(usage, "completion_tokens"),
        "total_cached_tokens": _deep(usage, "cache_read_tokens"),
    }
    found: dict[str, Any] = {key: value for key, value in counts.items() if type(value) is int}
    cost = _deep(metrics, "accumulated_cost")
    if type(cost) in (int, float):
        found["total_cost_usd"] = cost
    return found or None
