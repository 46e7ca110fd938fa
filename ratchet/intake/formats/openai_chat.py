"""OpenAI chat conversations: `messages` with tool calls, as JSON, JSON arrays and JSON Lines.

Kept: text, parts, reasoning, parallel calls, results, tools, model; every other field of a message or record under
`extra.openai`. Ratchet's metadata is read from `metadata.ratchet`. Legacy `function_call`, `function` messages and
`functions` become calls, results and tools. Dropped: the spacing inside argument strings; a result's message-level
fields other than content, id and name stay in the result's `extra`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ratchet.contracts.canonical import digest
from ratchet.intake.calls import Calls
from ratchet.intake.jsontext import Value, decode_sound, values
from ratchet.intake.parts import content_of
from ratchet.intake.records import Record, Rejected, Unreadable
from ratchet.intake.sniff import roots

FOREIGN = {
    "schema_version", "steps", "trajectory", "trajectory_format", "history", "traj", "info", "instance_id",
    "conversations", "chosen", "rejected", "resourceSpans", "samples", "runs", "observations",
}  # fmt: skip
"""Top-level fields of other formats that also have, or contain, messages."""
_SOURCES = {"system": "system", "developer": "system", "user": "user", "assistant": "agent"}
_AGENT = ("reasoning_content", "tool_calls", "function_call")
_RESULT = ("tool_call_id", "id", "tool_call_ids", "name", "role", "content")


def sniff(head: bytes, name: str) -> bool:
    """Whether a record has `messages` and no field by which another format is known."""
    found = roots(head)
    return any(keys.get("messages", "").startswith("[") for keys in found) and not any(
        FOREIGN & set(keys) for keys in found
    )


def read(data: bytes, source: str) -> Iterator[Record | Rejected]:
    """Yield one record per conversation."""
    for item in values(data):
        if isinstance(item, Rejected):
            yield item
            continue
        try:
            yield _record(item)
        except Unreadable as error:
            yield Rejected(item.number, item.offset, item.raw, error.code, error.reason)


def _record(item: Value) -> Record:
    body = item.value
    anomalies = list(item.anomalies)
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise Unreadable("no_messages", "messages must be an array with at least one message")
    metadata = _object(body, "metadata")
    claims = _object(metadata, "ratchet")
    named = metadata.get("agent")
    about: dict[str, Any] = named if isinstance(named, dict) and set(named) <= {"name", "version"} else {}
    rest = {
        key: value for key, value in body.items() if key not in ("messages", "metadata", "tools", "functions", "model")
    }
    other = {key: value for key, value in metadata.items() if key != "ratchet" and not (key == "agent" and about)}
    if other:
        rest["metadata"] = other
    agent = {
        "name": _text(about.get("name")) or "unknown",
        "version": _text(about.get("version")) or "unknown",
        "model_name": _text(body.get("model")),
        "tool_definitions": _tools(body, anomalies),
    }
    if body.get("model") is not None and agent["model_name"] is None:
        rest["model"] = body["model"]
    calls = Calls(lambda: digest(body)[:12])
    steps = _steps(messages, calls, anomalies)
    document = {
        "schema_version": "ATIF-v1.8",
        "agent": agent,
        "steps": steps,
        "extra": {"openai": rest} if rest else None,
    }
    anomalies += calls.anomalies + ["unanswered_call"] * calls.unanswered
    return Record(item.number, item.offset, item.raw, document, claims, tuple(anomalies))


def _steps(messages: list[Any], calls: Calls, anomalies: list[str]) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = []
    for message in messages:
        if not isinstance(message, dict):
            raise Unreadable("bad_message", "a message must be an object")
        role = message.get("role")
        if role in ("tool", "function"):
            _attach(message, steps, calls, anomalies)
        elif role in _SOURCES:
            steps.append(_step(message, len(steps) + 1, calls, anomalies))
        else:
            raise Unreadable(
                "unknown_role", "a message's role must be system, developer, user, assistant, tool or function"
            )
    if messages[-1].get("role") in ("tool", "function"):
        anomalies.append("ends_on_result")
    return steps


def _step(message: dict[str, Any], step_id: int, calls: Calls, anomalies: list[str]) -> dict[str, Any]:
    source = _SOURCES[message["role"]]
    step: dict[str, Any] = {
        "step_id": step_id,
        "source": source,
        "message": content_of(message.get("content"), anomalies),
    }
    known = {"role", "content"}
    if source == "agent":
        known |= {"tool_calls", "function_call"}
        if isinstance(message.get("reasoning_content"), str):
            known.add("reasoning_content")
            step["reasoning_content"] = message["reasoning_content"]
        made = _calls(message, step_id, calls, anomalies)
        if made:
            step["tool_calls"] = made
    if isinstance(message.get("timestamp"), str):
        known.add("timestamp")
        step["timestamp"] = message["timestamp"]
    rest = {key: value for key, value in message.items() if key not in known}
    if message["role"] == "developer":
        rest["role"] = "developer"
    if "content" in message and message["content"] is None:
        rest["content"] = None
    if rest:
        step["extra"] = {"openai": rest}
    return step


def _calls(message: dict[str, Any], step_id: int, calls: Calls, anomalies: list[str]) -> list[dict[str, Any]]:
    listed = [] if message.get("tool_calls") is None else message["tool_calls"]
    if not isinstance(listed, list):
        raise Unreadable("bad_call", "tool_calls must be an array")
    found: list[tuple[dict[str, Any], dict[str, Any], Any]] = []
    for item in listed:
        function = item.get("function") if isinstance(item, dict) else None
        if not isinstance(function, dict):
            raise Unreadable("bad_call", "a tool call must hold a function")
        rest = {key: value for key, value in item.items() if key not in ("id", "type", "function")}
        if item.get("type", "function") != "function":
            rest["type"] = item["type"]
        rest |= {key: value for key, value in function.items() if key not in ("name", "arguments")}
        found.append((function, rest, item.get("id")))
    legacy = message.get("function_call")
    if legacy is not None:
        if not isinstance(legacy, dict):
            raise Unreadable("bad_call", "function_call must be an object")
        anomalies.append("legacy_function_call")
        found.append((legacy, {key: value for key, value in legacy.items() if key not in ("name", "arguments")}, None))
    made = []
    for position, (function, rest, given) in enumerate(found):
        name = function.get("name")
        if not isinstance(name, str):
            raise Unreadable("bad_call", "a called function must have a name")
        issued, kept = calls.issue(step_id, position, given, name)
        arguments, text = _arguments(function.get("arguments"), anomalies)
        if text is not None:
            kept["arguments_text"] = text
        if rest:
            kept["openai"] = rest
        call: dict[str, Any] = {"tool_call_id": issued, "function_name": name, "arguments": arguments}
        made.append({**call, "extra": kept} if kept else call)
    return made


def _arguments(given: Any, anomalies: list[str]) -> tuple[dict[str, Any], Any]:
    """Return the arguments, and what was given where it is no sound JSON object."""
    if isinstance(given, dict):
        anomalies.append("arguments_as_object")
        return given, None
    if given is None or (isinstance(given, str) and not given.strip()):
        anomalies.append("empty_arguments")
        return {}, given
    decoded = decode_sound(given) if isinstance(given, str) else None
    if not isinstance(decoded, dict):
        anomalies.append("arguments_not_an_object")
        return {}, given
    return decoded, None


def _attach(message: dict[str, Any], steps: list[dict[str, Any]], calls: Calls, anomalies: list[str]) -> None:
    """Put a result on the step whose call it answers; an orphan goes to the last step, or opens a first one."""
    given = next((message[key] for key in ("tool_call_id", "id") if message.get(key)), None)
    listed = message.get("tool_call_ids")
    if given is None and isinstance(listed, list) and listed:
        given = listed[0]
        anomalies.append("call_ids_as_list")
    elif not message.get("tool_call_id") and message.get("id"):
        anomalies.append("result_names_its_call_id")
    name = message.get("name")
    found = calls.answer(given, name if isinstance(name, str) else None)
    content = content_of(message.get("content"), anomalies) if message.get("content") is not None else None
    result: dict[str, Any] = {"source_call_id": found[1] if found else None, "content": content}
    extra = {key: value for key, value in message.items() if key not in _RESULT}
    if name is not None:
        extra["name"] = name
    if isinstance(listed, list) and len(listed) != 1:
        extra["tool_call_ids"] = listed
    kept: dict[str, Any] = {"openai": extra} if extra else {}
    if given is not None and given != result["source_call_id"]:
        kept["original_call_id"] = given
    if kept:
        result["extra"] = kept
    if found is None and not steps:
        steps.append({"step_id": 1, "source": "system", "message": ""})
    step = steps[found[0] - 1] if found else steps[-1]
    step.setdefault("observation", {"results": []})["results"].append(result)


def _tools(body: dict[str, Any], anomalies: list[str]) -> list[dict[str, Any]] | None:
    tools = body.get("tools")
    if isinstance(tools, str):
        anomalies.append("tools_as_string")
        tools = decode_sound(tools)
        if tools is None:
            raise Unreadable("bad_tools", "tools is a string that holds no sound JSON")
    if tools is not None and not (isinstance(tools, list) and all(isinstance(tool, dict) for tool in tools)):
        raise Unreadable("bad_tools", "tools must be an array of objects")
    functions = body.get("functions")
    if functions is not None:
        anomalies.append("legacy_functions")
        if not isinstance(functions, list):
            raise Unreadable("bad_tools", "functions must be an array")
        tools = [*(tools or []), *({"type": "function", "function": item} for item in functions)]
    return tools


def _object(holder: dict[str, Any], field: str) -> dict[str, Any]:
    value = holder.get(field)
    if value is not None and not isinstance(value, dict):
        raise Unreadable("bad_metadata", f"{field} must be an object")
    return value or {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
