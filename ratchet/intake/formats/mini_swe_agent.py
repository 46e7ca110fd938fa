"""mini-swe-agent trajectories: `{info, messages, trajectory_format}`, versions 1 and 1.1 and those before a version.

Version 1 writes the action as text; its messages have a `timestamp` in seconds. Version 1.1 calls tools: chat messages
with `extra` (actions, response, cost), or whole Responses API answers with their `function_call_output`s, and a last
message of role `exit` that nobody said. An action in text stays the text that the model wrote, and its observation the
message that the model read.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from ratchet.contracts.canonical import digest
from ratchet.intake.jsontext import Value
from ratchet.intake.messages import Conversation, object_of, records_of, text_or_none
from ratchet.intake.records import Record, Rejected, Unreadable
from ratchet.intake.sniff import inside, roots
from ratchet.intake.tasks import instance_claims, named_claims, submission_claims

TITLE = "mini-swe-agent"
LINES = True
KEPT = (
    "messages, calls of chat and Responses answers, reasoning, usage and cost per step; the `exit` message, `info` and "
    "every other field under `extra.mini_swe_agent`; the submission as the deliverable `submission.diff`; task and "
    "repo from the instance id"
)
DROPPED = "the choices or output of the raw response beside a message, which repeat it"

_INFO = {"model_stats", "mini_version", "exit_status", "submission", "config"}
_FOREIGN = {"trajectory", "history", "traj", "attempts", "task_id", "steps"}
_SPACE = "mini_swe_agent"


def sniff(head: bytes, name: str) -> bool:
    """Whether a record names the format, or has the `info` of a run beside its messages."""
    return any(_own(keys, head) for keys in roots(head))


def _own(keys: dict[str, str], head: bytes) -> bool:
    if "trajectory_format" in keys:
        return keys["trajectory_format"].startswith('"mini-swe-agent')
    # The format's name comes last, behind what a cut head shows, and early files have none.
    if _FOREIGN & set(keys) or not {"info", "messages"} <= set(keys) or not keys["messages"].startswith("["):
        return False
    return len(_INFO & set(inside(head, "info"))) > 1


def read(data: bytes, source: str) -> Iterator[Record | Rejected]:
    """Yield one record per run."""
    return records_of(data, lambda item: _record(item, source))


def _record(item: Value, source: str) -> Record:
    body = item.value
    info = object_of(body, "info")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise Unreadable("no_messages", "messages must be an array with at least one message")
    chat = Conversation(lambda: digest(body)[:12], _SPACE, item.anomalies)
    dropped: list[str] = []
    rest = {key: value for key, value in body.items() if key not in ("messages", "info")}
    for message in messages:
        if isinstance(message, dict) and message.get("role") == "exit":
            rest.setdefault("exit", []).append(message)
        else:
            _say(chat, message, dropped)
    if not chat.steps:
        raise Unreadable("no_messages", "messages must hold one that somebody said")
    config = object_of(info, "config")
    submitted, left = submission_claims(info.get("exit_status") or None, info, "submission")
    if left:
        rest["info"] = left
    stats = object_of(info, "model_stats")
    cost = stats.get("instance_cost")
    document = {
        "schema_version": "ATIF-v1.8",
        "agent": {
            "name": "mini-swe-agent",
            "version": text_or_none(info.get("mini_version")) or "unknown",
            "model_name": text_or_none(object_of(config, "model").get("model_name")),
        },
        "steps": chat.steps,
        "final_metrics": {"total_cost_usd": cost} if type(cost) in (int, float) else None,
        "extra": {_SPACE: rest} if rest else None,
    }
    stated = body.get("instance_id")
    named = instance_claims(stated) if isinstance(stated, str) and stated else named_claims(source)
    claims = {**named, **submitted}
    return Record(item.number, item.offset, item.raw, document, claims, chat.anomalies(), tuple(dropped))


def _say(chat: Conversation, message: Any, dropped: list[str]) -> None:
    if not isinstance(message, dict):
        raise Unreadable("bad_message", "a message must be an object")
    plain = dict(message)
    extra = message.get("extra")
    extra = dict(extra) if isinstance(extra, dict) else {}
    response = extra.get("response")
    if isinstance(response, dict):
        repeated = {"choices", "output"} & set(response)
        dropped += [f"messages.extra.response.{key}" for key in sorted(repeated)]
        extra["response"] = {key: value for key, value in response.items() if key not in repeated}
    if extra:
        plain["extra"] = extra
    at = _time(extra.get("timestamp", message.get("timestamp")))
    if message.get("object") == "response":
        said = _answer(chat, plain)
        usage = message.get("usage")
    elif message.get("type") == "function_call_output":
        beside = {key: value for key, value in plain.items() if key not in ("type", "call_id", "output")}
        said = chat.add(
            {"role": "tool", "tool_call_id": message.get("call_id"), "content": _text(message.get("output"))} | beside
        )
        usage = None
    else:
        content = message.get("content")
        said = chat.add({**plain, "content": _texts(content)})
        usage = response.get("usage") if isinstance(response, dict) else None
    if "step_id" in said:
        if at is not None:
            said["timestamp"] = at
        metrics = _metrics(usage, extra.get("cost")) if said["source"] == "agent" else {}
        if metrics:
            said["metrics"] = metrics


def _answer(chat: Conversation, response: dict[str, Any]) -> dict[str, Any]:
    """Turn a whole Responses API answer into one step."""
    output = response.get("output")
    if not isinstance(output, list) or not all(isinstance(part, dict) for part in output):
        raise Unreadable("bad_message", "the output of a response must be an array of objects")
    said: list[Any] = []
    calls, thoughts, other = [], [], []
    for part in output:
        if part.get("type") == "message":
            content = part.get("content")
            said += content if isinstance(content, list) else [content]
            other.append({key: value for key, value in part.items() if key != "content"})
        elif part.get("type") == "function_call":
            beside = {key: value for key, value in part.items() if key not in ("type", "call_id", "name", "arguments")}
            function = {"name": part.get("name"), "arguments": part.get("arguments")}
            calls.append({"id": part.get("call_id"), "type": "function", "function": function, **_renamed(beside)})
        elif part.get("type") == "reasoning":
            listed = [
                item
                for key in ("summary", "content")
                for item in (part[key] if isinstance(part.get(key), list) else ())
            ]
            thoughts += [
                item["text"] for item in listed if isinstance(item, dict) and isinstance(item.get("text"), str)
            ]
            other.append(part)
        else:
            other.append(part)
    message = {key: value for key, value in response.items() if key != "output"}
    message |= {"role": "assistant", "content": _joined(_texts(said)), "tool_calls": calls}
    if thoughts:
        message["reasoning_content"] = "\n".join(thoughts)
    if other:
        message["output"] = other
    return chat.add(message)


def _renamed(beside: dict[str, Any]) -> dict[str, Any]:
    """Keep the item's own id apart from the id that results name."""
    return {("item_id" if key == "id" else key): value for key, value in beside.items()}


def _texts(content: Any) -> Any:
    """Turn the text parts of the Responses API into those of chat; anything else stays."""
    if not isinstance(content, list):
        return content
    return [
        {**part, "type": "text"}
        if isinstance(part, dict) and part.get("type") in ("input_text", "output_text")
        else part
        for part in content
    ]


def _joined(content: Any) -> Any:
    """Return one plain text part as its string, and none as the empty string."""
    if not content:
        return ""
    alone = content[0] if len(content) == 1 else None
    if isinstance(alone, dict) and alone.get("type") == "text" and isinstance(alone.get("text"), str):
        empty = all(value in (None, []) for key, value in alone.items() if key not in ("type", "text"))
        return alone["text"] if empty else content
    return content


def _text(output: Any) -> Any:
    return _joined(_texts(output)) if isinstance(output, list) else output


def _time(at: Any) -> str | None:
    """Return seconds since 1970 as ISO 8601 in UTC."""
    if type(at) not in (int, float) or not 0 < at < 1 << 33:
        return None
    return datetime.fromtimestamp(at, UTC).isoformat()


def _metrics(usage: Any, cost: Any) -> dict[str, Any]:
    usage = usage if isinstance(usage, dict) else {}
    details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details")
    counts = {
        "prompt_tokens": usage.get("prompt_tokens", usage.get("input_tokens")),
        "completion_tokens": usage.get("completion_tokens", usage.get("output_tokens")),
        "cached_tokens": details.get("cached_tokens") if isinstance(details, dict) else None,
    }
    found: dict[str, Any] = {key: value for key, value in counts.items() if type(value) is int}
    if type(cost) in (int, float):
        found["cost_usd"] = cost
    return found
