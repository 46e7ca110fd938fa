"""LangSmith exports: runs as JSON Lines, arrays, pages (`runs`), or trees (`child_runs`).

One trajectory per trace, or per thread (`thread_id`, `session_id` or `conversation_id` of a run's metadata, as
LangSmith itself groups them; a run's own `session_id` is its project) whose traces continue each other. Messages are
read in every serialisation of LangChain, and as OpenAI and Anthropic have them. The place of a run without `trace_id`
or `parent_run_id` is read from its `dotted_order`, or from the tree that it stands in.

Source: langchain-ai/langsmith-sdk, python/langsmith/schemas.py; LangSmith docs, "Run (span) data format".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ratchet.intake.jsontext import Value
from ratchet.intake.records import Record, Rejected, Unreadable
from ratchet.intake.sniff import roots
from ratchet.intake.spans.assembly import records_of
from ratchet.intake.spans.chat import alternatives_of, beside_messages, messages_of, without_messages
from ratchet.intake.spans.content import result_content
from ratchet.intake.spans.model import Kind, Span, decoded, instant, metrics_of, name_or_none
from ratchet.intake.spans.openinference import tool_answer
from ratchet.intake.spans.pages import spans_in

TITLE = "LangSmith exports (runs, pages of runs, trees of runs)"
LINES = False
KEPT = (
    "messages, reasoning, calls, results, tools, model, usage, cost, times, errors, thread; "
    "every other run, and every other field of a run, under `extra.langsmith`"
)
DROPPED = (
    "`inputs` and `outputs` of runs other than model calls and tools, where they hold messages; `serialized`, "
    "`events`, `dotted_order`, `child_run_ids`, `parent_run_ids` and previews of `inputs` and `outputs`"
)
_KINDS: dict[str, Kind] = {"llm": "llm", "chat_model": "llm", "tool": "tool"}
_THREADS = ("thread_id", "session_id", "conversation_id")
_DROPPED = (
    "serialized", "events", "child_run_ids", "direct_child_run_ids", "parent_run_ids", "inputs_preview",
    "outputs_preview", "manifest", "app_path",
)  # fmt: skip
_USED = (
    "id", "trace_id", "parent_run_id", "name", "run_type", "start_time", "end_time", "inputs", "outputs", "child_runs",
    "dotted_order", "extra", "prompt_tokens", "completion_tokens", "total_tokens", "total_cost",
)  # fmt: skip
_EMPTY: tuple[Any, ...] = (None, "", [], {})


def sniff(head: bytes, name: str) -> bool:
    """Whether it has runs, or a page of them."""
    found = roots(head)
    if any("run_type" in keys and "id" in keys and {"inputs", "dotted_order"} & set(keys) for keys in found):
        return True
    return b'"run_type"' in head and any(keys.get("runs", "").startswith("[") for keys in found)


def read(data: bytes, source: str) -> Iterator[Record | Rejected]:
    """Yield one record per trace."""
    return records_of(spans_in(data, _page, lambda run, raw, item: _tree(run, None, raw, item)), "langsmith")


def _page(value: dict[str, Any]) -> Any:
    return value.get("runs") if "run_type" not in value else None


def _tree(run: Any, above: Span | None, raw: bytes, item: Value) -> list[Span]:
    """Return a run and those below it."""
    span = _run(run, above, raw, item)
    children = run.get("child_runs") or []
    if not isinstance(children, list):
        raise Unreadable("bad_span", "child_runs must be an array")
    found = [span]
    for child in children:
        found += _tree(child, span, raw, item)
    return found


def _run(run: Any, above: Span | None, raw: bytes, item: Value) -> Span:
    if not isinstance(run, dict) or not (isinstance(run.get("id"), str) and run["id"]):
        raise Unreadable("bad_span", "a run must be an object with an id")
    order = [part.partition("Z")[2] for part in str(run.get("dotted_order") or "").split(".")]
    order = [part for part in order if part]
    parent = (
        name_or_none(run.get("parent_run_id"))
        or (above.id if above else None)
        or (order[-2] if len(order) > 1 else None)
    )
    trace = name_or_none(run.get("trace_id")) or (above.trace if above else None) or (order[0] if order else None)
    if trace is None and parent is not None:
        raise Unreadable("bad_span", "a run with a parent must say its trace: trace_id or dotted_order")
    extra = run["extra"] if isinstance(run.get("extra"), dict) else {}
    metadata = extra["metadata"] if isinstance(extra.get("metadata"), dict) else {}
    claims = metadata.get("ratchet")
    span = Span(
        trace=trace or run["id"],
        id=run["id"],
        parent=parent,
        name=str(run.get("name") or ""),
        kind=_KINDS.get(str(run.get("run_type")), "other"),
        raw=raw,
        offset=item.offset,
        started=instant(run.get("start_time")),
        ended=instant(run.get("end_time")),
        conversation=next((metadata[key] for key in _THREADS if isinstance(metadata.get(key), str)), None),
        agent={"name": metadata["lc_agent_name"]} if isinstance(metadata.get("lc_agent_name"), str) else {},
        claims=claims if isinstance(claims, dict) else {},
        anomalies=list(item.anomalies),
    )
    _keep(span, run, extra, metadata)
    try:
        _content(span, run, extra, metadata)
    except Unreadable as error:
        span.broken = error
    return span


def _keep(span: Span, run: dict[str, Any], extra: dict[str, Any], metadata: dict[str, Any]) -> None:
    kept = {key: value for key, value in run.items() if key not in _USED and key not in _DROPPED}
    span.dropped += [key for key in _DROPPED if not _empty(run.get(key))]
    kept["metadata"] = {key: value for key, value in metadata.items() if key != "ratchet"}
    kept["runtime"] = extra.get("runtime")
    known = ("metadata", "runtime", "invocation_params")
    kept["extra"] = {key: value for key, value in extra.items() if key not in known}
    if span.kind == "other":
        kept["run_type"] = run.get("run_type")
    span.rest = {key: value for key, value in kept.items() if not _empty(value)}
    if isinstance(span.rest.get("error"), str):
        span.rest["status_message"] = span.rest.pop("error")


def _content(span: Span, run: dict[str, Any], extra: dict[str, Any], metadata: dict[str, Any]) -> None:
    given, answer = decoded(run.get("inputs")), decoded(run.get("outputs"))
    if span.kind == "tool":
        _tool(span, given, answer)
        return
    span.inputs, span.choices = messages_of(_request(given), "user"), alternatives_of(_answer(answer), "assistant")
    if span.kind == "other":
        span.rest |= without_messages({"inputs": given, "outputs": answer}, span.dropped)
        span.rest = {key: value for key, value in span.rest.items() if not _empty(value)}
        return
    invocation = extra["invocation_params"] if isinstance(extra.get("invocation_params"), dict) else {}
    tools = invocation.get("tools") or (given.get("tools") if isinstance(given, dict) else None) or []
    if not (isinstance(tools, list) and all(isinstance(tool, dict) for tool in tools)):
        raise Unreadable("bad_tools", "tools must be an array of objects")
    span.tools = tools
    settings = {
        key: value for key, value in invocation.items() if key not in ("tools", "messages") and not _empty(value)
    }
    if settings:
        span.rest["invocation_params"] = settings
    named = [
        metadata.get("ls_model_name"),
        invocation.get("model"),
        invocation.get("model_name"),
        _field(given, "model"),
    ]
    span.model = next((name for name in named if isinstance(name, str) and name), None)
    span.metrics = _metrics(span, run, answer)
    about = {"request": beside_messages(given), "response": beside_messages(answer)}
    span.rest |= {key: value for key, value in about.items() if value}


def _request(given: Any) -> Any:
    """Return what a model was asked; `prompts` are what models before chat were."""
    if isinstance(given, dict):
        for key in ("prompts", "prompt"):
            if isinstance(given.get(key), str | list) and given[key] and "messages" not in given:
                return given[key]
    return given


def _answer(answer: Any) -> Any:
    """Return an answer without the bookkeeping beside it."""
    if isinstance(answer, dict) and "generations" not in answer:
        rest = {
            key: value for key, value in answer.items() if key not in ("usage_metadata", "llm_output", "run", "type")
        }
        return rest if "role" in answer or "content" not in answer else answer
    return answer


def _tool(span: Span, given: Any, answer: Any) -> None:
    span.tool = span.name
    inner = given.get("input") if isinstance(given, dict) and set(given) == {"input"} else given
    call = decoded(inner)
    if isinstance(call, dict) and call.get("type") == "tool_call" and "args" in call:
        span.call_id, inner = call.get("id"), call["args"]
    elif isinstance(call, dict):
        inner = call
    span.arguments = given if inner is None or (isinstance(inner, str) and not isinstance(call, dict)) else inner
    said = answer.get("output", answer) if isinstance(answer, dict) else answer
    said, span.call_id = tool_answer(said, span.call_id)
    named = [span.rest.get("extra", {}).get("tool_call_id"), span.rest.get("metadata", {}).get("tool_call_id")]
    span.call_id = span.call_id or next((name for name in named if isinstance(name, str)), None)
    span.result = result_content(said)


def _metrics(span: Span, run: dict[str, Any], answer: Any) -> dict[str, Any]:
    """Return usage from the run, from its answer, or from what the answer's message says."""
    stated = _object(_field(answer, "usage_metadata"))
    said = span.choices[0][-1] if span.choices else {}
    if not stated and "usage_metadata" in said:
        stated = _object(said["usage_metadata"])
        rest = {key: value for key, value in said.items() if key != "usage_metadata"}
        span.choices[0] = [*span.choices[0][:-1], rest]
    old = _object(_object(_field(answer, "llm_output")).get("token_usage")) or _object(_field(answer, "usage"))
    details = _object(run.get("prompt_token_details")) or _object(stated.get("input_token_details"))

    def first(*values: Any) -> Any:
        return next((value for value in values if value is not None), None)

    values = {
        "prompt_tokens": first(run.get("prompt_tokens"), stated.get("input_tokens"), old.get("prompt_tokens")),
        "completion_tokens": first(
            run.get("completion_tokens"), stated.get("output_tokens"), old.get("completion_tokens")
        ),
        "cached_tokens": details.get("cache_read"),
        "cost_usd": first(run.get("total_cost"), stated.get("total_cost")),
    }
    total = first(run.get("total_tokens"), stated.get("total_tokens"), old.get("total_tokens"))
    other = {"total_tokens": total, "output_token_details": stated.get("output_token_details")}
    return metrics_of(values, other)


def _field(holder: Any, name: str) -> Any:
    return holder.get(name) if isinstance(holder, dict) else None


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _empty(value: Any) -> bool:
    return any(value == one and type(value) is type(one) for one in _EMPTY)
