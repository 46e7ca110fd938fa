"""OpenTelemetry GenAI spans as OTLP/JSON: an export to a file, an array of them, or one a line.

One trajectory per trace, or per conversation (`gen_ai.conversation.id`) whose traces continue each other. Every
generation of the semantic conventions is read (`ratchet.intake.spans.genai`). A source that has both these attributes
and OpenInference's belongs here: its OpenInference spans are read as `openinference` reads them.
"""

from __future__ import annotations

from collections.abc import Iterator

from ratchet.intake.records import Record, Rejected
from ratchet.intake.sniff import roots
from ratchet.intake.spans import genai, openinference
from ratchet.intake.spans.assembly import records_of
from ratchet.intake.spans.model import Span
from ratchet.intake.spans.otlp import spans_of

TITLE = (
    "OpenTelemetry GenAI spans (OTLP/JSON; semantic conventions to 1.27, 1.28-1.36 and 1.37 and later; OpenLLMetry; "
    "Vercel AI SDK)"
)
LINES = False
KEPT = (
    "messages of attributes, events and log records; reasoning, calls, results, tools, model, usage, cost, times; "
    "sub-agents as embedded trajectories; every other span, attribute and event under `extra.otel_genai`"
)
DROPPED = "histories that spans other than model calls repeat; times and further attributes of events that are messages"
ROOTS = {"resourceSpans", "resource_spans", "resourceLogs", "resource_logs"}
"""Top-level fields of an OTLP export."""
MARKS = (
    b'"gen_ai.',
    b'"traceloop.',
    b'"llm.prompts.',
    b'"llm.completions.',
    b'"llm.request.type"',
    b'"ai.operationId"',
)


def sniff(head: bytes, name: str) -> bool:
    """Whether it is an OTLP export with attributes or events of the GenAI conventions."""
    return is_otlp(head) and any(mark in head for mark in MARKS)


def read(data: bytes, source: str) -> Iterator[Record | Rejected]:
    """Yield one record per trace."""
    return records_of(_spans(data), "otel_genai")


def is_otlp(head: bytes) -> bool:
    """Whether a record is an OTLP export."""
    return any(ROOTS & set(keys) for keys in roots(head))


def _spans(data: bytes) -> Iterator[Span | Rejected]:
    for found in spans_of(data):
        if isinstance(found, Rejected):
            yield found
            continue
        found = genai.unfolded(found)
        if openinference.is_openinference(found) and not genai.speaks(found):
            yield openinference.span_of(found)
        else:
            yield genai.span_of(found)
