"""OpenHands events of the agent SDK: `{kind, source, ...}` as ActionEvent, ObservationEvent, MessageEvent and others.

Action events of one model response (`llm_response_id`) are one step with parallel calls. Observations, rejections and
errors of the scaffold answer by the call's id. Calls that another agent made over ACP are calls of this one, the last
report of each counting. What no model read or wrote is kept beside.
"""

from __future__ import annotations

from typing import Any

from ratchet.contracts.canonical import canonical_json
from ratchet.intake.messages import thinking_of
from ratchet.intake.openhands.telling import SPACE, Telling, told
from ratchet.intake.records import Unreadable

QUIET = {
    "ConversationStateUpdateEvent", "ConversationErrorEvent", "ConversationIterationLimitEvent", "Condensation",
    "CondensationRequest", "PauseEvent", "InterruptEvent", "TokenEvent", "LLMCompletionLogEvent", "StreamingDeltaEvent",
    "HookExecutionEvent", "ResumeTranscriptEvent", "ResumeTranscript", "AskUserEvent", "WarningEvent", "UnknownEvent",
}  # fmt: skip
RESULTS = ("ObservationEvent", "UserRejectObservation", "AgentErrorEvent")


class Events(Telling):
    """A stream of the SDK's events."""

    _steps: dict[str, dict[str, Any]]
    _reports: dict[str, dict[str, Any]]

    def tell(self, events: list[Any]) -> None:
        """Take all events. Raises Unreadable for one that is no object, names no kind or has no reading."""
        self._steps = {}
        if not all(isinstance(event, dict) and isinstance(event.get("kind"), str) for event in events):
            raise Unreadable("bad_event", "an event must be an object that names its kind")
        self._reports = {
            str(event.get("tool_call_id")): event for event in events if event["kind"] == "ACPToolCallEvent"
        }
        for event in events:
            self._event(event)

    def _event(self, event: dict[str, Any]) -> None:
        kind = event["kind"]
        if kind == "SystemPromptEvent":
            self.offered(event.get("tools"))
            prompts = [part for part in (event.get("system_prompt"), event.get("dynamic_context")) if part is not None]
            self._say("system", prompts, event, "system_prompt", "dynamic_context", "tools")
        elif kind == "MessageEvent":
            self._message(event)
        elif kind == "CondensationSummaryEvent":
            self._say("user", event.get("summary"), event, "summary")
        elif kind == "ActionEvent":
            self._action(event)
        elif kind in RESULTS:
            self._result(event)
        elif kind == "ACPToolCallEvent":
            self._reported(event)
        else:
            if kind not in QUIET:
                self.chat.noted.append("unknown_event")
            self.quiet(event, condensed=kind == "Condensation")

    def _say(self, role: str, content: Any, event: dict[str, Any], *known: str, **fields: Any) -> dict[str, Any]:
        at = {"timestamp": event["timestamp"]} if isinstance(event.get("timestamp"), str) else {}
        message = {"role": role, "content": _content(content), **at, **told(event, "timestamp", *known), **fields}
        return self.chat.add(message)

    def _message(self, event: dict[str, Any]) -> None:
        message = event.get("llm_message")
        if not isinstance(message, dict):
            raise Unreadable("bad_event", "a message event must hold llm_message")
        # What the agent's context adds is read by the model after the content.
        content = [*_listed(message.get("content")), *_listed(event.get("extended_content"))]
        role = message.get("role") or ("assistant" if event.get("source") == "agent" else "user")
        fields = {
            key: value for key, value in message.items() if key not in ("role", "content") and value not in (None, [])
        }
        if role == "assistant" and "reasoning_content" not in fields and thinking_of(fields.get("thinking_blocks")):
            fields["reasoning_content"] = thinking_of(fields["thinking_blocks"])
        self._say(role, content, event, "llm_message", "extended_content", **fields)

    def _action(self, event: dict[str, Any]) -> None:
        logged = event.get("tool_call")
        logged = logged if isinstance(logged, dict) else {}
        nested = logged.get("function")
        function = nested if isinstance(nested, dict) else logged
        action = event.get("action")
        action = action if isinstance(action, dict) else {}
        name = function.get("name") or event.get("tool_name")
        given = logged.get("id") or event.get("tool_call_id")
        own = {key: value for key, value in action.items() if key != "kind"}
        self.finished = self.finished or name == "finish" or action.get("kind") == "FinishAction"
        response = event.get("llm_response_id")
        step = self._steps.get(response) if isinstance(response, str) else None
        if step is None:
            reasoning = event.get("reasoning_content") or thinking_of(event.get("thinking_blocks"))
            fields = {"reasoning_content": reasoning} if reasoning else {}
            known = (*_CALL, *_ALONE, "thought", "reasoning_content")
            step = self._say("assistant", event.get("thought"), event, *known, **fields)
            if isinstance(response, str):
                self._steps[response] = step
            keep = {key: event[key] for key in _ALONE if event.get(key) is not None}
        else:
            # Thought and reasoning are the response's, and stand on its first event.
            told_first = (*_CALL, "kind", "source", "llm_response_id")
            keep = {key: value for key, value in event.items() if key not in told_first and value not in (None, [], "")}
        made = step.setdefault("tool_calls", [])
        call = self.chat.call(step["step_id"], len(made), given, name, function.get("arguments", own), {"event": keep})
        beside = {
            key: value for key, value in action.items() if call["arguments"].get(key) != value and value is not None
        }
        rest = {key: value for key, value in logged.items() if key not in _FUNCTION and value is not None}
        call["extra"][SPACE] |= {name: kept for name, kept in (("action", beside), ("tool_call", rest)) if kept}
        made.append(call)

    def _result(self, event: dict[str, Any]) -> None:
        kind = event["kind"]
        observation = event.get("observation")
        if kind == "AgentErrorEvent":
            content = event.get("error")
        elif kind == "UserRejectObservation":
            content = event.get("rejection_reason")
        else:
            content = self._observed(observation)
        added = _listed(event.get("extended_content"))
        content = _content([*_listed(content), *added] if added else content)
        rest = {key: value for key, value in event.items() if key not in ("observation", "error", "extended_content")}
        if isinstance(observation, dict):
            rest["observation"] = {
                key: value for key, value in observation.items() if value != content and value is not None
            }
        beside = told(rest, "tool_call_id", "tool_name", "rejection_reason")
        message = {"role": "tool", "tool_call_id": event.get("tool_call_id"), "content": content, **beside}
        self.chat.add({**message, **({"name": event["tool_name"]} if event.get("tool_name") else {})})

    def _observed(self, observation: Any) -> Any:
        """Return what the model read of an observation, whose fields depend on the tool."""
        if not isinstance(observation, dict):
            return observation
        for field in ("content", "output", "error", "message", "text"):
            value = observation.get(field)
            if isinstance(value, str | list) and value:
                return value
        known = {"content", "output", "error", "message", "text", "kind"}
        if set(observation) - known:
            self.chat.noted.append("unknown_observation")
            return canonical_json(observation)
        return ""

    def _reported(self, event: dict[str, Any]) -> None:
        """Take a call that another agent made: once, as its last report has it."""
        given = str(event.get("tool_call_id"))
        last = self._reports.pop(given, None)
        if last is None:
            self.dropped.append("ACPToolCallEvent")
            return
        step = self._say("assistant", "", event, *last)
        name, arguments = last.get("tool_kind") or last.get("title"), last.get("raw_input")
        arguments = arguments if isinstance(arguments, dict) else {} if arguments is None else {"input": arguments}
        known = ("tool_call_id", "raw_input", "raw_output")
        step["tool_calls"] = [self.chat.call(step["step_id"], 0, given, name, arguments, told(last, *known))]
        output = last.get("raw_output")
        if output is None:
            output = last.get("content")
        if output is not None:
            text = output if isinstance(output, str) else canonical_json(output)
            self.chat.add({"role": "tool", "tool_call_id": given, "content": text})


_CALL = ("tool_call", "action", "tool_name", "tool_call_id")
_ALONE = ("id", "security_risk", "summary")
"""What an action event says of its own call; the rest it says of the response."""
_FUNCTION = ("id", "type", "name", "arguments", "function")


def _listed(content: Any) -> list[Any]:
    return content if isinstance(content, list) else [] if content is None else [content]


def _content(content: Any) -> Any:
    """Turn the SDK's parts into those of chat: one plain text is its string, an image part may hold several."""
    parts: list[Any] = []
    for part in _listed(content):
        urls = part.get("image_urls") if isinstance(part, dict) else None
        if isinstance(urls, list):
            parts += [{"type": "image_url", "image_url": {"url": url}} for url in urls]
        elif isinstance(part, dict) and isinstance(part.get("text"), str) and part.get("type", "text") == "text":
            # Whether a part was cached says nothing about the conversation where it was not.
            rest = {key: value for key, value in part.items() if key != "cache_prompt" or value}
            parts.append({"type": "text", **rest})
        elif isinstance(part, str):
            parts.append({"type": "text", "text": part})
        else:
            parts.append(part)
    if not parts:
        return ""
    return (
        parts[0]["text"]
        if len(parts) == 1 and isinstance(parts[0], dict) and set(parts[0]) == {"type", "text"}
        else parts
    )
