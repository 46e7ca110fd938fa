"""OpenAI chat conversations: `messages` with tool calls, as JSON, JSON arrays and JSON Lines.

Stored completions too: where `choices` stand beside the messages, or request and response side by side, the first
choice is the last step. Rows of `messages` in TRL and LLaMA-Factory sets have this shape and are read here.

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
from ratchet.intake.sniff import inside, roots
from ratchet.intake.tasks import instance_claims

TITLE = "OpenAI chat"
LINES = True
KEPT = (
    "text, parts, reasoning, parallel and legacy calls, results, tools, model, the first choice of a completion with "
    "its usage; `instance_id` as the task; every other field of a message or record under `extra.openai`"
)
DROPPED = "the spacing inside argument strings"
FOREIGN = {
    "schema_version", "steps", "trajectory", "trajectory_format", "history", "traj", "info",
    "conversations", "chosen", "rejected", "resourceSpans", "samples", "runs", "observations", "termination_reason",
    "conversation", "eval", "previous_response_id",
}  # fmt: skip
"""Top-level fields of other formats that also have, or contain, messages."""


def sniff(head: bytes, name: str) -> bool:
    """Whether a record has `messages` and no field by which another format is known."""
    found = roots(head)
    if any(FOREIGN & set(keys) for keys in found):
        return False
    stored = any({"request", "response"} <= set(keys) for keys in found)
    return any(keys.get("messages", "").startswith("[") for keys in found) or (
        stored and inside(head, "request").get("messages", "").startswith("[")
    )


def read(data: bytes, source: str) -> Iterator[Record | Rejected]:
    """Yield one record per conversation."""
    return records_of(data, _record)


def _record(item: Value) -> Record:
    body, choices = _stored(item.value)
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise Unreadable("no_messages", "messages must be an array with at least one message")
    chat = Conversation(lambda: digest(item.value)[:12], "openai", item.anomalies)
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
        "tool_definitions": None if body.get("tools") == "" else tools_of(body, chat.noted),
    }
    if body.get("model") is not None and agent["model_name"] is None:
        rest["model"] = body["model"]
    for message in messages:
        chat.add(message)
    if choices and choices[0]["message"] == messages[-1]:
        rest["choices"] = choices
    elif choices:
        _answer(chat, choices, rest)
    document = {
        "schema_version": "ATIF-v1.8",
        "agent": agent,
        "steps": chat.steps,
        "extra": {"openai": rest} if rest else None,
    }
    # The first choice of a completion brings its usage with it.
    plain = chat.plain and not choices
    return Record(item.number, item.offset, item.raw, document, claims, chat.anomalies(), (), item.text, plain)


def _stored(body: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    """Return the request of a record, with what stands beside it, and the choices that answered it."""
    request, response = body.get("request"), body.get("response")
    if "messages" not in body and isinstance(request, dict):
        body = {**request, **{key: value for key, value in body.items() if key != "request"}}
    holder = response if isinstance(response, dict) else body
    choices = holder.get("choices")
    if not (isinstance(choices, list) and choices and isinstance(choices[0], dict) and choices[0].get("message")):
        return body, []
    rest = {key: value for key, value in holder.items() if key != "choices"}
    return ({**body, "response": rest} if holder is response else rest), choices


def _answer(chat: Conversation, choices: list[Any], rest: dict[str, Any]) -> None:
    """Add the first choice of a completion, with its usage; the others are kept beside."""
    step = chat.add(choices[0]["message"])
    told = {key: value for key, value in choices[0].items() if key != "message" and value not in (None, 0)}
    if told:
        step.setdefault("extra", {}).setdefault("openai", {}).update(told)
    holder = rest["response"] if isinstance(rest.get("response"), dict) else rest
    usage = holder.get("usage")
    if isinstance(usage, dict) and step.get("source") == "agent":
        cached = usage.get("prompt_tokens_details")
        step["metrics"] = {
            "prompt_tokens": _count(usage.get("prompt_tokens")),
            "completion_tokens": _count(usage.get("completion_tokens")),
            "cached_tokens": _count(cached.get("cached_tokens")) if isinstance(cached, dict) else None,
        }
    if len(choices) > 1:
        chat.noted.append("other_choices")
        rest["other_choices"] = choices[1:]


def _count(value: Any) -> int | None:
    return value if type(value) is int else None
