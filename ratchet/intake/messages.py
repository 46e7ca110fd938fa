"""Chat messages to ATIF steps: what every format that logs OpenAI-like messages shares.

A message of system, developer, user or assistant becomes a step; a tool message becomes a result on the step whose
call it answers (`calls.py`). Legacy `function_call` and `function` messages become calls and results. Whatever else a
message, call or result holds is kept in its `extra`, under the name of the format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import replace
from datetime import datetime
from typing import Any

from ratchet.intake.calls import Calls
from ratchet.intake.jsontext import Value, decode_sound, values
from ratchet.intake.parts import beside_text, content_of
from ratchet.intake.records import Record, Rejected, Unreadable

SOURCES = {"system": "system", "developer": "system", "user": "user", "assistant": "agent"}
"""Roles that speak, with the ATIF source of their steps."""
RESULTS = ("tool", "function")
"""Roles that answer a call."""
_RESULT = {"tool_call_id", "id", "tool_call_ids", "name", "role", "content"}
_SPOKEN = {"role", "content"}
_ACTED = {"role", "content", "tool_calls", "function_call"}
_CALL = {"id", "type", "function"}
_FUNCTION = {"name", "arguments"}


class Conversation:
    """The messages of one trajectory, taken one at a time."""

    def __init__(
        self, name: Callable[[], str], space: str, anomalies: tuple[str, ...] = (), *, objects: bool = False
    ) -> None:
        """Start empty.

        Args:
            name: gives the trajectory's name for re-issued call ids; asked only where one is needed.
            space: key of `extra` under which fields without an ATIF place are kept.
            anomalies: what was noted about the record before.
            objects: whether the format itself has arguments as objects, so that they are no quirk.
        """
        self.steps: list[dict[str, Any]] = []
        self.calls = Calls(name)
        self.noted: list[str] = list(anomalies)
        self.plain = True
        """Whether all steps, as they came from here, are of the shape of `plain`, with nothing null in them."""
        self._space = space
        self._objects = objects
        self._on_result = False

    def add(self, message: Any) -> dict[str, Any]:
        """Take one message; returns the step or result that it became, which the caller may amend.

        Raises:
            Unreadable: it is no object, its role is unknown, or its content or calls have no reading.
        """
        if not isinstance(message, dict):
            raise Unreadable("bad_message", "a message must be an object")
        role = message.get("role")
        if role in RESULTS:
            self._on_result = True
            return self._attach(message)
        source = SOURCES.get(role) if isinstance(role, str) else None
        if source is None:
            raise Unreadable(
                "unknown_role", "a message's role must be system, developer, user, assistant, tool or function"
            )
        self._on_result = False
        step = self._step(message, source, len(self.steps) + 1)
        self.steps.append(step)
        return step

    def call(
        self, step_id: int, position: int, given: Any, name: Any, arguments: Any, rest: dict[str, Any]
    ) -> dict[str, Any]:
        """Register one call.

        Args:
            step_id: the step that makes it.
            position: its position among the calls of the step, from 0.
            given: its id as logged, or None.
            name: the tool's name.
            arguments: as logged: an object, or a string that should hold one.
            rest: what else to keep about it.

        Raises:
            Unreadable: it names no tool.
        """
        if not isinstance(name, str):
            raise Unreadable("bad_call", "a called function must have a name")
        issued, kept = self.calls.issue(step_id, position, given, name)
        own = self._objects and isinstance(arguments, dict)
        decoded, text = (arguments, None) if own else arguments_of(arguments, self.noted)
        if text is not None:
            kept["arguments_text"] = text
        if rest:
            kept[self._space] = rest
        made: dict[str, Any] = {"tool_call_id": issued, "function_name": name, "arguments": decoded}
        return {**made, "extra": kept} if kept else made

    def result(self, given: Any, name: Any, content: Any, rest: dict[str, Any]) -> dict[str, Any]:
        """Register one result; an orphan goes to the last step, or opens a first one.

        Args:
            given: id of the call that it names, or None.
            name: the tool that it names, or None.
            content: ATIF content, or None.
            rest: what else to keep about it.
        """
        found = self.calls.answer(given, name if isinstance(name, str) else None)
        result: dict[str, Any] = {"source_call_id": found[1] if found else None, "content": content}
        self.plain = self.plain and found is not None and type(content) is str
        kept: dict[str, Any] = {self._space: rest} if rest else {}
        if given is not None and given != result["source_call_id"]:
            kept["original_call_id"] = given
        if kept:
            result["extra"] = kept
        if found is None and not self.steps:
            self.steps.append({"step_id": 1, "source": "system", "message": ""})
        step = self.steps[found[0] - 1] if found else self.steps[-1]
        if "observation" in step:
            step["observation"]["results"].append(result)
        else:
            step["observation"] = {"results": [result]}
        return result

    def anomalies(self) -> tuple[str, ...]:
        """Return the codes of every quirk, once all messages are in: open calls and an open end are among them."""
        ends = ["ends_on_result"] if self._on_result else []
        codes = [*self.noted, *ends, *clock_anomalies(self.steps), *self.calls.anomalies]
        return (*codes, *["unanswered_call"] * self.calls.unanswered)

    def _step(self, message: dict[str, Any], source: str, step_id: int) -> dict[str, Any]:
        content, role = message.get("content"), message["role"]
        spoken = isinstance(content, str)
        if spoken and len(message) == 2 and role != "developer":  # as most messages are
            return {"step_id": step_id, "source": source, "message": content}
        plain, beside = (content, {}) if spoken or content is None else beside_text(content)
        step: dict[str, Any] = {
            "step_id": step_id,
            "source": source,
            "message": content if spoken else content_of(plain, self.noted),
        }
        if type(step["message"]) is not str:
            self.plain = False
        if source == "agent":
            rest = _without(message, _ACTED)
            if isinstance(rest.get("reasoning_content"), str):
                step["reasoning_content"] = rest.pop("reasoning_content")
            made = self._calls(message, step_id)
            if made:
                step["tool_calls"] = made
        else:
            rest = _without(message, _SPOKEN)
        if isinstance(rest.get("timestamp"), str):
            step["timestamp"] = rest.pop("timestamp")
        if role == "developer":
            rest["role"] = "developer"
        if content is None and "content" in message:
            rest["content"] = None
        if beside:
            rest["parts"] = beside
        if rest:
            step["extra"] = {self._space: rest}
        return step

    def _calls(self, message: dict[str, Any], step_id: int) -> list[dict[str, Any]]:
        listed = [] if message.get("tool_calls") is None else message["tool_calls"]
        if not isinstance(listed, list):
            raise Unreadable("bad_call", "tool_calls must be an array")
        found: list[tuple[dict[str, Any], dict[str, Any], Any]] = []
        for item in listed:
            function = item.get("function") if isinstance(item, dict) else None
            if not isinstance(function, dict):
                raise Unreadable("bad_call", "a tool call must hold a function")
            if item.keys() == _CALL and item["type"] == "function" and function.keys() == _FUNCTION:  # as most are
                found.append((function, {}, item["id"]))
                continue
            rest = _without(item, _CALL)
            if item.get("type", "function") != "function":
                rest["type"] = item["type"]
            rest |= _without(function, _FUNCTION)
            found.append((function, rest, item.get("id")))
        legacy = message.get("function_call")
        if legacy is not None:
            if not isinstance(legacy, dict):
                raise Unreadable("bad_call", "function_call must be an object")
            self.noted.append("legacy_function_call")
            found.append((legacy, _without(legacy, _FUNCTION), None))
        return [
            self.call(step_id, position, given, function.get("name"), function.get("arguments"), rest)
            for position, (function, rest, given) in enumerate(found)
        ]

    def _attach(self, message: dict[str, Any]) -> dict[str, Any]:
        """Put a result on the step whose call it answers."""
        content, given = message.get("content"), message.get("tool_call_id")
        if given and isinstance(content, str) and len(message) == 3:  # as most results are
            return self.result(given, None, content, {})
        given = given or message.get("id") or None
        listed = message.get("tool_call_ids")
        if given is None and isinstance(listed, list) and listed:
            given = listed[0]
            self.noted.append("call_ids_as_list")
        elif not message.get("tool_call_id") and message.get("id"):
            self.noted.append("result_names_its_call_id")
        name = message.get("name")
        plain, beside = beside_text(content)
        content = content_of(plain, self.noted) if plain is not None else None
        extra = _without(message, _RESULT)
        if beside:
            extra["parts"] = beside
        if name is not None:
            extra["name"] = name
        if isinstance(listed, list) and len(listed) != 1:
            extra["tool_call_ids"] = listed
        return self.result(given, name, content, extra)


def _without(holder: dict[str, Any], known: Set[str]) -> dict[str, Any]:
    """Return what else an object holds."""
    if holder.keys() <= known:
        return {}
    return {key: value for key, value in holder.items() if key not in known}


def clock_anomalies(steps: list[dict[str, Any]]) -> list[str]:
    """Return what is odd about the times of a trajectory, each code once.

    Naive times stay naive: which zone was meant is not in the log. `mixed_timestamps` says that some have a zone and
    some have none, so that their order across the two cannot be told.
    """
    kinds = {_clock(step["timestamp"]) for step in steps if isinstance(step.get("timestamp"), str)}
    codes = [code for kind, code in (("naive", "naive_timestamp"), ("odd", "odd_timestamp")) if kind in kinds]
    return [*codes, "mixed_timestamps"] if {"naive", "zoned"} <= kinds else codes


def _clock(text: str) -> str:
    try:
        return "naive" if datetime.fromisoformat(text).tzinfo is None else "zoned"
    except ValueError:
        return "odd"


def arguments_of(given: Any, anomalies: list[str]) -> tuple[dict[str, Any], Any]:
    """Return the arguments of a call, and what was given where it is no sound JSON object."""
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


def thinking_of(blocks: Any) -> str | None:
    """Return the text of Anthropic's thinking blocks, or None where there is none."""
    listed = blocks if isinstance(blocks, list) else []
    found = [
        block["thinking"] for block in listed if isinstance(block, dict) and isinstance(block.get("thinking"), str)
    ]
    return "\n".join(found) or None


def tools_of(body: dict[str, Any], anomalies: list[str]) -> list[dict[str, Any]] | None:
    """Return the tool schemas of a record: its `tools`, also where they are a JSON string, and legacy `functions`."""
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


def object_of(holder: dict[str, Any], field: str) -> dict[str, Any]:
    """Return a field that must be an object where it is not missing or null. Raises Unreadable."""
    value = holder.get(field)
    if value is not None and not isinstance(value, dict):
        raise Unreadable("bad_metadata", f"{field} must be an object")
    return value or {}


def text_or_none(value: Any) -> str | None:
    """Return a string, or None for anything else."""
    return value if isinstance(value, str) else None


def records_of(
    data: bytes, convert: Callable[[Value], Record], split: Callable[[Value], Iterable[Value]] | None = None
) -> Iterator[Record | Rejected]:
    """Yield what `convert` makes of each value of a source; what it finds unreadable is rejected whole.

    Args:
        data: the source.
        convert: makes a record of a value, or raises Unreadable.
        split: where one value holds several trajectories: gives them one by one, numbered here; may raise Unreadable.
    """
    if split is None:
        yield from converted(values(data), convert)
        return
    number = 0
    for item in values(data):
        pieces: list[Value | Rejected]
        try:
            pieces = [item] if isinstance(item, Rejected) else list(split(item))
        except Unreadable as error:
            pieces = [Rejected(number, item.offset, item.raw, error.code, error.reason)]
        yield from converted((replace(piece, number=number + n) for n, piece in enumerate(pieces)), convert)
        number += len(pieces)


def converted(items: Iterable[Value | Rejected], convert: Callable[[Value], Record]) -> Iterator[Record | Rejected]:
    """Yield what `convert` makes of each value; what it finds unreadable is rejected whole."""
    for item in items:
        if isinstance(item, Rejected):
            yield item
            continue
        try:
            record = convert(item)
        except Unreadable as error:
            yield Rejected(item.number, item.offset, item.raw, error.code, error.reason)
            continue
        yield replace(record, text=item.text) if item.text and not record.text else record
