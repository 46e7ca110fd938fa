"""OpenAI chat conversations: `messages` with tool calls, as JSON, JSON arrays and JSON Lines.

Kept: text, parts, reasoning, parallel calls, results, tools, model; every other field of a message or record under
`extra.openai`. Ratchet's metadata is read from `metadata.ratchet`; an `instance_id` beside the messages is the task.
Legacy `function_call`, `function` messages and `functions` become calls, results and tools. Dropped: the spacing inside
argument strings; a result's message-level fields other than content, id and name stay in the result's `extra`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ratchet.contracts.canonical import digest
from ratchet.intake.jsontext import Value
from ratchet.intake.messages import Conversation, object_of, records_of, text_or_none, tools_of
from ratchet.intake.records import Record, Rejected, Unreadable
from ratchet.intake.sniff import roots
from ratchet.intake.tasks import instance_claims

TITLE = "OpenAI chat"
LINES = True
KEPT = (
    "text, parts, reasoning, parallel and legacy calls, results, tools, model; `instance_id` as the task; every other "
    "field of a message or record under `extra.openai`"
)
DROPPED = "the spacing inside argument strings"
FOREIGN = {
    "schema_version", "steps", "trajectory", "trajectory_format", "history", "traj", "info",
    "conversations", "chosen", "rejected", "resourceSpans", "samples", "runs", "observations", "termination_reason",
}  # fmt: skip
"""Top-level fields of other formats that also have, or contain, messages."""


def sniff(head: bytes, name: str) -> bool:
    """Whether a record has `messages` and no field by which another format is known."""
    found = roots(head)
    return any(keys.get("messages", "").startswith("[") for keys in found) and not any(
        FOREIGN & set(keys) for keys in found
    )


def read(data: bytes, source: str) -> Iterator[Record | Rejected]:
    """Yield one record per conversation."""
    return records_of(data, _record)


def _record(item: Value) -> Record:
    body = item.value
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise Unreadable("no_messages", "messages must be an array with at least one message")
    chat = Conversation(lambda: digest(body)[:12], "openai", item.anomalies)
    metadata = object_of(body, "metadata")
    claims = object_of(metadata, "ratchet")
    instance = body.get("instance_id")
    if isinstance(instance, str) and instance:
        claims = {**instance_claims(instance), **claims}
    named = metadata.get("agent")
    about: dict[str, Any] = named if isinstance(named, dict) and set(named) <= {"name", "version"} else {}
    rest = {
        key: value for key, value in body.items() if key not in ("messages", "metadata", "tools", "functions", "model")
    }
    other = {key: value for key, value in metadata.items() if key != "ratchet" and not (key == "agent" and about)}
    if other:
        rest["metadata"] = other
    agent = {
        "name": text_or_none(about.get("name")) or "unknown",
        "version": text_or_none(about.get("version")) or "unknown",
        "model_name": text_or_none(body.get("model")),
        "tool_definitions": tools_of(body, chat.noted),
    }
    if body.get("model") is not None and agent["model_name"] is None:
        rest["model"] = body["model"]
    for message in messages:
        chat.add(message)
    document = {
        "schema_version": "ATIF-v1.8",
        "agent": agent,
        "steps": chat.steps,
        "extra": {"openai": rest} if rest else None,
    }
    return Record(item.number, item.offset, item.raw, document, claims, chat.anomalies())
