"""Items of OpenAI's Responses API to ATIF steps.

Reasoning, a message and the calls that follow it are one agent's step; an output item is the result of the call that it
names. Tools that run at the provider (web and file search, code interpreter, images, MCP) hold their own result: where
the log has none, the result is empty. What an item holds beyond that is kept in `extra`, by the name of the format; an
item that no step can say (a compaction, a list of MCP tools, an approval) is kept whole in the `extra` of a system
step.
"""

from __future__ import annotations

from typing import Any

from ratchet.contracts.canonical import canonical_json
from ratchet.intake.messages import Conversation
from ratchet.intake.parts import content_of
from ratchet.intake.records import Unreadable

SPACE = "openai_responses"
_TEXTS = ("input_text", "output_text", "text", "summary_text", "reasoning_text")
_NAMED = ("function_call", "custom_tool_call", "mcp_call")
_RESULT = ("output", "outputs", "results", "result", "error")
_ABOUT = ("id", "type", "call_id", "name", "status", "arguments", "input", "server_label", "namespace")


class Items:
    """The items of one trajectory, taken one at a time."""

    def __init__(self, chat: Conversation) -> None:
        """Write to `chat`, whose space is `SPACE`."""
        self.chat = chat
        self._turn: dict[str, Any] | None = None

    def close(self) -> None:
        """End the agent's step: what comes next begins another."""
        self._turn = None

    def add(self, item: Any) -> None:
        """Take one item.

        Raises:
            Unreadable: it is no object, or its role, content or call has no reading.
        """
        if not isinstance(item, dict):
            raise Unreadable("bad_item", "an item must be an object")
        kind = item.get("type") or ("message" if "role" in item else None)
        if kind == "message":
            self._message(item)
        elif kind == "reasoning":
            self._reasoning(item)
        elif isinstance(kind, str) and (kind.endswith("_call_output") or kind == "tool_search_output"):
            self._output(item, kind)
        elif isinstance(kind, str) and kind.endswith("_call"):
            self._call(item, kind)
        else:
            self.close()
            self.chat.noted.append("unresolved_reference" if is_reference(item) else "item_without_place")
            self.chat.add({"role": "system", "content": "", "item": item})

    def _message(self, item: dict[str, Any]) -> None:
        content, beside = plain_content(item.get("content"))
        rest = {key: value for key, value in item.items() if key not in ("type", "role", "content")}
        if beside:
            rest["parts"] = beside
        turn = self._turn
        if item.get("role") == "assistant" and turn is not None and not turn["message"] and "tool_calls" not in turn:
            turn["message"] = content_of(content, self.chat.noted)
            _keep(turn, rest)
            return
        step = self.chat.add({**rest, "role": item.get("role"), "content": content})
        self._turn = step if item.get("role") == "assistant" else None

    def _agent(self, ready: bool) -> dict[str, Any]:
        """Return the agent's step that is open, where it is ready for what comes; else a new one."""
        if self._turn is None or not ready:
            self._turn = self.chat.add({"role": "assistant", "content": ""})
        return self._turn

    def _reasoning(self, item: dict[str, Any]) -> None:
        turn = self._turn
        step = self._agent(turn is not None and not turn["message"] and "tool_calls" not in turn)
        said = _thoughts(item.get("content")) or _thoughts(item.get("summary"))
        if said:
            step["reasoning_content"] = "\n\n".join([*filter(None, [step.get("reasoning_content")]), *said])
        rest = {key: value for key, value in item.items() if key not in ("type", "content", "summary")}
        if _thoughts(item.get("content")) and item.get("summary"):
            rest["summary"] = item["summary"]
        if rest:
            held = step.setdefault("extra", {}).setdefault(SPACE, {})
            held.setdefault("reasoning", []).append(rest)

    def _call(self, item: dict[str, Any], kind: str) -> None:
        step = self._agent(True)
        made = step.setdefault("tool_calls", [])
        hosted = item.get("call_id") is None and kind != "function_call"
        given = item.get("id") if hosted else item.get("call_id")
        named = kind in _NAMED or isinstance(item.get("name"), str)
        name = item.get("name") if named else kind.removesuffix("_call")
        results = {key: item[key] for key in _RESULT if hosted and item.get(key) is not None}
        arguments = item.get("arguments")
        rest = {key: item[key] for key in ("status", "server_label", "namespace") if item.get(key) is not None}
        if kind != "function_call":
            rest["type"] = kind
        if item.get("id") is not None and not hosted:
            rest["item_id"] = item["id"]
        others = {
            key: value
            for key, value in item.items()
            if key not in _ABOUT and key not in results and not (hosted and value is None)
        }
        if "arguments" in item or kind == "function_call":
            rest |= others
        else:
            told = {"input": item["input"]} if "input" in item else {}
            arguments = canonical_json(told | others)
        made.append(self.chat.call(step["step_id"], len(made), given, name, arguments, rest))
        if hosted:
            self.chat.result(given, name, _hosted(results, item), {})

    def _output(self, item: dict[str, Any], kind: str) -> None:
        self.close()
        # Outputs of the local shell name their call in `id`.
        given = item.get("call_id") or item.get("id")
        rest = {key: value for key, value in item.items() if key not in ("id", "type", "call_id", "output")}
        if kind != "function_call_output":
            rest["type"] = kind
        if item.get("id") is not None and item["id"] != given:
            rest["item_id"] = item["id"]
        output = item.get("output")
        if isinstance(output, dict) and isinstance(output.get("image_url"), str):
            output = [{"type": "input_image", **{key: output[key] for key in output if key != "type"}}]
        if isinstance(output, dict) or (isinstance(output, list) and kind != "function_call_output" and _raw(output)):
            output = canonical_json(output)
        if output is None and kind == "tool_search_output":
            output = canonical_json(rest.pop("tools", []))
        content, beside = plain_content(output)
        if beside:
            rest["parts"] = beside
        self.chat.add({"role": "tool", "tool_call_id": given, "content": content, **rest})


def is_reference(item: dict[str, Any]) -> bool:
    """Whether an item only names another one by its id."""
    return item.get("type") == "item_reference" or (item.get("type") is None and set(item) <= {"id", "type"})


def plain_content(content: Any) -> tuple[Any, dict[str, Any]]:
    """Return content in the parts of chat messages, one text alone as a string, and what stood beside, by position."""
    if not isinstance(content, list):
        return content, {}
    parts, beside = [], {}
    for position, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else None
        used: set[str] = set()
        if kind in _TEXTS and isinstance(part.get("text"), str):
            used, plain = {"type", "text"}, {"type": "text", "text": part["text"]}
        elif kind == "refusal" and isinstance(part.get("refusal"), str):
            used, plain = {"refusal"}, {"type": "text", "text": part["refusal"]}
        elif kind == "input_image" and isinstance(part.get("image_url"), str):
            used, plain = {"type", "image_url"}, {"type": "image_url", "image_url": {"url": part["image_url"]}}
        else:
            parts.append(part)
            continue
        parts.append(plain)
        rest = {key: value for key, value in part.items() if key not in used and value not in (None, [])}
        if rest:
            beside[str(position)] = rest
    alone = parts[0] if len(parts) == 1 else None
    if isinstance(alone, dict) and set(alone) == {"type", "text"} and isinstance(alone["text"], str):
        return alone["text"], beside
    return parts, beside


def _raw(output: list[Any]) -> bool:
    """Whether a list is a tool's own data, and no list of content parts."""
    return not all(isinstance(part, dict) and str(part.get("type")).startswith("input_") for part in output)


def _thoughts(parts: Any) -> list[str]:
    listed = parts if isinstance(parts, list) else []
    return [part["text"] for part in listed if isinstance(part, dict) and isinstance(part.get("text"), str)]


def _hosted(results: dict[str, Any], item: dict[str, Any]) -> Any:
    """Return the content of the result that a provider's own tool left in its call."""
    if not results:
        return None
    if item.get("type") == "image_generation_call" and isinstance(results.get("result"), str):
        kind = f"image/{item.get('output_format') or 'png'}"
        return [{"type": "image", "source": {"media_type": kind, "path": f"data:{kind};base64,{results['result']}"}}]
    if set(results) == {"output"} and isinstance(results["output"], str):
        return results["output"]
    return canonical_json(results)


def _keep(step: dict[str, Any], rest: dict[str, Any]) -> None:
    if rest:
        step.setdefault("extra", {}).setdefault(SPACE, {}).update(rest)
