"""One sample of an Inspect log to an ATIF document.

The sample's own messages are taken; the events repeat them before every model call, and are asked only for usage,
times, tools and approvals, and for the last history where the sample has no messages. Scores and target are what the
log says: they are kept beside, never as Ratchet's score. Answers that stood in the sample's input (few-shot examples,
prefills) are copied context.
"""

from __future__ import annotations

from typing import Any

from ratchet.contracts.canonical import canonical_json, digest
from ratchet.intake.inspect_events import acting, approvals, last_history, measure, tools_of_events
from ratchet.intake.jsontext import Value
from ratchet.intake.messages import Conversation, text_or_none
from ratchet.intake.records import Record, Unreadable
from ratchet.intake.tasks import instance_claims

SPACE = "inspect"
REMOVED = "<base64-data-removed>"
"""What Inspect writes in place of media that it was told not to log."""
_PREFIXES = ("attachment://", "tc://")
_PLACED = {
    "messages", "events", "attachments", "transcript", "events_data", "message_pool", "call_pool", "input", "output",
}  # fmt: skip
_CALL = ("id", "function", "arguments", "type")


class Attachments:
    """Texts that a sample holds once and names by their hash."""

    def __init__(self, sample: dict[str, Any]) -> None:
        """Take those of a sample, in the present or the first form of the log."""
        legacy = sample.get("transcript")
        held = sample.get("attachments") or (legacy.get("content") if isinstance(legacy, dict) else None)
        self._held: dict[str, Any] = held if isinstance(held, dict) else {}
        self.missing = 0
        """References that name nothing."""

    def resolve(self, value: Any) -> Any:
        """Return a value with every reference in it replaced by what it names."""
        if isinstance(value, str):
            prefix = next((prefix for prefix in _PREFIXES if value.startswith(prefix)), None)
            if prefix is None:
                return value
            found = self._held.get(value.removeprefix(prefix))
            self.missing += found is None
            return value if found is None else found
        if isinstance(value, dict):
            return {key: self.resolve(item) for key, item in value.items()}
        return [self.resolve(item) for item in value] if isinstance(value, list) else value


def record_of(item: Value, about: dict[str, Any], noted: tuple[str, ...]) -> Record:
    """Return the record of a sample.

    Args:
        item: the sample.
        about: `eval`, `plan` and `status` of its log, as far as known.
        noted: anomalies of the log.

    Raises:
        Unreadable: it is no sample, or a message of it has no reading.
    """
    sample = item.value
    if "id" not in sample or "epoch" not in sample:
        raise Unreadable("not_a_sample", "a sample must have an id and an epoch")
    held = Attachments(sample)
    events = _events(sample)
    chat = Conversation(lambda: digest(sample)[:12], SPACE, (*item.anomalies, *noted))
    evaluation = _object(about.get("eval"))
    spoken = []
    for message in held.resolve(_messages(sample, events, chat)):
        step = _add(chat, message, text_or_none(evaluation.get("model")))
        if step.get("source") == "agent" and not step.get("is_copied_context"):
            spoken.append((step, message))
    if not chat.steps:
        raise Unreadable("no_messages", "the sample has neither messages nor an input")
    missing = held.missing
    measure(spoken, events, held.resolve)
    held.missing = missing
    output = _object(sample.get("output"))
    rest = held.resolve({key: value for key, value in sample.items() if key not in _PLACED and value is not None})
    rest |= _output(output)
    asked = held.resolve(sample.get("input"))
    if not (isinstance(asked, str) and any(step["message"] == asked for step in chat.steps)) and sample.get("messages"):
        rest["input"] = asked
    rest["log"] = {key: _without_ids(value) for key, value in about.items() if value is not None}
    chat.noted += ["unresolved_attachment"] * held.missing
    chat.noted += [f"sample_{field}" for field in ("error", "limit") if sample.get(field) is not None]
    document = {
        "schema_version": "ATIF-v1.8",
        "session_id": text_or_none(evaluation.get("run_id")),
        "trajectory_id": text_or_none(sample.get("uuid")),
        "agent": {
            "name": _agent(evaluation, _object(about.get("plan"))),
            "version": "unknown",
            "model_name": text_or_none(evaluation.get("model")),
            "tool_definitions": held.resolve(tools_of_events(acting(events))),
        },
        "steps": chat.steps,
        "extra": {SPACE: rest},
    }
    claims = _claims(sample, evaluation, _object(about.get("plan"))) | {"approvals": approvals(events)}
    return Record(item.number, item.offset, item.raw, document, claims, chat.anomalies(), _dropped(events, output))


def _messages(sample: dict[str, Any], events: list[dict[str, Any]], chat: Conversation) -> list[Any]:
    """Return the history of a sample: its messages, else the last one that a model saw, else its input."""
    messages = sample.get("messages")
    if isinstance(messages, list) and messages:
        return messages
    seen = last_history(sample, acting(events))
    if seen:
        chat.noted.append("messages_from_events")
        return seen
    chat.noted.append("input_only")
    asked = sample.get("input")
    if isinstance(asked, str):
        return [{"role": "user", "content": asked}]
    return asked if isinstance(asked, list) else []


def _add(chat: Conversation, message: Any, model: str | None) -> dict[str, Any]:
    """Add one message in the spelling of chat logs; returns the step or result that it became."""
    if not isinstance(message, dict):
        raise Unreadable("bad_message", "a message must be an object")
    used = {"id", "role", "content", "tool_calls", "function", "reasoning", "model"}
    told = {key: value for key, value in message.items() if key not in used and value is not None}
    if message.get("id") is not None:
        told["message_id"] = message["id"]
    content, thoughts, uses = _content(message.get("content"), chat)
    role = message.get("role")
    if role == "tool":
        named = {"name": message["function"]} if message.get("function") is not None else {}
        return chat.add({**told, **named, "role": role, "content": content})
    if role != "assistant":
        return chat.add({**told, "role": role, "content": content})
    if isinstance(message.get("reasoning"), str):
        thoughts.insert(0, {"reasoning": message["reasoning"]})
    said = [text for part in thoughts if isinstance(text := part.get("reasoning"), str) and text]
    if said:
        told["reasoning_content"] = "\n\n".join(said)
    beside = [{key: part[key] for key in part if key not in ("type", "reasoning")} for part in thoughts]
    if any(beside):
        told["reasoning"] = beside
    step = chat.add({**told, "role": role, "content": content, "tool_calls": _calls(message.get("tool_calls"))})
    for use in uses:
        _use(chat, step, use)
    if isinstance(message.get("model"), str) and message["model"] != model:
        step["model_name"] = message["model"]
    if message.get("source") == "input":
        step["is_copied_context"] = True
    return step


def _content(content: Any, chat: Conversation) -> tuple[Any, list[dict[str, Any]], list[dict[str, Any]]]:
    """Return (content in the parts of chat logs, reasoning parts, tools that the provider ran)."""
    if not isinstance(content, list):
        return content, [], []
    plain: list[Any] = []
    thoughts, uses = [], []
    for given in content:
        part = {key: value for key, value in given.items() if value is not None} if isinstance(given, dict) else given
        kind = part.get("type") if isinstance(part, dict) else None
        if REMOVED in (part.values() if isinstance(part, dict) else ()):
            chat.noted.append("media_removed")
        if kind == "reasoning":
            thoughts.append(part)
        elif kind == "tool_use":
            uses.append(part)
        elif kind == "image" and isinstance(part.get("image"), str):
            detail = {"detail": part["detail"]} if part.get("detail", "auto") != "auto" else {}
            plain.append({"type": "image_url", "image_url": {"url": part["image"], **detail}})
        elif kind == "audio" and str(part.get("audio")).startswith("data:") and "base64," in part["audio"]:
            data = part["audio"].split("base64,", 1)[1]
            plain.append({"type": "input_audio", "input_audio": {"data": data, "format": part.get("format")}})
        else:
            plain.append(part)
    alone = plain[0] if len(plain) == 1 else None
    if isinstance(alone, dict) and set(alone) == {"type", "text"} and isinstance(alone["text"], str):
        return alone["text"], thoughts, uses
    return (plain or ""), thoughts, uses


def _calls(listed: Any) -> list[Any] | None:
    """Return calls in the spelling of chat logs. Their arguments are objects by definition: as text, as there."""
    if not isinstance(listed, list):
        return None
    calls: list[Any] = []
    for call in listed:
        if not isinstance(call, dict):
            raise Unreadable("bad_call", "a tool call must be an object")
        given = call.get("arguments")
        function = {"name": call.get("function"), "arguments": canonical_json(given) if given is not None else None}
        if isinstance(given, str):
            function["arguments"] = given
        rest = {key: value for key, value in call.items() if key not in _CALL and value is not None}
        calls.append({**rest, "id": call.get("id"), "function": function})
    return calls


def _use(chat: Conversation, step: dict[str, Any], use: dict[str, Any]) -> None:
    """Add a tool that the provider ran, with its result."""
    made = step.setdefault("tool_calls", [])
    rest = {key: value for key, value in use.items() if key not in ("type", "id", "name", "arguments", "result")}
    name = use.get("name") or use.get("tool_type")
    made.append(chat.call(step["step_id"], len(made), use.get("id"), name, use.get("arguments"), rest))
    result = use.get("result")
    told = result if isinstance(result, str | None) else canonical_json(result)
    chat.result(made[-1]["tool_call_id"], name, told, {})


def _claims(sample: dict[str, Any], evaluation: dict[str, Any], plan: dict[str, Any]) -> dict[str, Any]:
    """Return what the log says of task, environment and run, as far as Ratchet has a place for it."""
    task, name = text_or_none(evaluation.get("task")), str(sample["id"])
    claims = instance_claims(name)
    if "repo" not in claims and task:
        claims["task_id"] = f"{task}/{name}"
    if task:
        claims["environment"] = task
        if evaluation.get("task_version") is not None:
            claims["environment_version"] = str(evaluation["task_version"])
    seed = _object(evaluation.get("model_generate_config")).get("seed", _object(plan.get("config")).get("seed"))
    if type(seed) is int:
        claims["seed"] = seed
    spent = sample.get("total_time")
    if isinstance(spent, int | float) and not isinstance(spent, bool) and spent >= 0:
        claims["latency_s"] = float(spent)
    return claims


def _agent(evaluation: dict[str, Any], plan: dict[str, Any]) -> str:
    steps = plan.get("steps")
    solvers = [step.get("solver") for step in steps if isinstance(step, dict)] if isinstance(steps, list) else []
    return text_or_none(evaluation.get("solver")) or next((str(name) for name in reversed(solvers) if name), "unknown")


def _output(output: dict[str, Any]) -> dict[str, Any]:
    """Return what of the final output its last message does not say."""
    kept = {key: output[key] for key in output if key not in ("choices", "completion") and output[key] is not None}
    choices = output.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        kept["stop_reason"] = choices[0].get("stop_reason")
    return {"output": kept} if kept else {}


def _dropped(events: list[dict[str, Any]], output: dict[str, Any]) -> tuple[str, ...]:
    kinds = [str(event.get("event")) for event in events]
    names = [f"events.{kind}" for kind in kinds if kind not in ("model", "approval")]
    names += ["events.model.call" for event in events if event.get("event") == "model" and event.get("call")]
    choices = output.get("choices")
    listed = choices if isinstance(choices, list) else []
    names += ["output.choices.logprobs" for choice in listed if isinstance(choice, dict) and choice.get("logprobs")]
    return (*names, *["output.choices"] * (len(listed) - 1))


def _events(sample: dict[str, Any]) -> list[dict[str, Any]]:
    legacy = _object(sample.get("transcript"))
    events = sample.get("events") or legacy.get("events")
    return [event for event in events if isinstance(event, dict)] if isinstance(events, list) else []


def _without_ids(value: Any) -> Any:
    """Return a part of the log's head without the list of all its samples."""
    if isinstance(value, dict) and isinstance(value.get("dataset"), dict):
        return {**value, "dataset": {key: kept for key, kept in value["dataset"].items() if key != "sample_ids"}}
    return value


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
