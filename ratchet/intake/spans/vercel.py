"""One span of the Vercel AI SDK, which has `ai.*` attributes of its own beside a few of the GenAI conventions.

`ai.generateText` and its like are agents over model calls (`....doGenerate`, `....doStream`) and tools (`ai.toolCall`).

Source: AI SDK documentation, "Telemetry", "Collected data".
"""

from __future__ import annotations

from typing import Any

from ratchet.intake.jsontext import decode_sound
from ratchet.intake.spans.chat import messages_of
from ratchet.intake.spans.content import call, result_content
from ratchet.intake.spans.model import Kind, Span, decoded, metrics_of

CONTENT = ("ai.prompt", "ai.response.text", "ai.response.object", "ai.response.toolCalls", "ai.response.reasoning")
"""Attributes that are messages, or tools."""
USED = ("ai.operationId", "ai.toolCall", "ai.usage", "operation.name")
_CALLS = (".doGenerate", ".doStream")
_FRAMES = ("ai.generate", "ai.stream")


def kind_of(about: dict[str, Any]) -> Kind | None:
    """Return the kind of a span of the SDK; None for one of another origin."""
    operation = about.get("ai.operationId")
    if not isinstance(operation, str):
        return None
    if operation == "ai.toolCall":
        return "tool"
    if operation.startswith(_FRAMES):
        return "llm" if operation.endswith(_CALLS) else "agent"
    return "other"


def fill(span: Span, about: dict[str, Any]) -> None:
    """Read what the attributes of the SDK say into a span whose kind is known. Raises Unreadable."""
    if span.kind == "tool":
        span.tool, span.call_id = (_text(about.get(f"ai.toolCall.{name}")) for name in ("name", "id"))
        span.arguments = about.get("ai.toolCall.args", about.get("ai.toolCall.input"))
        result = about.get("ai.toolCall.result", about.get("ai.toolCall.output"))
        # Always JSON, a text too.
        inner = decode_sound(result) if isinstance(result, str) else None
        span.result = result if isinstance(inner, dict | list) else result_content(result if inner is None else inner)
        return
    span.inputs = messages_of(about["ai.prompt.messages"], "user") if "ai.prompt.messages" in about else _prompt(about)
    said: dict[str, Any] = {"role": "assistant", "content": about.get("ai.response.text")}
    if said["content"] is None:
        said["content"] = about.get("ai.response.object")
    calls = decoded(about.get("ai.response.toolCalls"))
    if isinstance(calls, list) and calls:
        said["tool_calls"] = [_call(one) for one in calls]
    if isinstance(about.get("ai.response.reasoning"), str):
        said["reasoning_content"] = about["ai.response.reasoning"]
    if said["content"] is not None or len(said) > 2:
        span.choices = [messages_of([said], "assistant")]
    tools = about.get("ai.prompt.tools")
    listed = [decoded(tool) for tool in tools] if isinstance(tools, list) else []
    names = {"inputSchema": "parameters"}
    span.tools = [_renamed(tool, names) for tool in listed if isinstance(tool, dict)]
    span.model = span.model or _text(about.get("ai.response.model")) or _text(about.get("ai.model.id"))
    span.conversation = span.conversation or _text(about.get("ai.telemetry.metadata.sessionId"))
    if not span.metrics and span.kind == "llm":
        span.metrics = _metrics(about)


def _renamed(tool: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    return {names.get(key, key): value for key, value in tool.items()}


def _prompt(about: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the messages of an agent's prompt: `system` and `messages`, or `system` and `prompt`."""
    given = decoded(about.get("ai.prompt"))
    if not isinstance(given, dict) or given.get("messages"):
        return messages_of(given, "user")
    system = [{"role": "system", "content": given["system"]}] if given.get("system") else []
    return messages_of([*system, {"role": "user", "content": given.get("prompt")}], "user")


def _call(one: Any) -> Any:
    if not isinstance(one, dict):
        return one
    arguments = one.get("args", one.get("input"))
    return call(one.get("toolCallId"), one.get("toolName"), arguments)


def _metrics(about: dict[str, Any]) -> dict[str, Any]:
    usage = {key.removeprefix("ai.usage."): value for key, value in about.items() if key.startswith("ai.usage.")}

    def take(*names: str) -> Any:
        return next((usage[name] for name in names if usage.get(name) is not None), None)

    values = {
        "prompt_tokens": take("inputTokens", "promptTokens"),
        "completion_tokens": take("outputTokens", "completionTokens"),
        "cached_tokens": take("cachedInputTokens"),
    }
    known = ("inputTokens", "promptTokens", "outputTokens", "completionTokens", "cachedInputTokens")
    return metrics_of(values, {key: value for key, value in usage.items() if key not in known})


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
