"""OpenAI Responses API: stored responses and requests, alone, side by side or as batch lines, and arrays of items.

A record is a response, a request, `input` and `output` in one object, `{"request": ..., "response": ...}`, or a line
of a batch. Conversations are joined across the records of a source: by `previous_response_id`, and where the input of
one repeats what another had in and out. Only the last record of a conversation becomes a trajectory, with the steps of
those before it; where two go on from the same one, its steps are copied context in the second.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from ratchet.contracts.canonical import digest
from ratchet.intake.histories import Entry, entry_of, join, resolve
from ratchet.intake.items import SPACE, Items
from ratchet.intake.jsontext import Value, values
from ratchet.intake.messages import Conversation, object_of, text_or_none, tools_of
from ratchet.intake.records import Record, Rejected, Unreadable
from ratchet.intake.sniff import roots
from ratchet.intake.validate import trajectory_of

TITLE = "OpenAI Responses API"
LINES = False
KEPT = (
    "instructions, messages and parts, reasoning, calls of every tool and their outputs, tools, model, usage, times; "
    "conversations joined; ids, settings and every other field of the last record under `extra.openai_responses`"
)
DROPPED = (
    "settings and metadata of the earlier records of a conversation (counted); the spacing inside argument strings"
)
_KINDS = "message|reasoning|function_call|custom_tool_call|web_search_call|file_search_call|computer_call|mcp_call"
_ITEM = re.compile(rf'\[\s*\{{\s*("type"\s*:\s*"(?:{_KINDS})|"id"\s*:\s*"(?:msg|rs|fc|ws|fs|cu|ci|ctc|mcp|mcpl|ig)_)')
_RESPONSE = re.compile(rb'"object"\s*:\s*"response"')
_PLACED = ("input", "output", "instructions", "tools", "model", "metadata")
_HELD = ("input", "output", "instructions", "model", "usage", "created_at", "id", "previous_response_id")
"""Fields of an earlier record of a conversation that its steps, or the last record, hold."""


def sniff(head: bytes, name: str) -> bool:
    """Whether a record says that it is a response, continues one, or holds items; or the source is an array of them."""
    found = roots(head)
    if any({"messages", "resourceSpans", "schema_version"} & set(keys) for keys in found):
        return False
    bare = head.lstrip()[:1] == b"[" and len(found) == 1 and _is_item(found[0])
    return bare or any(_is_record(keys, head) for keys in found)


def _is_record(keys: dict[str, str], head: bytes) -> bool:
    if keys.get("object", "").startswith('"response"') or "previous_response_id" in keys:
        return True
    if "input" in keys and _ITEM.match(keys.get("output", "")):
        return True
    wrapped = keys.get("response", "").startswith("{") and ("request" in keys or "custom_id" in keys)
    asked = keys.get("url", "").startswith('"/v1/responses"')
    return asked or (wrapped and _RESPONSE.search(head) is not None)


def _is_item(keys: dict[str, str]) -> bool:
    return re.match(rf'"(?:{_KINDS})"', keys.get("type", "")) is not None and "stop_reason" not in keys


def read(data: bytes, source: str) -> Iterator[Record | Rejected]:
    """Yield one record per conversation, at the place of its last response."""
    pieces = list(values(data))
    first = next((piece.value for piece in pieces if isinstance(piece, Value)), {})
    if data.lstrip()[:1] == b"[" and _bare(first):
        yield _array(data, pieces)
        return
    placed: list[Entry | Rejected] = []
    for piece in pieces:
        if isinstance(piece, Rejected):
            placed.append(piece)
            continue
        try:
            entry = entry_of(piece)
            _check(entry)
        except Unreadable as error:
            placed.append(Rejected(piece.number, piece.offset, piece.raw, error.code, error.reason))
        else:
            placed.append(entry)
    entries = [place for place in placed if isinstance(place, Entry)]
    resolve(entries)
    join(entries)
    continued = {id(entry.parent) for entry in entries}
    for place in placed:
        if isinstance(place, Rejected):
            yield place
        elif id(place) not in continued:
            yield _record(place)


def _check(entry: Entry) -> None:
    """Raise Unreadable where an entry is no valid trajectory alone: it must not cost those that it goes on from."""
    record = _record(entry)
    entry.emitted = False
    own = {name: str(record.claims.get(name, "-")) for name in ("tenant", "grant_id")}
    trajectory_of(record, tenant=own["tenant"], grant_id=own["grant_id"])


def _bare(body: dict[str, Any]) -> bool:
    """Whether an element of an array is an item, and no record."""
    return not {"object", "request", "response", "body"} & set(body) and (
        "type" in body or {"role", "content"} <= set(body)
    )


def _array(data: bytes, pieces: list[Value | Rejected]) -> Record | Rejected:
    """Read an array of items as one conversation; one that cannot be read costs all, for they are one record."""
    broken = next((piece for piece in pieces if isinstance(piece, Rejected)), None)
    if broken is not None:
        return Rejected(0, 0, data, broken.code, f"in one of its items, {broken.reason}")
    items = [piece.value for piece in pieces if isinstance(piece, Value)]
    noted = tuple(code for piece in pieces if isinstance(piece, Value) for code in piece.anomalies)
    try:
        return _record(Entry(Value(0, 0, data, {"input": items}, noted), {}, items, []))
    except Unreadable as error:
        return Rejected(0, 0, data, error.code, error.reason)


def _chat(chain: list[Entry]) -> Conversation:
    """Return the conversation of a chain of entries."""
    last = chain[-1]
    chat = Conversation(lambda: digest(last.item.value)[:12], SPACE, last.item.anomalies)
    items = Items(chat)
    told: Any = None
    for entry in chain:
        first = len(chat.steps)
        if entry.body.get("instructions") not in (None, told):
            told = entry.body["instructions"]
            for item in [{"role": "system", "content": told}] if isinstance(told, str) else told:
                items.add(item)
        for item in entry.asked:
            items.add(item)
        items.close()
        start = len(chat.steps)
        for item in entry.answered:
            items.add(item)
        items.close()
        _measure(entry, chat.steps[start:], last)
        if entry.emitted:
            for step in chat.steps[first:]:
                step["is_copied_context"] = True
    return chat


def _measure(entry: Entry, steps: list[dict[str, Any]], last: Entry) -> None:
    """Put the model, the time and the usage of a response on the steps that it answered with."""
    own = [step for step in steps if step["source"] == "agent"]
    model = text_or_none(entry.body.get("model"))
    for step in own:
        if model is not None and model != last.body.get("model"):
            step["model_name"] = model
        when = _when(entry.body.get("created_at"))
        if when:
            step["timestamp"] = when
    usage = entry.body.get("usage")
    if own and isinstance(usage, dict):
        cached = usage.get("input_tokens_details")
        own[-1]["metrics"] = {
            "prompt_tokens": _count(usage.get("input_tokens")),
            "completion_tokens": _count(usage.get("output_tokens")),
            "cached_tokens": _count(cached.get("cached_tokens")) if isinstance(cached, dict) else None,
            "extra": usage,
        }


def _when(seconds: Any) -> str | None:
    """Return ISO 8601 of a Unix time, or None where it is none that a clock shows."""
    if isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 < seconds < 4e9:
        return datetime.fromtimestamp(seconds, UTC).isoformat()
    return None


def _count(value: Any) -> int | None:
    return value if type(value) is int else None


def _record(entry: Entry) -> Record:
    chain = entry.chain()
    chat = _chat(chain)
    if not chat.steps:
        raise Unreadable("no_items", "a record must have at least one item")
    body = entry.body
    metadata = object_of(body, "metadata")
    claims = object_of(metadata, "ratchet")
    rest = {key: value for key, value in body.items() if key not in _PLACED and value is not None}
    if len(metadata) > ("ratchet" in metadata):
        rest["metadata"] = {key: value for key, value in metadata.items() if key != "ratchet"}
    if entry.wrapper:
        rest["record"] = entry.wrapper
    if len(chain) > 1:
        rest["history"] = [link.body.get("id") for link in chain[:-1]]
        chat.noted += ["joined_history"] * (len(chain) - 1)
    if chain[0].previous:
        chat.noted.append("history_elsewhere")
    if body.get("status") not in (None, "completed"):
        chat.noted.append("incomplete_response")
    conversation = body.get("conversation")
    document = {
        "schema_version": "ATIF-v1.8",
        "session_id": text_or_none(conversation.get("id") if isinstance(conversation, dict) else conversation),
        "agent": {
            "name": "unknown",
            "version": "unknown",
            "model_name": text_or_none(body.get("model")),
            "tool_definitions": _tools(chain, chat),
        },
        "steps": chat.steps,
        "extra": {SPACE: rest} if rest else None,
    }
    dropped = [
        f"history.{key}"
        for link in chain[:-1]
        for key, value in {**link.body, **link.wrapper}.items()
        if key not in _HELD and value is not None and value != body.get(key)
    ]
    for link in chain:
        link.emitted = True
    item = entry.item
    return Record(item.number, item.offset, item.raw, document, claims, chat.anomalies(), tuple(dropped))


def _tools(chain: list[Entry], chat: Conversation) -> list[dict[str, Any]] | None:
    """Return the tools as chat logs have them: a function's schema under `function`; a provider's own as they are."""
    stated = [entry.body for entry in chain if entry.body.get("tools") is not None]
    tools = tools_of(stated[-1], chat.noted) if stated else None
    return tools and [
        {"type": "function", "function": {key: value for key, value in tool.items() if key != "type"}}
        if tool.get("type") == "function" and "function" not in tool
        else tool
        for tool in tools
    ]
