"""One OpenTelemetry GenAI span, in any generation of the semantic conventions.

- `gen_ai.input.messages`, `gen_ai.output.messages`, `gen_ai.system_instructions`, `gen_ai.tool.definitions` (1.37 and
  later) as JSON strings or structured, on the span or on a `gen_ai.client.inference.operation.details` event;
- the events `gen_ai.{system,user,assistant,tool}.message` and `gen_ai.choice` (1.28 to 1.36), as events of the span
  or as log records, and `gen_ai.content.{prompt,completion}` (1.27 and before);
- the flattened `gen_ai.prompt.N.*`, `gen_ai.completion.N.*`, `llm.prompts.N.*`, `llm.completions.N.*` and
  `llm.request.functions.N.*` of OpenLLMetry, with its `traceloop.*` attributes for tools, agents and workflows;
- the `ai.*` attributes of the Vercel AI SDK (`vercel.py`).

Source: open-telemetry/semantic-conventions, docs/gen-ai; traceloop/openllmetry, semantic_conventions_ai.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ratchet.intake.records import Unreadable
from ratchet.intake.spans import vercel
from ratchet.intake.spans.attributes import nested, taken
from ratchet.intake.spans.chat import messages_of, without_messages
from ratchet.intake.spans.content import call, plain, result_content, sort
from ratchet.intake.spans.model import Kind, Span, decoded, metrics_of
from ratchet.intake.spans.otlp import Event, OtlpSpan

_MODEL_CALLS = {"chat", "generate_content", "text_completion", "completion", "message", "responses"}
_AGENTS = {"invoke_agent", "create_agent", "invoke_workflow"}
_OTHER = {"embeddings", "retrieval", "execute_tool", *_AGENTS}
_KINDS: dict[str, Kind] = {"tool": "tool", "agent": "agent", "workflow": "agent", "task": "other"}
_ROLE_EVENTS = {f"gen_ai.{role}.message": role for role in ("system", "user", "assistant", "tool")}
_DETAILS = ("gen_ai.client.inference.operation.details", "event.gen_ai.client.inference.operation.details")
_EVENTS = {*_ROLE_EVENTS, "gen_ai.choice", "gen_ai.content.prompt", "gen_ai.content.completion", *_DETAILS}
_MESSAGES = (
    "gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.prompt", "gen_ai.completion", "llm.prompts",
    "llm.completions",
)  # fmt: skip
_CONTENT = (
    "gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions", "gen_ai.tool.definitions",
    "gen_ai.prompt", "gen_ai.completion", "llm.prompts", "llm.completions", "llm.request.functions",
)  # fmt: skip
_USED = (
    "gen_ai.conversation.id", "gen_ai.agent.name", "gen_ai.agent.version", "gen_ai.usage",
    "gen_ai.tool.name", "gen_ai.tool.call", "gen_ai.response.model", "llm.usage", "ratchet",
)  # fmt: skip


def is_genai(found: OtlpSpan) -> bool:
    """Whether the span, one of its events or its scope carries attributes of these conventions."""
    prefixes = ("gen_ai.", "traceloop.", "llm.prompts.", "llm.completions.", "llm.request.type")
    keys = [*found.attributes, *(event.name for event in found.events)]
    keys += [key for event in found.events for key in event.attributes]
    return any(key.startswith(prefixes) for key in keys)


def unfolded(found: OtlpSpan) -> OtlpSpan:
    """Return the span with the events that some instrumentations fold into one attribute, `events`, unfolded again."""
    listed = decoded(found.attributes.get("events"))
    if not (
        isinstance(listed, list) and listed and all(isinstance(one, dict) and "event.name" in one for one in listed)
    ):
        return found
    events = [Event(str(one["event.name"]), None, {}, body=one) for one in listed]
    rest = {key: value for key, value in found.attributes.items() if key != "events"}
    return replace(found, attributes=rest, events=[*found.events, *events])


def speaks(found: OtlpSpan) -> bool:
    """Whether these conventions, in any generation, give the span messages."""
    names = [*found.attributes, *(event.name for event in found.events)]
    return any(name.startswith(_MESSAGES) or name in _EVENTS for name in names)


def span_of(found: OtlpSpan) -> Span:
    """Return what a span says; `broken` says why where its messages have no reading."""
    about = found.attributes
    span = Span(
        trace=found.trace,
        id=found.id,
        parent=found.parent,
        name=found.name,
        kind=_kind(found),
        raw=found.raw,
        offset=found.offset,
        started=found.started,
        ended=found.ended,
        conversation=_text(
            about, "gen_ai.conversation.id", "session.id", "traceloop.association.properties.session_id"
        ),
        agent=_agent(found),
        model=_text(about, "gen_ai.response.model", "gen_ai.request.model", "llm.request.model"),
        metrics=_metrics(about),
        resource=found.resource,
        claims=nested(taken_below(about, "ratchet")),
        anomalies=list(found.anomalies),
    )
    rest = taken(about, *_USED)
    if rest.get("gen_ai.request.model") == span.model:
        rest.pop("gen_ai.request.model", None)
    vercel_kind = vercel.kind_of(about)
    try:
        if vercel_kind is not None and not speaks(found):
            rest = taken(rest, *vercel.USED, *(vercel.CONTENT if vercel_kind != "other" else ()))
            vercel.fill(span, about)
        elif span.kind == "tool":
            _tool(span, found, rest)
        elif span.kind in ("llm", "agent"):
            rest = taken(rest, *_CONTENT)
            _messages(span, found)
        if span.kind == "agent" and (span.inputs or span.choices):
            span.dropped.append("messages")
    except Unreadable as error:
        span.broken = error
    _rest(span, found, rest)
    return span


def taken_below(attributes: dict[str, Any], prefix: str) -> dict[str, Any]:
    """Return the attributes below a prefix, without it."""
    return {key[len(prefix) + 1 :]: value for key, value in attributes.items() if key.startswith(f"{prefix}.")}


def _kind(found: OtlpSpan) -> Kind:
    about = found.attributes
    own = vercel.kind_of(about)
    if own is not None:
        return own
    operation = _text(about, "gen_ai.operation.name")
    if operation == "execute_tool":
        return "tool"
    if operation in _AGENTS:
        return "agent"
    loop = about.get("traceloop.span.kind")
    if isinstance(loop, str) and loop in _KINDS:
        return _KINDS[loop]
    if operation in _MODEL_CALLS or _text(about, "llm.request.type") in ("chat", "completion"):
        return "llm"
    if operation in _OTHER:
        return "other"
    return "llm" if speaks(found) or "gen_ai.request.model" in about or found.name in _DETAILS else "other"


def _messages(span: Span, found: OtlpSpan) -> None:
    """Read the history and the answers, from the newest generation that the span has."""
    about = dict(found.attributes)
    for event in found.events:
        if event.name in _DETAILS:
            about |= {key: value for key, value in event.attributes.items() if key.startswith(_CONTENT)}
            span.model = span.model or _text(event.attributes, "gen_ai.response.model", "gen_ai.request.model")
            span.metrics = span.metrics or _metrics(event.attributes)
            span.conversation = span.conversation or _text(event.attributes, "gen_ai.conversation.id")
    if "gen_ai.input.messages" in about or "gen_ai.output.messages" in about:
        span.inputs = _listed(about, "gen_ai.input.messages", "user")
        answers = _sound(about, "gen_ai.output.messages")
        listed = answers if isinstance(answers, list) else [answers]
        span.choices = [said for one in listed if (said := messages_of([one], "assistant"))]
        instructions = _sound(about, "gen_ai.system_instructions")
        if instructions and not (span.inputs and span.inputs[0]["role"] == "system"):
            content = plain(sort(instructions).content) if isinstance(instructions, list) else instructions
            span.inputs = [*messages_of([{"role": "system", "content": content}], "system"), *span.inputs]
    else:
        inputs, choices = _from_events(found.events)
        flat = _flattened(about) if not (inputs or choices) else ([], [])
        span.inputs, span.choices = inputs or flat[0], choices or flat[1]
    span.tools = _tools(about)


def _sound(about: dict[str, Any], key: str) -> Any:
    """Return the value of an attribute that holds JSON, as a string or structured."""
    value = about.get(key)
    inner = decoded(value)
    if isinstance(value, str) and isinstance(inner, str) and value.lstrip()[:1] in ("[", "{"):
        raise Unreadable("bad_messages", f"{key} holds no sound JSON")
    return inner


def _listed(about: dict[str, Any], key: str, role: str) -> list[dict[str, Any]]:
    return messages_of(_sound(about, key), role)


def _from_events(events: list[Event]) -> tuple[list[dict[str, Any]], list[list[dict[str, Any]]]]:
    inputs: list[dict[str, Any]] = []
    choices: list[tuple[Any, list[dict[str, Any]]]] = []
    for event in events:
        body = _body(event)
        if event.name in _ROLE_EVENTS:
            inputs += _said(body, _ROLE_EVENTS[event.name])
        elif event.name == "gen_ai.choice":
            inner = decoded(body.get("message", body))
            said = _said(inner if isinstance(inner, dict) else {"content": inner}, "assistant")
            if said and isinstance(body.get("finish_reason"), str):
                said = [*said[:-1], {"finish_reason": body["finish_reason"], **said[-1]}]
            if said:
                choices.append((body.get("index"), said))
        elif event.name == "gen_ai.content.prompt":
            inputs += messages_of(body.get("gen_ai.prompt"), "user")
        elif event.name == "gen_ai.content.completion":
            choices.append((None, messages_of(body.get("gen_ai.completion"), "assistant")))
    choices.sort(key=lambda pair: pair[0] if isinstance(pair[0], int) else 0)
    return inputs, [said for _, said in choices if said]


def _body(event: Event) -> dict[str, Any]:
    """Return what an event says: its body, else its attributes, which may hold all of it as one string."""
    whole = decoded(event.attributes.get("gen_ai.event.content"))
    for found in (event.body, whole):
        if isinstance(found, dict):
            return found
        if isinstance(found, str) and found:
            return {"content": found}
    return {key: value for key, value in event.attributes.items() if key not in ("gen_ai.system", "event.name")}


def _said(body: dict[str, Any], role: str) -> list[dict[str, Any]]:
    """Return the messages of an event; the content of one may be a JSON list of parts."""
    known = {"role", "content", "tool_calls", "id", "name", "finish_reason"}
    message = {key: decoded(value) if key == "tool_calls" else value for key, value in body.items() if key in known}
    parts = decoded(body.get("content"))
    if isinstance(parts, list) and parts and all(isinstance(part, dict) for part in parts):
        message["content"] = parts
    message.setdefault("role", role)
    message.setdefault("content", None)
    if role == "tool" and message.get("id"):
        message["tool_call_id"] = message.pop("id")
    return messages_of([message], role)


def _flattened(about: dict[str, Any]) -> tuple[list[dict[str, Any]], list[list[dict[str, Any]]]]:
    chosen = {key: value for key, value in about.items() if key.startswith(_CONTENT)}
    tree = nested(chosen)
    gen, llm = tree.get("gen_ai") or {}, tree.get("llm") or {}
    prompts, completions = gen.get("prompt") or llm.get("prompts"), gen.get("completion") or llm.get("completions")
    inputs = _entries(prompts, "user")
    answers = completions if isinstance(completions, list) else [completions]
    return inputs, [said for one in answers if (said := _entries([one], "assistant"))]


def _entries(entries: Any, role: str) -> list[dict[str, Any]]:
    """Return the messages of flattened entries, whose calls have `name` and `arguments` at one level."""
    if not isinstance(entries, list):
        return messages_of(entries, role)
    result = []
    for entry in entries:
        if not isinstance(entry, dict):
            result += messages_of(entry, role)
            continue
        message: dict[str, Any] = {"role": role, "content": None, **entry}
        parts = decoded(message["content"])
        if isinstance(parts, list) and parts and all(isinstance(part, dict) and "type" in part for part in parts):
            message["content"] = parts
        legacy = message.get("function_call")
        if isinstance(legacy, dict) and "tool_calls" not in message:
            message["tool_calls"] = [call(None, legacy.get("name"), legacy.get("arguments"))]
            del message["function_call"]
        result += messages_of([message], role)
    return result


def _tools(about: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the tool schemas. Raises Unreadable where they are no objects."""
    given = _sound(about, "gen_ai.tool.definitions")
    if given is None:
        functions = nested({key: value for key, value in about.items() if key.startswith("llm.request.functions.")})
        listed = ((functions.get("llm") or {}).get("request") or {}).get("functions") or []
        entries = listed if isinstance(listed, list) else []
        given = [{key: decoded(value) for key, value in one.items()} for one in entries if isinstance(one, dict)]
    given = [decoded(one) for one in given] if isinstance(given, list) else given
    if not (isinstance(given, list) and all(isinstance(one, dict) for one in given)):
        raise Unreadable("bad_tools", "tool definitions must be an array of objects")
    return given


def _tool(span: Span, found: OtlpSpan, rest: dict[str, Any]) -> None:
    about = found.attributes
    span.tool = _text(about, "gen_ai.tool.name", "traceloop.entity.name") or found.name.removeprefix("execute_tool ")
    span.call_id = _text(about, "gen_ai.tool.call.id")
    span.arguments = about.get("gen_ai.tool.call.arguments")
    span.result = about.get("gen_ai.tool.call.result")
    if span.arguments is None and span.result is None:
        given = decoded(about.get("traceloop.entity.input"))
        span.arguments = given["inputs"] if isinstance(given, dict) and set(given) >= {"inputs"} else given
        span.result = about.get("traceloop.entity.output")
        for key in ("traceloop.entity.input", "traceloop.entity.output"):
            rest.pop(key, None)
    for event in found.events:
        body = _body(event)
        if event.name == "gen_ai.tool.message" and span.arguments is None:
            span.arguments = decoded(body.get("content"))
            span.call_id = span.call_id or _text(body, "id")
        elif event.name == "gen_ai.choice" and span.result is None:
            parts = decoded(body.get("message"))
            span.result = plain(sort(parts).content) if isinstance(parts, list) else body.get("message")
    span.result = result_content(decoded(span.result) if isinstance(span.result, dict) else span.result)


def _agent(found: OtlpSpan) -> dict[str, str]:
    about = found.attributes
    given = {
        "name": _text(about, "gen_ai.agent.name", "traceloop.workflow.name"),
        "version": _text(about, "gen_ai.agent.version"),
    }
    return {key: value for key, value in given.items() if value}


def _metrics(about: dict[str, Any]) -> dict[str, Any]:
    usage = {**taken_below(about, "llm.usage"), **taken_below(about, "gen_ai.usage")}
    known = {
        "prompt_tokens": ("input_tokens", "prompt_tokens"),
        "completion_tokens": ("output_tokens", "completion_tokens"),
        "cached_tokens": ("cache_read.input_tokens", "cache_read_input_tokens", "input_tokens.cached"),
        "cost_usd": ("cost", "total_cost"),
    }
    values = {}
    for field, names in known.items():
        values[field] = next((usage[name] for name in names if usage.get(name) is not None), None)
        for name in names:
            usage.pop(name, None)
    return metrics_of(values, usage)


def _rest(span: Span, found: OtlpSpan, attributes: dict[str, Any]) -> None:
    """Keep what is left, and count what repeats the messages of other spans."""
    spoken = [event.name for event in found.events if event.name.startswith("gen_ai.") and event.at]
    span.dropped += [f"events.{name}" if span.kind == "other" else "events.at" for name in spoken]
    attributes = without_messages(attributes, span.dropped)
    about = {"attributes": attributes, "status": found.status, "status_message": found.message, "scope": found.scope}
    about["otlp"] = found.rest
    span.rest = {key: value for key, value in about.items() if value}
    events = [event for event in found.events if not event.name.startswith("gen_ai.")]
    if events:
        span.rest["events"] = [{"name": one.name, "at": one.at, "attributes": one.attributes} for one in events]


def _text(about: dict[str, Any], *keys: str) -> str | None:
    return next((about[key] for key in keys if isinstance(about.get(key), str) and about[key]), None)
