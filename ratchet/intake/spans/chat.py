"""Messages as traces hold them, to the shape of OpenAI chat that `ratchet.intake.messages` takes.

Read: OpenAI messages and completions, Anthropic messages, the parts of the OpenTelemetry GenAI conventions, LangChain
messages (the `lc` constructor form, `type` with `data`, and plain dumps) and prompts or answers that are plain text.
The names `human`, `ai` and `model` become `user`, `assistant` and `assistant`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import orjson

from ratchet.contracts.canonical import canonical_json
from ratchet.intake.spans.content import Sorted, call, plain, result_content, sort
from ratchet.intake.spans.model import decoded

_ROLES = {
    "system": "system", "developer": "developer", "user": "user", "human": "user", "assistant": "assistant",
    "ai": "assistant", "model": "assistant", "bot": "assistant", "tool": "tool", "function": "function",
}  # fmt: skip
_CLASSES = {
    "HumanMessage": "user", "AIMessage": "assistant", "SystemMessage": "system", "ToolMessage": "tool",
    "FunctionMessage": "function", "ChatMessage": "assistant",
}  # fmt: skip
_LARGE = 32 << 10
"""Longest message, in bytes, that is remembered in case it is repeated."""
_HOLDERS = ("messages", "choices", "generations", "message", "kwargs", "output", "input")
"""Fields in which a request or an answer holds its messages, in the order in which they are looked for."""


def messages_of(value: Any, role: str) -> list[dict[str, Any]]:
    """Return the messages that a value holds; a value that holds none becomes the content of one of `role`."""
    found = alternatives_of(value, role)
    return found[0] if found else []


def alternatives_of(value: Any, role: str) -> list[list[dict[str, Any]]]:
    """Return the messages of each alternative answer that a value holds; nothing for an empty one."""
    value = decoded(value)
    if value is None or value == "" or value == {} or value == []:
        return []
    found = _alternatives(value, role)
    if found is not None:
        return [messages for messages in found if messages]
    return [[{"role": role, "content": value if isinstance(value, str) else canonical_json(value)}]]


def holds_messages(value: Any) -> bool:
    """Whether a value is or holds messages, at any depth that requests and states have them."""
    value = decoded(value)
    if isinstance(value, dict):
        return is_message(value) or any(holds_messages(one) for one in value.values() if isinstance(one, dict | list))
    return isinstance(value, list) and any(holds_messages(one) for one in value if isinstance(one, dict | list))


def without_messages(fields: dict[str, Any], dropped: list[str]) -> dict[str, Any]:
    """Return the fields that hold no messages; those that do repeat model calls, and are named in `dropped`."""
    repeated = [key for key, value in fields.items() if holds_messages(value)]
    dropped += repeated
    return {key: value for key, value in fields.items() if key not in repeated}


def beside_messages(value: Any) -> dict[str, Any]:
    """Return what a request or an answer holds beside its messages: ids, settings, usage; nothing for a message."""
    value = decoded(value)
    if (
        not isinstance(value, dict)
        or _alternatives(value, "user") is None
        or is_message(value)
        or "tool_calls" in value
    ):
        return {}
    known = (*_HOLDERS, "system", "instructions", "tools", "prompt", "prompts")
    return {key: one for key, one in value.items() if key not in known and one not in (None, "", [], {})}


def is_message(value: Any) -> bool:
    """Whether a value is one message of a known kind."""
    return isinstance(value, dict) and _role(value) is not None


def _alternatives(value: Any, role: str) -> list[list[dict[str, Any]]] | None:
    if isinstance(value, list):
        return _listed(value, role)
    if not isinstance(value, dict):
        return None
    if is_message(value):
        return [_message(value)]
    if "tool_calls" in value or (role == "assistant" and isinstance(value.get("content"), str | list)):
        return [_message({"role": role, **value})]
    for holder in _HOLDERS:
        inner = decoded(value.get(holder))
        if not isinstance(inner, dict | list) or not inner:
            continue
        if holder in ("choices", "generations"):
            found = [
                messages
                for one in (inner if isinstance(inner, list) else [inner])
                for messages in _choice(one, role)
                if messages
            ]
        else:
            found = _alternatives(inner, role) or []
        if found:
            return [_system(value, messages) for messages in found] if holder == "messages" else found
    return None


def _choice(value: Any, role: str) -> list[list[dict[str, Any]]]:
    """Return the alternatives of one entry of `choices` or `generations`, which may be a list itself."""
    if isinstance(value, list):
        return [messages for one in value for messages in _choice(one, role)]
    if not isinstance(value, dict):
        return []
    if isinstance(value.get("message"), dict):
        found = _message({"role": role, **value["message"]} if _role(value["message"]) is None else value["message"])
        about = value.get("generation_info")
        reason = value.get("finish_reason") or (about.get("finish_reason") if isinstance(about, dict) else None)
        if found and isinstance(reason, str):
            found[0].setdefault("finish_reason", reason)
        return [found]
    return [[{"role": role, "content": value["text"]}]] if isinstance(value.get("text"), str) else []


def _listed(value: list[Any], role: str) -> list[list[dict[str, Any]]] | None:
    if value and all(isinstance(one, list) for one in value):
        batches = [_listed(one, role) for one in value]
        return [batch[0] for batch in batches if batch]
    if value and all(is_message(one) for one in value):
        return [[message for one in value for message in _known(one)]]
    if value and all(isinstance(one, str) for one in value):
        return [[{"role": role, "content": one} for one in value]]
    if value and all(isinstance(one, dict) and isinstance(one.get("type"), str) for one in value):
        return [_message({"role": role, "content": value})]
    return None


def _system(holder: dict[str, Any], messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Put the system prompt that stands beside the messages before them."""
    given = holder.get("system") or holder.get("instructions")
    if not given or any(message.get("role") == "system" for message in messages):
        return messages
    return [{"role": "system", "content": plain(sort(given).content) if isinstance(given, list) else given}, *messages]


def _role(value: dict[str, Any]) -> str | None:
    """Return the role of a message of any known kind; None where the value is none."""
    if _built(value):
        named = value.get("id")
        name = str(named[-1]) if isinstance(named, list) and named else ""
        return _CLASSES.get(name.removesuffix("Chunk"))
    role = value.get("role")
    if isinstance(role, str) and ({"content", "parts", "tool_calls", "function_call", "audio"} & set(value)):
        return _ROLES.get(role.lower(), role)
    kind = value.get("type")
    if isinstance(kind, str) and ("content" in value or isinstance(value.get("data"), dict)):
        if "role" in value and kind in ("chat", "generic", "message"):
            return _ROLES.get(str(value["role"]).lower())
        if kind in ("human", "ai", "system", "tool", "function", "developer"):
            return _ROLES[kind]
        return _CLASSES.get(kind.removesuffix("Chunk"))
    return None


def _known(value: dict[str, Any]) -> Sequence[dict[str, Any]]:
    """Return one message as `_message` does; one that was seen before, as the same objects, which nobody may change."""
    try:
        text = orjson.dumps(value)
    except TypeError:  # an integer beyond 64 bits
        return _message(value)
    return _message(value) if len(text) > _LARGE else _seen(text)


@lru_cache(maxsize=2048)
def _seen(text: bytes) -> Sequence[dict[str, Any]]:
    """Return what a message becomes: every model call of a trace repeats those before it."""
    return _message(orjson.loads(text))


def forget() -> None:
    """Let go of the messages that were seen."""
    _seen.cache_clear()


def _message(value: dict[str, Any]) -> list[dict[str, Any]]:
    """Return one message as OpenAI has it; the results that it carries become messages of their own."""
    role = _role(value) or str(value.get("role"))
    chain = _built(value) or ("role" not in value and isinstance(value.get("type"), str))
    body = dict(value["kwargs"] if _built(value) else value["data"] if _wrapped(value) else value)
    rest = {key: item for key, item in body.items() if key not in ("role", "content", "parts", "tool_calls")}
    if chain:
        rest.pop("type", None)
    given = body["parts"] if "parts" in body else body.get("content")
    parts = _blocks(given)
    found = sort(parts) if parts is not None else Sorted(content=[] if given is None else [given])
    if role in ("tool", "function"):
        return _results(body, rest, given, found)
    made = _calls(body, rest, found)
    content = plain(found.content) if parts is not None else given
    message: dict[str, Any] = {"role": role}
    if content is not None or "content" in body:
        message["content"] = "" if content is None and made else content
    else:
        message["content"] = ""
    if isinstance(message["content"], dict):
        message["content"] = canonical_json(message["content"])
    if found.reasoning:
        rest["reasoning_content"] = "\n".join(filter(None, [rest.get("reasoning_content"), *found.reasoning]))
    if found.rest:
        rest["parts"] = found.rest
    if made:
        message["tool_calls"] = made
    message |= {key: item for key, item in rest.items() if item not in (None, {}, [], "")}
    spoken = content not in ("", None, []) or made or found.reasoning or not found.results
    return [*found.results, *([message] if spoken else [])]


def _built(value: dict[str, Any]) -> bool:
    return "lc" in value and isinstance(value.get("kwargs"), dict)


def _wrapped(value: dict[str, Any]) -> bool:
    return "role" not in value and "content" not in value and isinstance(value.get("data"), dict)


def _blocks(given: Any) -> list[Any] | None:
    """Return content as a list of parts, where it is one."""
    if isinstance(given, list):
        return given
    if isinstance(given, dict) and isinstance(given.get("type"), str):
        return [given]
    return None


def _results(body: dict[str, Any], rest: dict[str, Any], given: Any, found: Sorted) -> list[dict[str, Any]]:
    """Return the results of a tool message: those among its parts, or the message itself."""
    if found.results:
        return [{"name": body["name"], **one} if body.get("name") else one for one in found.results]
    known = ("tool_call_id", "tool_call_ids", "id", "name")
    other = {key: item for key, item in rest.items() if key not in known and item not in (None, {}, [], "")}
    message: dict[str, Any] = {"role": "tool", "content": result_content(given)}
    for key in ("tool_call_id", "tool_call_ids", "name"):
        if body.get(key):
            message[key] = body[key]
    if body.get("id") and ("tool_call_id" in message or "tool_call_ids" in message):
        other["message_id"] = body["id"]
    elif body.get("id"):
        message["id"] = body["id"]
    return [message | other]


def _calls(body: dict[str, Any], rest: dict[str, Any], found: Sorted) -> list[dict[str, Any]]:
    """Return the calls of a message, once each: LangChain repeats them in `additional_kwargs` and in its blocks."""
    made: list[Any] = []
    listed = decoded(body.get("tool_calls"))
    for one in listed if isinstance(listed, list) else [] if listed is None else [listed]:
        made.append(_normal(one))
    broken = rest.pop("invalid_tool_calls", None)
    for one in broken if isinstance(broken, list) else []:
        made.append(_normal(one))
    rest.pop("tool_call_chunks", None)
    also = rest.get("additional_kwargs")
    if isinstance(also, dict):
        rest["additional_kwargs"] = {key: item for key, item in also.items() if key not in ("tool_calls",)}
        if made and "function_call" in also:
            rest["additional_kwargs"].pop("function_call")
        elif isinstance(also.get("function_call"), dict):
            rest["function_call"] = rest["additional_kwargs"].pop("function_call")
        if not made and isinstance(also.get("tool_calls"), list):
            made = [_normal(one) for one in also["tool_calls"]]
        if isinstance(also.get("reasoning_content"), str):
            rest["reasoning_content"] = rest["additional_kwargs"].pop("reasoning_content")
    known = [one.get("id") for one in made if isinstance(one, dict)]
    return made + [one for one in found.calls if one["id"] is None or one["id"] not in known]


def _normal(one: Any) -> Any:
    """Return a call as OpenAI has it; what is none stays as it is, to be refused by name."""
    one = decoded(one)
    if not isinstance(one, dict) or isinstance(one.get("function"), dict):
        return one
    if "name" not in one:
        return one
    rest = {key: item for key, item in one.items() if key not in ("id", "name", "args", "arguments", "input", "type")}
    given = next((one[key] for key in ("args", "arguments", "input") if one.get(key) is not None), None)
    return call(one.get("id"), one["name"], given, {key: item for key, item in rest.items() if item is not None})
