"""tau2-bench results: `{timestamp, info, tasks, simulations}`, and the files of single simulations.

The conversation is what the agent had: its own turns, its tools' answers, and what the user said. In some domains the
user (a simulation) calls tools too, which the agent does not see: those calls and their answers are kept beside the
user's next turn. The greeting that the benchmark itself opens with stands for no model call. `reward_info` is what the
benchmark says of the run: it is kept and is not taken as a score, since nobody here computed it. Spoken runs that hold
`ticks` and no messages have no turns to read and are set aside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from ratchet.contracts.canonical import canonical_json, digest
from ratchet.intake.jsontext import REASONS, Value, decode_sound, json_lines
from ratchet.intake.messages import Conversation, converted, object_of, records_of, text_or_none, thinking_of
from ratchet.intake.nested import one, parts
from ratchet.intake.records import Record, Rejected, Unreadable
from ratchet.intake.sniff import inside, roots

TITLE = "tau2-bench results"
LINES = False
"""A document that holds several runs says more than the bytes of each of them."""
KEPT = (
    "messages, the agent's calls and their results, usage and cost per step; the user's own calls beside its next "
    "turn; `task_id`, `seed` and domain; `reward_info`, the task, `info` and every other field under "
    "`extra.tau2_bench`, the reward never as a score"
)
DROPPED = "`ticks` of runs that have messages too"

_SPACE = "tau2_bench"
_BLANK = b" \t\r\n"
_INFO = {"git_commit", "num_trials", "agent_info", "user_info", "environment_info"}
_RUN = {"messages", "ticks", "reward_info", "start_time", "duration"}
_ANSWER = ("id", "role", "content", "timestamp")


def sniff(head: bytes, name: str) -> bool:
    """Whether a document holds simulations, or is one."""
    return any(_own(keys, head) for keys in roots(head))


def _own(keys: dict[str, str], head: bytes) -> bool:
    if {"task_id", "termination_reason"} <= set(keys):
        return len(_RUN & set(keys)) > 1
    if not {"info", "tasks"} & set(keys) or {"messages", "trajectory", "history", "traj"} & set(keys):
        return False
    # A document's tasks alone may be longer than what a cut head shows.
    return ("simulations" in keys or "tasks" in keys) and len(_INFO & set(inside(head, "info"))) > 1


def read(data: bytes, source: str) -> Iterator[Record | Rejected]:
    """Yield one record per simulation."""
    found = _found(data)
    return records_of(data, _record, _simulations) if found is None else converted(found, _record)


def _found(data: bytes) -> list[Value | Rejected] | None:
    """Return the simulations of one document, each decoded by itself, so that a bad one never costs a good one.

    None where this is no such document, or where what is said of all simulations cannot be read.
    """
    if not data.lstrip(_BLANK).startswith(b"{") or json_lines(data) is not None:
        return None
    members = list(parts(data))
    by_key = {part.key: part for part in members if part.key}
    listed = by_key.pop("simulations", None)
    if listed is None or not data.startswith(b"[", listed.start) or len(by_key) + 1 != len(members):
        return None
    cut = not members[-1].whole
    if not cut and data[members[-1].end :].strip(_BLANK) != b"}":
        return None
    shared = {}
    for key, part in by_key.items():
        # Text first: a value that is no object has no reading of its own.
        raw = data[part.start : part.end]
        shared[key] = decode_sound(raw.decode("utf-8", "replace"))
        if shared[key] is None and raw != b"null":
            return None
    tell = _telling(shared)
    pieces = enumerate(parts(data, listed.start))
    found = [one(data[part.start : part.end], number, part.start) for number, part in pieces]
    if cut and not (found and isinstance(found[-1], Rejected)):
        found.append(Rejected(len(found), len(data), b"", "truncated", REASONS["truncated"]))
    return [item if isinstance(item, Rejected) else tell(item) for item in found] or None


def _simulations(item: Value) -> Iterator[Value]:
    """Yield the simulations of a decoded document; anything else is one."""
    runs = item.value.get("simulations")
    if "simulations" not in item.value:
        yield item
        return
    if not isinstance(runs, list) or not all(isinstance(run, dict) for run in runs):
        raise Unreadable("bad_results", "simulations must be an array of objects")
    if not runs:
        raise Unreadable("no_messages", "it holds no simulation: those of a folder are in files of their own")
    tell = _telling(item.value)
    for run in runs:
        yield tell(replace(item, value=run, raw=canonical_json(run).encode(), text=None))


def _telling(shared: dict[str, Any]) -> Callable[[Value], Value]:
    """Return what adds to a simulation its own task, and what the results say of all."""
    tasks = shared.get("tasks")
    by_id = {str(task.get("id")): task for task in tasks if isinstance(task, dict)} if isinstance(tasks, list) else {}
    of_all = {key: value for key, value in shared.items() if key not in ("simulations", "tasks", "simulation_index")}

    def tell(item: Value) -> Value:
        results = {**of_all, "task": by_id.get(str(item.value.get("task_id")))}
        return replace(item, value={**item.value, "results": results})

    return tell


def _record(item: Value) -> Record:
    body = item.value
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        kind = "ticks" if body.get("ticks") else "no messages"
        raise Unreadable("no_messages", f"a simulation must hold messages; this one holds {kind}")
    results = object_of(body, "results")
    info = object_of(results, "info")
    agent, domain = object_of(info, "agent_info"), object_of(info, "environment_info").get("domain_name")
    chat = Conversation(lambda: digest(body)[:12], _SPACE, item.anomalies, objects=True)
    waiting: list[dict[str, Any]] = []
    for message in _flat(messages):
        if _of_user(message):
            waiting.append(message)
        else:
            waiting = _say(chat, message, waiting)
    if not chat.steps:
        raise Unreadable("no_messages", "messages must hold one that somebody said")
    if _scripted(messages[0]) and any(
        isinstance(later.get("usage"), dict) for later in messages[1:] if isinstance(later, dict)
    ):
        chat.steps[0]["llm_call_count"] = 0
    rest = {
        key: value for key, value in body.items() if key not in ("messages", "ticks", "results") and value is not None
    }
    rest |= {"results": results} if results else {}
    rest |= {"user_calls_at_end": waiting} if waiting else {}
    cost = body.get("agent_cost")
    document = {
        "schema_version": "ATIF-v1.8",
        "session_id": text_or_none(body.get("id")),
        "agent": {
            "name": text_or_none(agent.get("implementation")) or "tau2-bench",
            "version": text_or_none(info.get("git_commit")) or "unknown",
            "model_name": text_or_none(agent.get("llm")),
        },
        "steps": chat.steps,
        "final_metrics": {"total_cost_usd": cost} if type(cost) in (int, float) else None,
        "extra": {_SPACE: rest},
    }
    claims: dict[str, Any] = {} if body.get("task_id") is None else {"task_id": str(body["task_id"])}
    if type(body.get("seed")) is int:
        claims["seed"] = body["seed"]
    if isinstance(domain, str) and domain:
        claims["segment"] = domain
    dropped = ("ticks",) if body.get("ticks") else ()
    return Record(item.number, item.offset, item.raw, document, claims, chat.anomalies(), dropped)


def _flat(messages: list[Any]) -> Iterator[dict[str, Any]]:
    """Yield the messages, with several tool messages in one taken apart."""
    for message in messages:
        if not isinstance(message, dict):
            raise Unreadable("bad_message", "a message must be an object")
        several = message.get("tool_messages")
        if not isinstance(several, list):
            yield message
            continue
        if not all(isinstance(one, dict) for one in several):
            raise Unreadable("bad_message", "a message must be an object")
        yield from several


def _of_user(message: dict[str, Any]) -> bool:
    """Whether a message is between the user and its own tools, which the agent does not see."""
    if message.get("role") == "tool":
        return message.get("requestor") == "user"
    said = message.get("content")
    return (
        message.get("role") == "user"
        and bool(message.get("tool_calls"))
        and not (isinstance(said, str) and said.strip())
    )


def _say(chat: Conversation, message: dict[str, Any], waiting: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Take one message of the agent's conversation; returns what still waits for the user's next turn."""
    role = message.get("role")
    plain = {key: value for key, value in message.items() if value is not None or key == "content"}
    if role == "tool":
        rest = {key: value for key, value in plain.items() if key not in _ANSWER}
        at = {"timestamp": plain["timestamp"]} if "timestamp" in plain else {}
        chat.add({"role": "tool", "tool_call_id": message.get("id"), "content": message.get("content"), **rest, **at})
        return waiting
    if role == "user" and waiting:
        plain["user_calls"], waiting = waiting, []
    if role == "assistant" and plain.get("tool_calls"):
        plain["tool_calls"] = [_call(call) for call in _list(plain["tool_calls"])]
    step = chat.add(plain)
    if role == "assistant":
        thoughts = _thoughts(message.get("raw_data"))
        if thoughts and "reasoning_content" not in step:
            step["reasoning_content"] = thoughts
        metrics = _metrics(message)
        if metrics:
            step["metrics"] = metrics
    return waiting


def _call(call: Any) -> dict[str, Any]:
    """Turn a flat call into one of chat; one that is nested already stays."""
    if not isinstance(call, dict):
        raise Unreadable("bad_call", "a tool call must be an object")
    if isinstance(call.get("function"), dict):
        return call
    rest = {key: value for key, value in call.items() if key not in ("id", "name", "arguments")}
    if rest.get("requestor") == "assistant":
        del rest["requestor"]
    return {"id": call.get("id"), "function": {"name": call.get("name"), "arguments": call.get("arguments")}, **rest}


def _thoughts(raw: Any) -> str | None:
    """Return the reasoning in a raw answer: as OpenAI-like models give it, or Anthropic's thinking blocks."""
    if not isinstance(raw, dict):
        return None
    message = raw["message"] if isinstance(raw.get("message"), dict) else raw
    if isinstance(message.get("reasoning_content"), str) and message["reasoning_content"]:
        return str(message["reasoning_content"])
    return thinking_of(message.get("thinking_blocks"))


def _metrics(message: dict[str, Any]) -> dict[str, Any]:
    usage = message.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    found = {key: usage[key] for key in ("prompt_tokens", "completion_tokens") if type(usage.get(key)) is int}
    if type(message.get("cost")) in (int, float) and message.get("usage") is not None:
        found["cost_usd"] = message["cost"]
    return found


def _scripted(message: dict[str, Any]) -> bool:
    """Whether an opening message of the agent was written by nobody: no usage, no raw answer, no cost, no calls."""
    made = any(message.get(field) for field in ("usage", "raw_data", "cost", "tool_calls", "generation_time_seconds"))
    return message.get("role") == "assistant" and not made


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise Unreadable("bad_call", "tool_calls must be an array")
    return value
