"""Content parts of every provider's messages, sorted into text and media, reasoning, calls and results.

Known: OpenAI parts, Anthropic blocks, Bedrock blocks, Vercel AI parts, LangChain blocks and the parts of the
OpenTelemetry GenAI conventions. A part of no known kind stays as it is, for `ratchet.intake.parts` to keep as text
with an anomaly.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ratchet.contracts.canonical import canonical_json

_TEXT = ("text", "input_text", "output_text")
_REASONING = ("reasoning", "thinking", "redacted_thinking")
_CALLS = ("tool_call", "tool_use", "tool-call", "function_call", "server_tool_call", "server_tool_use")
_RESULTS = (
    "tool_call_response", "tool_result", "tool-result", "function_call_output", "function_response",
    "server_tool_call_response", "web_search_tool_result", "code_execution_tool_result",
)  # fmt: skip


@dataclass
class Sorted:
    """The parts of one message, by what they are."""

    content: list[Any] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    """As OpenAI has them: `id`, `function.name`, `function.arguments`."""
    results: list[dict[str, Any]] = field(default_factory=list)
    """As tool messages."""
    rest: list[Any] = field(default_factory=list)
    """What parts hold beside their content, each with the part's position and kind."""


def sort(parts: list[Any]) -> Sorted:
    """Sort the parts of a message."""
    found = Sorted()
    for position, part in enumerate(parts):
        kept = _take(part, found)
        if kept:
            kind = part.get("type") if isinstance(part, dict) else None
            found.rest.append({"part": position, **({"type": kind} if kind else {}), **kept})
    return found


def plain(content: list[Any]) -> Any:
    """Return content parts as one string where they are one text or none."""
    if not content:
        return ""
    only = content[0]
    if len(content) == 1 and isinstance(only, dict) and set(only) == {"type", "text"} and only["type"] == "text":
        return only["text"]
    return content


def result_content(value: Any) -> Any:
    """Return what a tool gave back as content: text as it is, parts as parts, anything else as its JSON."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(part, dict) and _is_part(part) for part in value):
        return plain(sort(value).content)
    return canonical_json(value)


def call(given: Any, name: Any, arguments: Any, rest: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return a call as OpenAI has it; arguments that the format defines as an object become its JSON."""
    if isinstance(arguments, dict):
        arguments = canonical_json(arguments)
    return {"id": given, "type": "function", "function": {"name": name, "arguments": arguments}, **(rest or {})}


def _is_part(part: dict[str, Any]) -> bool:
    return isinstance(part.get("type"), str) or set(part) in ({"text"}, {"json"})


def _take(part: Any, found: Sorted) -> dict[str, Any]:
    """Sort in one part; returns what else it holds."""
    if not isinstance(part, dict):
        found.content.append(part)
        return {}
    kind = part.get("type")
    if kind in _TEXT or (kind is None and isinstance(part.get("text"), str)):
        key = "text" if isinstance(part.get("text"), str) else "content"
        if isinstance(part.get(key), str):
            found.content.append({"type": "text", "text": part[key]})
            return _beside(part, "type", key)
    if kind in _REASONING and (text := _reasoning(part)) is not None:
        found.reasoning.append(text)
        return _beside(part, "type", "content", "text", "thinking", "reasoning", "summary")
    if kind in _CALLS or "toolUse" in part:
        found.calls.append(_call(part))
        return {}
    if kind in _RESULTS or "toolResult" in part:
        found.results.append(_result(part))
        return {}
    if kind is None and set(part) == {"json"}:
        found.content.append({"type": "text", "text": canonical_json(part["json"])})
        return {}
    found.content.append(_media(part))
    return {}


def _beside(part: dict[str, Any], *known: str) -> dict[str, Any]:
    return {key: value for key, value in part.items() if key not in known and value not in (None, [], {}, "")}


def _reasoning(part: dict[str, Any]) -> str | None:
    for key in ("content", "text", "thinking", "reasoning"):
        if isinstance(part.get(key), str):
            return str(part[key])
    summary = part.get("summary")
    if isinstance(summary, list):
        return "\n".join(str(one.get("text", "")) for one in summary if isinstance(one, dict))
    return "" if part.get("type") == "redacted_thinking" else None


def _first(part: dict[str, Any], *keys: str) -> Any:
    return next((part[key] for key in keys if part.get(key) is not None), None)


def _call(part: dict[str, Any]) -> dict[str, Any]:
    inner = part.get("toolUse") if isinstance(part.get("toolUse"), dict) else part
    assert isinstance(inner, dict)
    detail = inner.get("server_tool_call")
    known = ("type", "id", "toolUseId", "toolCallId", "tool_call_id", "call_id", "name", "toolName")
    values = ("arguments", "args", "input", "server_tool_call")
    rest = _beside(inner, *known, *values)
    if inner.get("type") in ("server_tool_call", "server_tool_use"):
        rest["type"] = inner["type"]
    given = _first(inner, "toolUseId", "toolCallId", "tool_call_id", "call_id", "id")
    arguments = _first(inner, "arguments", "args", "input")
    return call(given, _first(inner, "name", "toolName"), detail if arguments is None else arguments, rest)


def _result(part: dict[str, Any]) -> dict[str, Any]:
    inner = part.get("toolResult") if isinstance(part.get("toolResult"), dict) else part
    assert isinstance(inner, dict)
    given = _first(inner, "tool_use_id", "toolUseId", "toolCallId", "tool_call_id", "call_id", "id")
    value = _first(inner, "response", "result", "content", "output", "server_tool_call_response")
    if isinstance(value, dict) and set(value) == {"type", "value"} and value["type"] in ("text", "json"):
        value = value["value"]  # the tagged output of Vercel AI SDK 5
    message = {"role": "tool", "tool_call_id": given, "content": result_content(value)}
    if name := _first(inner, "name", "toolName"):
        message["name"] = name
    known = (
        "type", "id", "tool_use_id", "toolUseId", "toolCallId", "tool_call_id", "call_id", "name", "toolName",
        "response", "result", "content", "output", "server_tool_call_response",
    )  # fmt: skip
    return {**message, **_beside(inner, *known)}


def _media(part: dict[str, Any]) -> dict[str, Any]:
    """Return images and audio as OpenAI has them, and anything else as it is."""
    kind, source = part.get("type"), part.get("source")
    mime = str(part.get("mime_type") or "")
    if kind == "blob" and isinstance(part.get("content"), str):
        if part.get("modality") == "image" or mime.startswith("image/"):
            return _image(f"data:{_mime(mime)};base64,{part['content']}")
        if part.get("modality") == "audio" or mime.startswith("audio/"):
            audio = {"data": part["content"], "format": mime.partition("/")[2].removeprefix("x-")}
            return {"type": "input_audio", "input_audio": audio}
    if kind == "uri" and isinstance(part.get("uri"), str) and part.get("modality") == "image":
        return _image(part["uri"])
    if kind == "image" and isinstance(source, dict):
        if isinstance(source.get("data"), str):
            return _image(f"data:{source.get('media_type', 'image/png')};base64,{source['data']}")
        if isinstance(source.get("url"), str):
            return _image(source["url"])
    return part


def _mime(given: str) -> str:
    return {"image/jpg": "image/jpeg", "": "image/png"}.get(given, given)


def _image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}
