"""Codecs: how a tool call is written by a model, and read back from what it wrote.

`single_token`: the name of a tool and nothing else, for small policies whose vocabulary has the tools as tokens.
`tool_call`: JSON between `<tool_call>` and `</tool_call>`, an object or a list with one object, as SmolLM2, Qwen and
the Hermes family write it; text before it is a thought. One turn is one call: what is no call, is broken, or is more
than one, is malformed and keeps its text.
"""

from __future__ import annotations

import json
from typing import Any

from ratchet.contracts.environment import ToolCall, ToolSchema
from ratchet.contracts.policy import Codec

OPEN, CLOSE = "<tool_call>", "</tool_call>"
KEPT = 200
"""Characters that are kept of a text that is no call."""


def parse_call(text: str, codec: Codec) -> ToolCall:
    """Read what a model wrote in one turn, without its end token."""
    found = _name(text) if codec == "single_token" else _json(text)
    return found or ToolCall(name="", malformed=text.strip()[:KEPT])


def definition(tool: ToolSchema) -> dict[str, Any]:
    """A tool as chat templates take it."""
    parameters = tool.parameters or {"type": "object", "properties": {}}
    function = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return {"type": "function", "function": function}


def _name(text: str) -> ToolCall | None:
    words = text.split()
    return ToolCall(name=words[0]) if len(words) == 1 else None


def _json(text: str) -> ToolCall | None:
    if text.count(OPEN) != 1 or text.count(CLOSE) != 1:
        return None
    _, _, rest = text.partition(OPEN)
    body, _, after = rest.partition(CLOSE)
    try:
        value = json.loads(body, object_pairs_hook=_once)
        # Numbers beyond all floats and halves of characters are read, and could be written into no record.
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return None
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if after.strip() or not isinstance(value, dict) or not value.keys() <= {"name", "arguments"}:
        return None
    name, arguments = value.get("name"), value.get("arguments", {})
    if not isinstance(name, str) or not name or not isinstance(arguments, dict):
        return None
    return ToolCall(name=name, arguments=arguments)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key occurs twice")
    return found
