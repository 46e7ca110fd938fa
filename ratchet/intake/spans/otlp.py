"""OTLP/JSON: exports of spans and log records, one to a file, in an array or one a line.

Read as the protobuf JSON mapping and OpenTelemetry's own rules have it: ids as hexadecimal text of either case,
64-bit integers as strings or numbers, enumerations as numbers or names, field names in camel case (snake case is read
too), values as typed objects. A log record belongs to the span it names and becomes one of its events.

Source: opentelemetry-proto, docs/specification.md ("JSON Protobuf Encoding") and opentelemetry/proto/*/v1.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeGuard

from ratchet.intake.jsontext import Value, values
from ratchet.intake.records import Rejected, Unreadable
from ratchet.intake.spans.model import instant, nanoseconds

_KNOWN = {
    "traceId", "spanId", "parentSpanId", "name", "startTimeUnixNano", "endTimeUnixNano", "attributes", "events",
    "status",
}  # fmt: skip
_STATUS = {"1": "OK", "2": "ERROR", "STATUS_CODE_OK": "OK", "STATUS_CODE_ERROR": "ERROR"}


@dataclass
class Event:
    """A moment inside a span, or a log record about it."""

    name: str
    at: str | None
    attributes: dict[str, Any]
    body: Any = None


@dataclass
class OtlpSpan:
    """A span with plain values."""

    trace: str
    id: str
    parent: str | None
    name: str
    started: str | None
    ended: str | None
    status: str | None
    message: str | None
    attributes: dict[str, Any]
    events: list[Event]
    resource: dict[str, Any]
    scope: dict[str, Any]
    raw: bytes = field(repr=False)
    offset: int = 0
    anomalies: list[str] = field(default_factory=list)
    rest: dict[str, Any] = field(default_factory=dict)
    """Whatever else the span holds, as it stands there: kind, links, trace state, counts of what was cut."""


def spans_of(data: bytes) -> Iterator[OtlpSpan | Rejected]:
    """Yield every span of a source with its events, log records included, and what was rejected.

    A log record whose span is not in the source stands for it, with the anomaly `span_missing`.
    """
    spans: dict[tuple[str, str], list[OtlpSpan]] = {}
    logs: list[tuple[OtlpSpan, Event]] = []
    for item in values(data):
        if isinstance(item, Rejected):
            yield item
            continue
        try:
            leaves = list(_export(item))
        except Unreadable as error:
            yield Rejected(item.number, item.offset, item.raw, error.code, error.reason)
            continue
        for found in leaves:
            if isinstance(found, Rejected):
                yield found
            elif isinstance(found, tuple):
                logs.append(found)
            else:
                spans.setdefault((found.trace, found.id), []).append(found)
    for stand_in, event in logs:
        place = (stand_in.trace, stand_in.id)
        owners = spans.setdefault(place, [])
        if not owners:
            owners.append(stand_in)
            stand_in.anomalies.append("span_missing")
        for owner in owners:
            owner.events.append(event)
            if owner is not stand_in:
                owner.raw += b"\n" + stand_in.raw
    for owners in spans.values():
        for owner in owners:
            owner.events.sort(key=lambda event: nanoseconds(event.at))
            yield owner


def _export(item: Value) -> Iterator[OtlpSpan | tuple[OtlpSpan, Event] | Rejected]:
    """Yield the spans of one export, and its log records each with a span that stands for theirs."""
    found = False
    for signal, unit, leaves in (("Spans", "scope", "spans"), ("Logs", "scope", "logRecords")):
        for group in _objects(item.value, f"resource{signal}"):
            noted = list(item.anomalies)
            holder = _field(group, "resource")
            resource = _attributes(_field(holder, "attributes"), noted) if isinstance(holder, dict) else {}
            # Before OTLP 0.19 a scope was called an instrumentation library.
            for part in [*_objects(group, f"{unit}{signal}"), *_objects(group, f"instrumentationLibrary{signal}")]:
                about = _field(part, "scope") or _field(part, "instrumentationLibrary")
                scope = {key: value for key, value in about.items() if key in ("name", "version")} if _is(about) else {}
                for leaf in _list(part, leaves):
                    found = True
                    yield from _leaf(leaf, signal, resource, scope, item, noted)
    if not found:
        reason = "an OTLP export must hold spans or log records, under resourceSpans or resourceLogs"
        yield Rejected(item.number, item.offset, item.raw, "not_otlp", reason)


def _leaf(
    leaf: Any, signal: str, resource: dict[str, Any], scope: dict[str, Any], item: Value, noted: list[str]
) -> Iterator[OtlpSpan | tuple[OtlpSpan, Event] | Rejected]:
    raw = json.dumps({"resource": resource, "scope": scope, "leaf": leaf}, ensure_ascii=False).encode()
    trace, name = _identifier(_field(leaf, "traceId")), _identifier(_field(leaf, "spanId"))
    if not trace or not name:
        if signal == "Spans":
            yield Rejected(item.number, item.offset, raw, "bad_span", "a span must have a traceId and a spanId")
        else:
            yield Rejected(item.number, item.offset, raw, "log_without_span", "the log record names no span")
        return
    anomalies = list(noted)
    attributes = _attributes(_field(leaf, "attributes"), anomalies)
    status = _field(leaf, "status")
    span = OtlpSpan(
        trace=trace,
        id=name,
        parent=_identifier(_field(leaf, "parentSpanId")),
        name=str(_field(leaf, "name") or ""),
        started=instant(_field(leaf, "startTimeUnixNano")),
        ended=instant(_field(leaf, "endTimeUnixNano")),
        status=_STATUS.get(str(status.get("code"))) if _is(status) else None,
        message=str(status["message"]) if _is(status) and status.get("message") else None,
        attributes=attributes,
        events=[],
        resource=resource,
        scope=scope,
        raw=raw,
        offset=item.offset,
        anomalies=anomalies,
    )
    if signal == "Spans":
        span.events = [_event(event, anomalies) for event in _list(leaf, "events")]
        span.rest = {key: value for key, value in leaf.items() if _camel(key) not in _KNOWN and value}
        yield span
        return
    event_name = _field(leaf, "eventName") or attributes.get("event.name") or ""
    at = instant(_field(leaf, "timeUnixNano") or _field(leaf, "observedTimeUnixNano"))
    stand_in = OtlpSpan(
        trace, name, None, str(event_name), at, None, None, None, {}, [], resource, scope, raw, item.offset, anomalies
    )
    yield stand_in, Event(str(event_name), at, attributes, _value(_field(leaf, "body"), anomalies))


def _event(event: Any, anomalies: list[str]) -> Event:
    at = instant(_field(event, "timeUnixNano"))
    return Event(str(_field(event, "name") or ""), at, _attributes(_field(event, "attributes"), anomalies))


def _attributes(listed: Any, anomalies: list[str]) -> dict[str, Any]:
    """Return attributes by key; a key that occurs twice keeps its last value, as an anomaly."""
    if _is(listed):
        return dict(listed)
    result: dict[str, Any] = {}
    if listed is not None and not isinstance(listed, list):
        raise Unreadable("not_otlp", "attributes must be an array")
    for pair in listed or []:
        key = _field(pair, "key")
        if not isinstance(key, str):
            anomalies.append("bad_attribute")
            continue
        if key in result:
            anomalies.append("duplicate_attribute")
        result[key] = _value(_field(pair, "value"), anomalies)
    return result


def _value(typed: Any, anomalies: list[str]) -> Any:
    """Return the plain value of an AnyValue."""
    if not isinstance(typed, dict):
        return typed
    for key, value in typed.items():
        kind = _camel(key)
        if kind in ("stringValue", "boolValue", "bytesValue"):
            return value
        if kind == "intValue":
            try:
                return int(value)
            except (TypeError, ValueError):
                anomalies.append("bad_attribute")
                return value
        if kind == "doubleValue":
            return _double(value)
        if kind == "arrayValue":
            return [_value(one, anomalies) for one in _list(value, "values")]
        if kind == "kvlistValue":
            return _attributes(_field(value, "values"), anomalies)
    if typed:
        anomalies.append("bad_attribute")
        return typed
    return None


def _double(value: Any) -> Any:
    """Return a number; the mapping writes NaN and the infinities as strings, which they stay."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return value
    return number if math.isfinite(number) else str(value)


def _identifier(value: Any) -> str | None:
    """Return an id in lower case; one of zeros alone is the absence of one."""
    if not isinstance(value, str) or not value.strip("0"):
        return None
    return value.lower() if all(character in "0123456789abcdefABCDEF" for character in value) else value


def _field(holder: Any, name: str) -> Any:
    """Return a field by its JSON name or by the name it has in the protocol's definition."""
    if not isinstance(holder, dict):
        return None
    return holder[name] if name in holder else holder.get(_snake(name))


def _list(holder: Any, name: str) -> list[Any]:
    value = _field(holder, name)
    if value is not None and not isinstance(value, list):
        raise Unreadable("not_otlp", f"{name} must be an array")
    return value or []


def _objects(holder: Any, name: str) -> list[Any]:
    listed = _list(holder, name)
    if not all(map(_is, listed)):
        raise Unreadable("not_otlp", f"{name} must hold objects")
    return listed


def _is(value: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


@cache
def _snake(name: str) -> str:
    return "".join(f"_{character.lower()}" if character.isupper() else character for character in name)


@cache
def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(other.capitalize() for other in others)
