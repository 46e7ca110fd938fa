"""One OpenInference span, from OTLP or from a row that Phoenix exported.

The conventions flatten messages to attributes (`llm.input_messages.0.message.tool_calls.0.tool_call.function.name`);
Phoenix rows hold them as lists, as nested objects or as columns of a data frame. All become one form first. A model
call without message attributes is read from its `input.value` and `output.value`.

Source: Arize-ai/openinference, spec/semantic_conventions.md, spec/llm_spans.md, spec/tool_calling.md.
"""

from __future__ import annotations

from typing import Any

from ratchet.intake.jsontext import Value
from ratchet.intake.records import Unreadable
from ratchet.intake.spans.attributes import nested, taken
from ratchet.intake.spans.chat import alternatives_of, beside_messages, messages_of, without_messages
from ratchet.intake.spans.content import call, result_content
from ratchet.intake.spans.model import Kind, Span, decoded, instant, metrics_of, name_or_none
from ratchet.intake.spans.otlp import OtlpSpan

_KINDS: dict[str, Kind] = {"LLM": "llm", "TOOL": "tool", "AGENT": "agent"}
_DEEP = ("llm.input_messages", "llm.output_messages", "llm.tools")
_USED = (
    "openinference.span.kind", *_DEEP, "llm.function_call", "llm.model_name", "llm.token_count", "llm.cost",
    "session.id", "agent.name", "ratchet",
)  # fmt: skip


def is_openinference(found: OtlpSpan) -> bool:
    """Whether the span carries attributes of these conventions."""
    return any(key == "openinference.span.kind" or key.startswith(_DEEP) for key in found.attributes)


def span_of(found: OtlpSpan) -> Span:
    """Return what a span says; `broken` says why where its messages have no reading."""
    span = Span(
        trace=found.trace,
        id=found.id,
        parent=found.parent,
        name=found.name,
        kind=_KINDS.get(str(found.attributes.get("openinference.span.kind", "")).upper(), "other"),
        raw=found.raw,
        offset=found.offset,
        started=found.started,
        ended=found.ended,
        resource=found.resource,
        anomalies=list(found.anomalies),
    )
    about = {"status": found.status, "status_message": found.message, "scope": found.scope, "otlp": found.rest}
    span.rest = {key: value for key, value in about.items() if value}
    if found.events:
        span.rest["events"] = [{"name": one.name, "at": one.at, "attributes": one.attributes} for one in found.events]
    _fill(span, found.attributes)
    return span


def row_of(row: Any, raw: bytes, item: Value) -> Span:
    """Return what a row of Phoenix says; `broken` as above. Raises Unreadable where it names no span."""
    if not isinstance(row, dict):
        raise Unreadable("bad_span", "a row must be an object")
    flat = _columns(row)
    context = _object(flat.pop("context", None))
    trace, name = context.get("trace_id"), context.get("span_id")
    if not (isinstance(trace, str) and trace and isinstance(name, str) and name):
        raise Unreadable("bad_span", "a row must have context.trace_id and context.span_id")
    attributes = flat.pop("attributes", None) or {}
    if not isinstance(attributes, dict):
        raise Unreadable("bad_span", "the attributes of a row must be an object")
    kind = str(flat.pop("span_kind", None) or attributes.get("openinference.span.kind") or "")
    span = Span(
        trace=trace,
        id=name,
        parent=name_or_none(flat.pop("parent_id", None)),
        name=str(flat.pop("name", None) or ""),
        kind=_KINDS.get(kind.upper(), "other"),
        raw=raw,
        offset=item.offset,
        started=instant(flat.pop("start_time", None)),
        ended=instant(flat.pop("end_time", None)),
        anomalies=list(item.anomalies),
    )
    flat["status"] = flat.pop("status_code", None)
    if span.kind == "other" and kind:
        flat["span_kind"] = kind
    span.rest = {key: value for key, value in flat.items() if value not in (None, "", [], {}, "UNSET")}
    _fill(span, attributes)
    return span


def _columns(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with `context` and `attributes` as objects, where a data frame has them as columns."""
    result: dict[str, Any] = {}
    for key, value in row.items():
        holder, dot, name = key.partition(".")
        if dot and holder in ("context", "attributes"):
            if value is not None:
                inner = result.setdefault(holder, {})
                if not isinstance(inner, dict):
                    raise Unreadable("bad_span", f"a row has {holder} both whole and as columns")
                inner[name] = value
        else:
            result[key] = value
    return result


def _fill(span: Span, attributes: dict[str, Any]) -> None:
    flat = {key: decoded(value) if key in _DEEP else value for key, value in attributes.items()}
    tree = nested(flat, _DEEP)
    llm = _object(tree.get("llm"))
    span.conversation = _text(_object(tree.get("session")).get("id"))
    name = _text(_object(tree.get("agent")).get("name"))
    span.agent = {"name": name} if name else {}
    span.model = _text(llm.get("model_name")) or _text(_object(llm.get("response")).get("model_name"))
    span.metrics = _metrics(llm)
    span.claims = _object(tree.get("ratchet"))
    rest = taken(_flat(tree), *_USED)
    if span.kind == "other" and "openinference.span.kind" in attributes:
        rest["openinference.span.kind"] = attributes["openinference.span.kind"]
    try:
        _content(span, tree, llm, rest)
    except Unreadable as error:
        span.broken = error
    rest = without_messages(rest, span.dropped)
    if rest:
        span.rest["attributes"] = rest


def _content(span: Span, tree: dict[str, Any], llm: dict[str, Any], rest: dict[str, Any]) -> None:
    """Read what was said and done; what it takes is removed from `rest`."""
    given, answer = _object(tree.get("input")).get("value"), _object(tree.get("output")).get("value")
    if span.kind == "llm":
        span.inputs = [one for entry in _entries(llm, "input_messages") for one in _message(entry, "user")]
        said = [one for entry in _entries(llm, "output_messages") for one in _message(entry, "assistant")]
        span.choices = [said] if said else []
        span.tools = _tools(llm)
        for which, value in (("input", given), ("output", answer)):
            if value is not None and (span.inputs if which == "input" else span.choices):
                rest.pop(f"{which}.value", None)
                rest.pop(f"{which}.mime_type", None)
                span.dropped.append(f"{which}.value")
        if not span.inputs and "input.value" in rest:
            span.inputs = messages_of(given := rest.pop("input.value"), "user")
            rest |= {"request": beside_messages(given)} if beside_messages(given) else {}
        if not span.choices and "output.value" in rest:
            span.choices = alternatives_of(answer := rest.pop("output.value"), "assistant")
            rest |= {"response": beside_messages(answer)} if beside_messages(answer) else {}
    elif span.kind == "tool":
        _tool(span, tree, rest)
    else:
        span.inputs, span.choices = messages_of(given, "user"), alternatives_of(answer, "assistant")


def _flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return a tree's objects as dotted keys again, so that one list of used names serves all forms; lists stay."""
    result: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            result |= _flat(value, f"{prefix}{key}.")
        else:
            result[f"{prefix}{key}"] = value
    return result


def _entries(llm: dict[str, Any], key: str) -> list[dict[str, Any]]:
    """Return the flattened messages of a call. Raises Unreadable where they are no list of objects."""
    listed = llm.get(key)
    if isinstance(listed, dict):
        listed = list(listed.values())  # a list of which entries are missing
    if listed is None:
        return []
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        raise Unreadable("bad_messages", f"llm.{key} must be a list of messages")
    return listed


def _message(entry: dict[str, Any], role: str) -> list[dict[str, Any]]:
    about = entry["message"] if isinstance(entry.get("message"), dict) else entry
    message: dict[str, Any] = {"role": about.get("role") or role, "content": about.get("content")}
    rest = {key: value for key, value in about.items() if key not in ("role", "content", "contents", "tool_calls")}
    listed = about.get("tool_calls")
    calls = [_call(one) for one in (listed if isinstance(listed, list) else [listed] if listed else [])]
    if isinstance(about.get("contents"), list):
        parts = [_part(one) for one in about["contents"]]
        ids = [one["id"] for one in calls]
        parts = [one for one in parts if not (one.get("type") == "tool_use" and one.get("id") in ids)]
        message["content"] = (
            parts if about.get("content") is None else [{"type": "text", "text": about["content"]}, *parts]
        )
    if rest.get("function_call_name"):
        calls.append(call(None, rest.pop("function_call_name"), rest.pop("function_call_arguments_json", None)))
    if calls:
        message["tool_calls"] = calls
    return messages_of([message | rest], role)


def _call(entry: Any) -> dict[str, Any]:
    about = _object(entry)
    about = _object(about["tool_call"]) if "tool_call" in about else about
    function = _object(about.get("function"))
    rest = {key: value for key, value in about.items() if key not in ("id", "function")}
    return call(about.get("id"), function.get("name"), function.get("arguments"), rest)


def _part(entry: Any) -> dict[str, Any]:
    """Return a `message_content` as a part that `content.sort` knows."""
    about = _object(entry)
    about = dict(_object(about["message_content"]) if "message_content" in about else about)
    for kind in ("image", "audio"):
        inner = _object(about.get(kind))
        media = _object(inner.get(kind)) or inner
        if about.get("type") == kind and isinstance(media.get("url"), str):
            return {"type": "image_url", "image_url": {"url": media["url"]}} if kind == "image" else about
    return about


def _tools(llm: dict[str, Any]) -> list[dict[str, Any]]:
    found = []
    for entry in llm.get("tools") or [] if isinstance(llm.get("tools"), list) else []:
        about = _object(_object(entry).get("tool", entry))
        schema = decoded(about.get("json_schema"))
        if schema is None and about.get("name"):
            schema = {"type": "function", "function": dict(about)}
        if not isinstance(schema, dict):
            raise Unreadable("bad_tools", "a tool's json_schema must hold an object")
        found.append(schema)
    return found


def _tool(span: Span, tree: dict[str, Any], rest: dict[str, Any]) -> None:
    about, made = _object(tree.get("tool")), _object(tree.get("tool_call"))
    span.tool = _text(about.get("name")) or _text(_object(made.get("function")).get("name")) or span.name
    span.call_id = _text(made.get("id")) or _text(about.get("id"))
    given, answer = rest.pop("input.value", None), rest.pop("output.value", None)
    span.arguments = _object(made.get("function")).get("arguments") or (
        about.get("parameters") if given is None else given
    )
    answer, span.call_id = tool_answer(answer, span.call_id)
    span.result = result_content(answer)
    for key in ("tool.name", "tool_call.id", "tool.id"):
        rest.pop(key, None)


def tool_answer(answer: Any, call_id: str | None) -> tuple[Any, str | None]:
    """Return what a tool said and the call that it names, where its answer is a tool message of LangChain."""
    inner = decoded(answer)
    message = isinstance(inner, dict) and ("tool_call_id" in inner or "lc" in inner)
    said = messages_of([inner], "tool") if message else []
    if len(said) == 1 and said[0]["role"] == "tool":
        return said[0].get("content"), call_id or _text(said[0].get("tool_call_id"))
    return answer, call_id


def _metrics(llm: dict[str, Any]) -> dict[str, Any]:
    count, cost = _object(llm.get("token_count")), _object(llm.get("cost"))
    details = _object(count.get("prompt_details"))
    values = {
        "prompt_tokens": count.get("prompt"),
        "completion_tokens": count.get("completion"),
        "cached_tokens": details.get("cache_read"),
        "cost_usd": cost.get("total"),
    }
    other = {f"token_count.{key}": value for key, value in count.items() if key not in ("prompt", "completion")}
    other |= {f"cost.{key}": value for key, value in cost.items() if key != "total"}
    if set(details) <= {"cache_read"}:
        other.pop("token_count.prompt_details", None)
    return metrics_of(values, other)


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
