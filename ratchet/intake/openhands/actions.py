"""OpenHands events of the first generation: `{action, args}` and `{observation, content, extras}` with `cause`.

An action of the agent with `tool_call_metadata` is a call of the model's response that stands there; all calls of one
response are one step. An action without it, from before tool calls, is a call by the action's name, known by its
event's id. An observation answers by the call's id, else by `cause`; one that answers no call is what the model read
next, as a user step. What no model read or wrote (states, recalls, null) is kept beside.
"""

from __future__ import annotations

from typing import Any

from ratchet.intake.openhands.telling import SPACE, Telling, metrics_of, told
from ratchet.intake.records import Unreadable

_QUIET = {
    "null", "change_agent_state", "agent_state_changed", "recall", "condensation", "condensation_request", "condense",
    "pause", "resume", "stop", "start", "initialize", "loop_recovery",
}  # fmt: skip
_THOUGHT = ("thought", "reasoning_content")


class Actions(Telling):
    """A stream of actions and observations."""

    _made: dict[str, str]
    _steps: dict[str, dict[str, Any]]

    def tell(self, events: list[Any]) -> None:
        """Take all events, or pairs of an action and its observation.

        Raises:
            Unreadable: an event is neither action nor observation, or has no reading.
        """
        self._made, self._steps = {}, {}
        for position, item in enumerate(events):
            pair = item if isinstance(item, list) else [item]
            key = ""
            for event in pair:
                if not isinstance(event, dict):
                    raise Unreadable("bad_event", "an event must be an object")
                if not event:
                    continue
                if isinstance(event.get("action"), str):
                    key = str(event.get("id", position))
                    self._action(event, key)
                elif isinstance(event.get("observation"), str):
                    self._observation(event, str(event.get("cause", key)))
                else:
                    raise Unreadable("bad_event", "an event must name its action or its observation")

    def _action(self, event: dict[str, Any], key: str) -> None:
        kind, source = event["action"], event.get("source")
        args = event.get("args") or {}
        if not isinstance(args, dict):
            raise Unreadable("bad_event", "args must be an object")
        if kind in _QUIET:
            self.quiet(event, condensed=kind == "condensation")
        elif kind in ("system", "message"):
            self._message(event, args, "system" if kind == "system" else "user" if source == "user" else "assistant")
        elif source == "user":
            text = next((args[name] for name in ("command", "path", "content") if isinstance(args.get(name), str)), "")
            self.chat.add({"role": "user", "content": text, **_at(event), **told(event, "timestamp")})
        else:
            self.finished = self.finished or kind == "finish"
            meta = event.get("tool_call_metadata")
            if isinstance(meta, dict):
                self._made[key] = self._called(event, args, meta)
            else:
                self._made[key] = key
                self._acted(event, args, key)

    def _message(self, event: dict[str, Any], args: dict[str, Any], role: str) -> None:
        self.offered(args.get("tools"))
        content = args.get("content")
        images = args.get("image_urls") or args.get("images_urls")
        if isinstance(images, list) and images:
            pictures = [{"type": "image_url", "image_url": {"url": url}} for url in images]
            content = [{"type": "text", "text": content or ""}, *pictures]
        rest = {
            key: value for key, value in args.items() if key not in ("content", "tools", "image_urls", "images_urls")
        }
        beside = told({**event, "args": rest or None}, "timestamp", "action", *_repeats(event, args.get("content")))
        self.chat.add({"role": role, "content": content, **_at(event), **beside})

    def _called(self, event: dict[str, Any], args: dict[str, Any], meta: dict[str, Any]) -> str:
        """Take an action that is a call of a model's response; returns the call's id as logged."""
        response = meta.get("model_response")
        response = response if isinstance(response, dict) else {}
        name, given = meta.get("function_name"), meta.get("tool_call_id")
        own = {key: value for key, value in args.items() if key not in _THOUGHT}
        step = self._steps.get(str(response.get("id"))) if response.get("id") else None
        if step is not None:
            self.dropped.append("tool_call_metadata.model_response")
        else:
            step = self._answer(event, args, response, {"id": given, "function": {"name": name, "arguments": own}})
            if response.get("id"):
                self._steps[str(response["id"])] = step
        made = step.setdefault("tool_calls", [])
        call = next((call for call in made if given in (call["tool_call_id"], _original(call))), None)
        if call is None:
            self.chat.noted.append("call_outside_response")
            call = self.chat.call(step["step_id"], len(made), given, name, own, {})
            made.append(call)
        rest = {key: value for key, value in own.items() if call["arguments"].get(key) != value and value is not None}
        beside = {key: value for key, value in event.items() if key not in ("source", "args", "tool_call_metadata")}
        beside |= {"args": rest} if rest else {}
        call.setdefault("extra", {}).setdefault(SPACE, {})["event"] = beside
        return str(given)

    def _answer(
        self, event: dict[str, Any], args: dict[str, Any], response: dict[str, Any], alone: dict[str, Any]
    ) -> dict[str, Any]:
        """Make the step of a model's response, with all of its calls; where it is not kept, of this call `alone`."""
        choices = response.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
        message = choice.get("message")
        if not isinstance(message, dict):
            message = {"content": _thought(args)[0], "tool_calls": [alone]}
        rest = {key: value for key, value in response.items() if key != "choices"}
        rest |= {key: value for key, value in choice.items() if key not in ("message", "index") and value is not None}
        plain = {key: value for key, value in message.items() if value is not None or key == "content"}
        step = self.chat.add({**plain, "role": "assistant", **_at(event), **({"response": rest} if rest else {})})
        metrics = metrics_of(response.get("usage"))
        if metrics:
            step["metrics"] = metrics
        if self.model is None and isinstance(response.get("model"), str):
            self.model = response["model"]
        return step

    def _acted(self, event: dict[str, Any], args: dict[str, Any], given: str) -> None:
        """Take an action from before tool calls: a call by its name."""
        self.chat.noted.append("event_id_as_call_id")
        thought, reasoning = _thought(args)
        call = {"id": given, "function": {"name": event["action"], "arguments": _without(args, "thought")}}
        message = {"role": "assistant", "content": thought, "tool_calls": [call], **_at(event)}
        if reasoning:
            message["reasoning_content"] = reasoning
        self.chat.add({**message, **told(event, "timestamp", "action", "args")})

    def _observation(self, event: dict[str, Any], cause: str) -> None:
        kind, meta = event["observation"], event.get("tool_call_metadata")
        meta = meta if isinstance(meta, dict) else {}
        given = meta.get("tool_call_id") or self._made.get(cause)
        self.dropped += ["tool_call_metadata.model_response"] * bool(meta.get("model_response"))
        if given is None and kind in _QUIET:
            self.quiet(event, condensed=kind == "condense")
            return
        content = event.get("content")
        beside = told(event, "content", "tool_call_metadata", *(("timestamp",) if given is None else ()))
        if given is None:
            self.chat.add({"role": "user", "content": content, **_at(event), **beside})
        else:
            self.chat.add({"role": "tool", "tool_call_id": given, "content": content, **beside})


def _at(event: dict[str, Any]) -> dict[str, Any]:
    return {"timestamp": event["timestamp"]} if isinstance(event.get("timestamp"), str) else {}


def _thought(args: dict[str, Any]) -> tuple[Any, str | None]:
    """Return (thought, reasoning) of an action, whose thought may be an object of the two."""
    thought = args.get("thought")
    if isinstance(thought, dict):
        reasoning = thought.get("reasoning_content")
        return thought.get("text"), reasoning if isinstance(reasoning, str) else None
    return thought, None


def _without(args: dict[str, Any], *known: str) -> dict[str, Any]:
    return {key: value for key, value in args.items() if key not in known}


def _original(call: dict[str, Any]) -> Any:
    return (call.get("extra") or {}).get("original_call_id")


def _repeats(event: dict[str, Any], content: Any) -> tuple[str, ...]:
    """`message` is the content once more, as the interface shows it."""
    return ("message",) if event.get("message") == content else ()
