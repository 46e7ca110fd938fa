"""OpenInference spans: as OTLP/JSON, and as rows that Phoenix exported.

One trajectory per trace, or per session (`session.id`) whose traces continue each other. Rows come one a line, as an
array, or in a page of Phoenix's API (`data` with `next_cursor`); their attributes are nested, dotted, or columns of a
data frame. OTLP that holds attributes of the OpenTelemetry GenAI conventions as well belongs to `otel_genai`, which
reads both.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ratchet.intake.formats.otel_genai import MARKS as GENAI
from ratchet.intake.formats.otel_genai import is_otlp
from ratchet.intake.jsontext import Value
from ratchet.intake.records import Record, Rejected
from ratchet.intake.sniff import HEAD_BYTES, roots
from ratchet.intake.spans import openinference
from ratchet.intake.spans.assembly import records_of
from ratchet.intake.spans.model import Span
from ratchet.intake.spans.otlp import spans_of
from ratchet.intake.spans.pages import spans_in

TITLE = "OpenInference spans (OTLP/JSON; Phoenix rows, API pages and data frames as JSON)"
LINES = False
KEPT = (
    "messages, reasoning, calls, results, tools, model, usage, cost, times; sub-agents as embedded trajectories; "
    "every other span and attribute under `extra.openinference`"
)
DROPPED = (
    "`input.value` and `output.value` of model calls that have message attributes; histories that spans other than "
    "model calls repeat"
)
_MARKS = (b'"openinference.span.kind"', b'"llm.input_messages', b'"llm.output_messages')
_ROW = {"parent_id", "span_kind"}


def sniff(head: bytes, name: str) -> bool:
    """Whether it is OTLP with OpenInference attributes and none of the GenAI conventions, or has rows of Phoenix."""
    if is_otlp(head):
        return any(mark in head for mark in _MARKS) and not any(mark in head for mark in GENAI)
    found = roots(head)
    if any(set(keys) >= _ROW and {"context", "context.trace_id"} & set(keys) for keys in found):
        return True
    paged = any(keys.get("data", "").startswith("[") for keys in found)
    return paged and all(mark in head for mark in (b'"span_kind"', b'"trace_id"', b'"parent_id"'))


def read(data: bytes, source: str) -> Iterator[Record | Rejected]:
    """Yield one record per trace."""
    spans = _exported(data) if is_otlp(data[:HEAD_BYTES]) else spans_in(data, _page, _row)
    return records_of(spans, "openinference")


def _exported(data: bytes) -> Iterator[Span | Rejected]:
    for found in spans_of(data):
        yield found if isinstance(found, Rejected) else openinference.span_of(found)


def _page(value: dict[str, Any]) -> Any:
    return value.get("data") if "context" not in value else None


def _row(row: Any, raw: bytes, item: Value) -> list[Span]:
    return [openinference.row_of(row, raw, item)]
