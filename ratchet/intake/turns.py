"""Turns as training sets have them: `from`/`value` (ShareGPT) beside `role`/`content`, calls as text, preferences.

A turn in either spelling becomes a chat message, as `messages.Conversation` takes it. The text of a call turn is the
JSON of one call or of a list of parallel ones; where it is neither, the turn is kept as text. A preference row becomes
two records, one for each side, that come in together or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from ratchet.contracts.canonical import canonical_json, digest
from ratchet.intake.jsontext import Value, decode_sound, values
from ratchet.intake.messages import Conversation, tools_of
from ratchet.intake.records import Record, Rejected, Unreadable
from ratchet.intake.validate import trajectory_of

_ROLES = {
    "human": "user", "user": "user", "prompter": "user",
    "gpt": "assistant", "assistant": "assistant", "model": "assistant", "chatgpt": "assistant", "bot": "assistant",
    "bing": "assistant", "bard": "assistant",
    "system": "system", "developer": "developer",
    "observation": "tool", "tool": "tool", "function_response": "tool", "function-response": "tool", "ipython": "tool",
}  # fmt: skip
_CALLS = ("function_call", "function-call", "tool_call")
_THOUGHT = ("thinking", "reasoning")
_OWN = ("from", "value", "role", "content")


def add_turn(chat: Conversation, turn: Any) -> dict[str, Any]:
    """Take one turn in either spelling; returns the step or result that it became.

    Raises:
        Unreadable: it is no object, speaks for nobody known, or its content has no reading.
    """
    return chat.add(_message(turn, chat))


def _message(turn: Any, chat: Conversation) -> dict[str, Any]:
    if not isinstance(turn, dict):
        raise Unreadable("bad_message", "a turn must be an object")
    spelled = ("from", "value") if "from" in turn else ("role", "content")
    speaker, content = turn.get(spelled[0]), turn.get(spelled[1])
    rest = {key: value for key, value in turn.items() if key not in _OWN}
    thought = next((key for key in _THOUGHT if isinstance(rest.get(key), str)), None)
    if thought and "reasoning_content" not in rest:
        rest["reasoning_content"] = rest.pop(thought)
    if speaker == "function":
        # In ShareGPT sets it is the call, in legacy OpenAI messages the result.
        speaker = "function_call" if spelled[0] == "from" and _calls(content) else "observation"
    if speaker in _CALLS:
        calls = _calls(content)
        if calls:
            return {**rest, "role": "assistant", "tool_calls": calls}
        chat.noted.append("call_as_text")
        speaker = "assistant"
    if isinstance(rest.get("tool_calls"), list):
        rest["tool_calls"] = [_spelled(call) for call in rest["tool_calls"]]
    role = _ROLES.get(speaker) if isinstance(speaker, str) else None
    if role is None:
        raise Unreadable("unknown_role", "a turn's speaker must be one that ShareGPT or chat sets know")
    return {**rest, "role": role, **({"content": content} if spelled[1] in turn else {})}


def _calls(content: Any) -> list[dict[str, Any]] | None:
    """Return the calls that a call turn holds, as chat messages have them, or None where it holds none."""
    value = decode_sound(content) if isinstance(content, str) else content
    listed = value if isinstance(value, list) else [value]
    calls = []
    for item in listed:
        if isinstance(item, dict) and isinstance(item.get("function"), dict):
            item = {**item, **item["function"]}
            item.pop("function")
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            return None
        arguments = item.get("arguments", item.get("parameters"))
        rest = {key: item[key] for key in item if key not in ("name", "arguments", "parameters", "type")}
        calls.append(_spelled({**rest, "function": {"name": item["name"], "arguments": arguments}}))
    return calls or None


def _spelled(call: Any) -> Any:
    """Return a call as chat logs spell it: its arguments, which here may be objects by definition, as text."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), dict):
        return call
    return {**call, "function": {**function, "arguments": canonical_json(function["arguments"])}}


def rows_of(data: bytes, convert: Callable[[Value], list[Record]]) -> Iterator[Record | Rejected]:
    """Yield the records that `convert` makes of each row; a row that it finds unreadable is rejected whole."""
    for item in values(data):
        if isinstance(item, Rejected):
            yield item
            continue
        try:
            records = convert(item)
        except Unreadable as error:
            yield Rejected(item.number, item.offset, item.raw, error.code, error.reason)
            continue
        yield from (replace(record, text=item.text) for record in records)


def tools_in(body: dict[str, Any], anomalies: list[str]) -> list[dict[str, Any]] | None:
    """Return the tool schemas of a row; a blank string is none, a bare schema becomes a function's."""
    if isinstance(body.get("tools"), str) and not body["tools"].strip():
        return None
    tools = tools_of(body, anomalies)
    if tools is None:
        return None
    bare = [not isinstance(tool.get("function"), dict) and isinstance(tool.get("name"), str) for tool in tools]
    anomalies += ["bare_tool_schema"] * sum(bare)
    return [
        {"type": "function", "function": tool} if is_bare else tool for tool, is_bare in zip(tools, bare, strict=True)
    ]


def record_of(
    item: Value, chat: Conversation, tools: list[dict[str, Any]] | None, space: str, rest: dict[str, Any]
) -> Record:
    """Return the record of a finished conversation; `rest` is what else the row holds, kept under `extra.<space>`."""
    if not chat.steps:
        raise Unreadable("no_messages", "a row must hold at least one turn")
    model = rest.get("model")
    document = {
        "schema_version": "ATIF-v1.8",
        "agent": {
            "name": "unknown",
            "version": "unknown",
            "model_name": model if isinstance(model, str) else None,
            "tool_definitions": tools,
        },
        "steps": chat.steps,
        "extra": {space: rest} if rest else None,
    }
    return Record(item.number, item.offset, item.raw, document, {}, chat.anomalies())


def pair_of(item: Value, sides: dict[str, tuple[Conversation, int]], tools: Any, space: str, rest: Any) -> list[Record]:
    """Return the two records of a preference row.

    Args:
        item: the row.
        sides: for `chosen` and `rejected`, its conversation and how many of its first steps are the shared prompt.
            In the rejected side these are copied context: they would else be counted and trained on twice.
        tools: tool schemas of the row.
        space: key of `extra` for what else the row holds.
        rest: that.

    Raises:
        Unreadable: one of the two is no valid trajectory; neither comes in.
    """
    name = digest(item.value)
    for step in sides["rejected"][0].steps[: sides["rejected"][1]]:
        step["is_copied_context"] = True
    records = [
        record_of(item, chat, tools, space, {**rest, "preference": {"pair": name, "side": side}})
        for side, (chat, _) in sides.items()
    ]
    for record in records:
        trajectory_of(record, tenant="-", grant_id="-")
    return records
