"""Langfuse exports: traces with their observations, and tables of observations or traces.

Read: a trace of the API or of the trace view's download (`{"trace": {...}, "observations": [...]}` too), pages
(`data` with `meta`), sessions with traces, and rows of observations as the API, the table export and the blob storage
export write them, in camel or snake case, with `input` and `output` as JSON or as text of JSON. One trajectory per
trace, or per session whose traces continue each other. A row of the traces table alone gives one question and one
answer.

Source: langfuse/langfuse, fern/apis/server/definition/commons.yml; langfuse docs, "Blob Storage Export Field
Reference".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ratchet.intake.jsontext import Value
from ratchet.intake.messages import tools_of
from ratchet.intake.records import Record, Rejected, Unreadable
from ratchet.intake.sniff import roots
from ratchet.intake.spans.assembly import records_of
from ratchet.intake.spans.chat import alternatives_of, beside_messages, messages_of, without_messages
from ratchet.intake.spans.content import result_content
from ratchet.intake.spans.model import Kind, Span, decoded, instant, metrics_of, name_or_none
from ratchet.intake.spans.openinference import tool_answer
from ratchet.intake.spans.pages import spans_in

TITLE = "Langfuse exports (traces with observations; pages; rows of observations or traces)"
LINES = False
KEPT = (
    "messages, reasoning, calls, results, tools, model, usage, cost, times, session; sub-agents as embedded "
    "trajectories; scores, metadata and every other field of a trace or observation under `extra.langfuse`"
)
DROPPED = (
    "`input` and `output` of a trace and of observations other than generations and tools, where they hold messages; "
    "`level` where it is the default; fields of a page or session around its traces"
)
_KINDS: dict[str, Kind] = {"GENERATION": "llm", "TOOL": "tool", "AGENT": "agent"}
_TYPES = (
    "SPAN", "GENERATION", "EVENT", "AGENT", "TOOL", "CHAIN", "RETRIEVER", "EVALUATOR", "EMBEDDING", "GUARDRAIL",
)  # fmt: skip
_TABLE = (
    {"timestamp", "input", "output", "sessionId", "userId"},
    {"timestamp", "input", "output", "session_id", "user_id"},
)
"""What the rows of a traces table have."""
_USAGE = (
    "usage",
    "usageDetails",
    "promptTokens",
    "completionTokens",
    "totalTokens",
    "inputUsage",
    "outputUsage",
    "totalUsage",
)
_COST = (
    "costDetails", "calculatedTotalCost", "calculatedInputCost", "calculatedOutputCost", "totalCost", "inputCost",
    "outputCost",
)  # fmt: skip


def sniff(head: bytes, name: str) -> bool:
    """Whether it has traces with observations, or rows of observations or of a traces table."""
    found = roots(head)
    if any(_is_trace(keys) or _is_observation(keys) or any(table <= set(keys) for table in _TABLE) for keys in found):
        return True
    paged = any(keys.get("data", "").startswith("[") and "meta" in keys for keys in found)
    paged = paged or any(keys.get("traces", "").startswith("[") for keys in found)
    return paged and any(mark in head for mark in (b'"observations"', b'"parentObservationId"', b'"htmlPath"'))


def read(data: bytes, source: str) -> Iterator[Record | Rejected]:
    """Yield one record per trace."""
    return records_of(spans_in(data, _page, _entry), "langfuse")


def _is_trace(keys: dict[str, str]) -> bool:
    wrapped = keys.get("trace", "").startswith("{")
    return keys.get("observations", "").startswith("[") and (wrapped or {"id", "timestamp"} <= set(keys))


def _is_observation(keys: dict[str, str]) -> bool:
    kind = keys.get("type", "").strip('", ').partition('"')[0]
    trace, start = {"traceId", "trace_id"} & set(keys), {"startTime", "start_time"} & set(keys)
    return bool(trace and start) and kind in _TYPES and "id" in keys


def _page(value: dict[str, Any]) -> Any:
    """Return the traces and observations of a value that is a page or a session of them."""
    holders = ("data", "traces") if "observations" not in value else ()
    return next((value[holder] for holder in holders if isinstance(value.get(holder), list)), None)


def _entry(entry: Any, raw: bytes, item: Value) -> list[Span]:
    if not isinstance(entry, dict):
        raise Unreadable("bad_span", "a trace or observation must be an object")
    inner = entry.get("trace")
    if isinstance(inner, dict):
        entry = {**inner, **{key: value for key, value in entry.items() if key != "trace"}}
    about = {_camel(key): value for key, value in entry.items()}
    if "traceId" in about and about.get("type") in _TYPES:
        return [_observation(about, raw, item)]
    return _trace(about, raw, item)


def _trace(about: dict[str, Any], raw: bytes, item: Value) -> list[Span]:
    """Return a trace as a span above its observations."""
    name = about.get("id")
    if not (isinstance(name, str) and name):
        raise Unreadable("bad_span", "a trace must have an id")
    listed = about.get("observations")
    # The traces table and the list of traces have the ids of observations, or their number.
    rows = [one for one in listed if not isinstance(one, str)] if isinstance(listed, list) else []
    if not all(isinstance(one, dict) for one in rows):
        raise Unreadable("bad_span", "observations must be objects")
    rows = [{_camel(key): value for key, value in one.items()} for one in rows]
    rest = {
        key: value for key, value in about.items() if key not in ("observations", "id", "timestamp", "input", "output")
    }
    span = _span(about, name, f"trace:{name}", None, "other", raw, item)
    span.started = instant(about.get("timestamp"))
    span.metrics = metrics_of({"cost_usd": rest.pop("totalCost", None)}, {})
    _spoken(span, about, rest)
    # A parent of observations without one; with it, the trace is whole by itself.
    observations = [
        _observation({"traceId": name, "sessionId": about.get("sessionId"), **row}, raw, item) for row in rows
    ]
    for one in observations:
        one.parent = one.parent or span.id
    return [span, *observations]


def _observation(about: dict[str, Any], raw: bytes, item: Value) -> Span:
    trace, name = about.get("traceId"), about.get("id")
    if not (isinstance(trace, str) and trace and isinstance(name, str) and name):
        raise Unreadable("bad_span", "an observation must have an id and a traceId")
    kind = _KINDS.get(str(about.get("type")), "other")
    span = _span(about, trace, name, name_or_none(about.get("parentObservationId")), kind, raw, item)
    span.started = instant(about.get("startTime"))
    span.ended = instant(about.get("endTime"))
    given = [about.get(key) for key in ("model", "providedModelName", "internalModel", "internalModelId")]
    span.model = next((one for one in given if isinstance(one, str) and one), None)
    span.metrics = _metrics(about) if kind == "llm" else {}
    known = (
        "traceId",
        "id",
        "parentObservationId",
        "startTime",
        "endTime",
        "name",
        "input",
        "output",
        "sessionId",
        "model",
    )
    used = {
        *known,
        "providedModelName",
        *(_USAGE + _COST if kind == "llm" else ()),
        *(("type",) if kind != "other" else ()),
    }
    rest = {key: value for key, value in about.items() if key not in used}
    if about.get("level") in ("DEFAULT", "DEBUG"):
        rest.pop("level")
    try:
        _spoken(span, about, rest)
    except Unreadable as error:
        span.broken = error
    return span


def _span(
    about: dict[str, Any], trace: str, name: str, parent: str | None, kind: Kind, raw: bytes, item: Value
) -> Span:
    session, metadata = about.get("sessionId"), decoded(about.get("metadata"))
    claims = metadata.get("ratchet") if isinstance(metadata, dict) else None
    return Span(
        trace=trace,
        id=name,
        parent=parent,
        name=str(about.get("name") or ""),
        kind=kind,
        raw=raw,
        offset=item.offset,
        conversation=session if isinstance(session, str) and session else None,
        agent={"name": str(about["name"])} if kind == "agent" and about.get("name") else {},
        claims=claims if isinstance(claims, dict) else {},
        anomalies=list(item.anomalies),
    )


def _spoken(span: Span, about: dict[str, Any], rest: dict[str, Any]) -> None:
    """Read what went in and came out. Raises Unreadable."""
    given, answer = decoded(about.get("input")), decoded(about.get("output"))
    if span.kind == "tool":
        span.tool, span.arguments = span.name, given
        answer, span.call_id = tool_answer(about.get("output"), None)
        span.result = result_content(answer)
    else:
        span.inputs, span.choices = messages_of(given, "user"), alternatives_of(answer, "assistant")
    if span.kind == "llm":
        span.tools = _tools(given, rest, span.anomalies)
        rest |= {"request": beside_messages(given), "response": beside_messages(answer)}
        _calls_of_columns(span, rest)
    elif span.kind != "tool":
        both = {"input": about.get("input"), "output": about.get("output")}
        rest |= without_messages(both, span.dropped)
        span.dropped = [name for name in span.dropped if both[name] is not None]
    metadata = decoded(rest.get("metadata"))
    if isinstance(metadata, dict):
        rest["metadata"] = {key: value for key, value in metadata.items() if key != "ratchet"}
    empty: tuple[Any, ...] = (None, "", [], {})
    span.rest = {key: value for key, value in rest.items() if not any(value == one for one in empty)}


def _tools(given: Any, rest: dict[str, Any], anomalies: list[str]) -> list[dict[str, Any]]:
    """Return the tools of a request, or of the column that later versions have for them, by name."""
    if isinstance(given, dict) and given.get("tools"):
        return tools_of({"tools": given["tools"]}, anomalies) or []
    column = decoded(rest.get("toolDefinitions"))
    if not isinstance(column, dict) or not column:
        return []
    del rest["toolDefinitions"]
    schemas = {name: decoded(schema) for name, schema in column.items()}
    return [
        {"type": "function", "function": {**(schema if isinstance(schema, dict) else {"schema": schema}), "name": name}}
        for name, schema in schemas.items()
    ]


def _calls_of_columns(span: Span, rest: dict[str, Any]) -> None:
    """Take the calls from their column where the answer itself has none."""
    listed, _ = rest.pop("toolCalls", None), rest.pop("toolCallNames", None)
    listed = decoded(listed)
    if not isinstance(listed, list) or not listed:
        return
    if not span.choices:
        span.choices = [[{"role": "assistant", "content": ""}]]
    last = span.choices[0][-1]
    if last["role"] == "assistant" and not last.get("tool_calls"):
        made = messages_of([{"role": "assistant", "content": "", "tool_calls": listed}], "assistant")
        span.choices[0] = [*span.choices[0][:-1], {**last, "tool_calls": made[0]["tool_calls"]}]


def _metrics(about: dict[str, Any]) -> dict[str, Any]:
    """Return usage and cost from whichever of the versions' fields is filled."""
    usage, details = _object(about.get("usage")), _object(about.get("usageDetails"))
    costs = _object(about.get("costDetails"))

    def first(*values: Any) -> Any:
        return next((value for value in values if value is not None), None)

    cached = [details.get(key) for key in ("input_cached_tokens", "cache_read_input_tokens", "input_cache_read")]
    values = {
        "prompt_tokens": first(
            usage.get("input"), details.get("input"), about.get("promptTokens"), about.get("inputUsage")
        ),
        "completion_tokens": first(
            usage.get("output"), details.get("output"), about.get("completionTokens"), about.get("outputUsage")
        ),
        "cached_tokens": first(*cached),
        "cost_usd": first(
            about.get("calculatedTotalCost"), about.get("totalCost"), costs.get("total"), usage.get("totalCost")
        ),
    }
    known = ("input", "output", "input_cached_tokens", "cache_read_input_tokens", "input_cache_read")
    other = {f"usage.{key}": value for key, value in {**usage, **details}.items() if key not in known}
    other |= {f"cost.{key}": value for key, value in costs.items() if key != "total"}
    unit = other.get("usage.unit")
    if unit in ("TOKENS", ""):
        other.pop("usage.unit")
    return metrics_of(values, {key: value for key, value in other.items() if value is not None})


def _object(value: Any) -> dict[str, Any]:
    inner = decoded(value)
    return inner if isinstance(inner, dict) else {}


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(other[:1].upper() + other[1:] for other in others)
