"""ATIF 1.0-1.8: JSON documents, arrays of them, and JSON Lines of them.

Everything in a document is kept. The stored form is v1.8, of which the older versions are subsets; an older document
keeps its version in `extra.atif_version`. Ratchet's metadata is read from `extra.ratchet`. Nothing is dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ratchet.contracts.canonical import digest
from ratchet.contracts.trajectory import ATIF_VERSIONS
from ratchet.intake.calls import Calls
from ratchet.intake.jsontext import values
from ratchet.intake.records import Record, Rejected, Unreadable
from ratchet.intake.sniff import roots

TITLE = "ATIF 1.0-1.8"
LINES = True
KEPT = "everything; `extra.ratchet` is read as Ratchet's own metadata"
DROPPED = "nothing"


def sniff(head: bytes, name: str) -> bool:
    """Whether a record states an ATIF version, or has the two fields that ATIF requires."""
    return any(
        keys.get("schema_version", "").startswith('"ATIF-v') or {"agent", "steps"} <= set(keys) for keys in roots(head)
    )


def read(data: bytes, source: str) -> Iterator[Record | Rejected]:
    """Yield one record per document."""
    for item in values(data):
        if isinstance(item, Rejected):
            yield item
            continue
        try:
            anomalies = list(item.anomalies)
            document = _document(item.value, anomalies)
            document, claims = _claims(document)
        except Unreadable as error:
            yield Rejected(item.number, item.offset, item.raw, error.code, error.reason)
            continue
        yield Record(item.number, item.offset, item.raw, document, claims, tuple(anomalies))


def _claims(document: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    extra = document.get("extra")
    if not isinstance(extra, dict) or "ratchet" not in extra:
        return document, {}
    claims = extra["ratchet"]
    if not isinstance(claims, dict):
        raise Unreadable("bad_metadata", "extra.ratchet must be an object")
    rest = {key: value for key, value in extra.items() if key != "ratchet"}
    return {**document, "extra": rest or None}, claims


def _document(value: dict[str, Any], anomalies: list[str]) -> dict[str, Any]:
    """Return the document in v1.8 with unique call ids; embedded trajectories too."""
    version = value.get("schema_version", "ATIF-v1.8")
    if version not in ATIF_VERSIONS:
        raise Unreadable("unknown_version", "schema_version must be ATIF-v1.0 to ATIF-v1.8")
    document = {**value, "schema_version": "ATIF-v1.8"}
    if version != "ATIF-v1.8":
        document["extra"] = {**_mapping(value.get("extra"), "extra"), "atif_version": version}
    name = value.get("trajectory_id")
    calls = Calls(lambda: name if isinstance(name, str) and name else digest(value)[:12])
    document["steps"] = [_step(step, calls) for step in _list(value.get("steps"), "steps")]
    anomalies += calls.anomalies
    if value.get("subagent_trajectories") is not None:
        embedded = _list(value["subagent_trajectories"], "subagent_trajectories")
        document["subagent_trajectories"] = [
            _document(_mapping(item, "subagent_trajectories"), anomalies) for item in embedded
        ]
    return document


def _step(value: Any, calls: Calls) -> dict[str, Any]:
    step = dict(_mapping(value, "steps"))
    number = step.get("step_id")
    if type(number) is not int:
        raise Unreadable("not_atif", "steps: step_id must be an integer")
    if step.get("tool_calls") is not None:
        step["tool_calls"] = [
            _call(item, number, position, calls)
            for position, item in enumerate(_list(step["tool_calls"], "tool_calls"))
        ]
    observation = step.get("observation")
    if isinstance(observation, dict) and isinstance(observation.get("results"), list):
        results = [_result(item, number, calls) for item in observation["results"]]
        step["observation"] = {**observation, "results": results}
    return step


def _call(value: Any, step_id: int, position: int, calls: Calls) -> dict[str, Any]:
    call = dict(_mapping(value, "tool_calls"))
    call["tool_call_id"], kept = calls.issue(step_id, position, call.get("tool_call_id"), call.get("function_name"))
    return _with_extra(call, kept)


def _result(value: Any, step_id: int, calls: Calls) -> dict[str, Any]:
    result = dict(_mapping(value, "results"))
    given = result.get("source_call_id")
    if given is None:
        return result
    found = calls.answer(given, step_id=step_id)
    issued = found[1] if found else None
    result["source_call_id"] = issued
    return result if issued == given else _with_extra(result, {"original_call_id": given})


def _with_extra(item: dict[str, Any], kept: dict[str, Any]) -> dict[str, Any]:
    return {**item, "extra": {**_mapping(item.get("extra"), "extra"), **kept}} if kept else item


def _mapping(value: Any, where: str) -> dict[str, Any]:
    if value is None and where == "extra":
        return {}
    if not isinstance(value, dict):
        raise Unreadable("not_atif", f"{where} must hold objects")
    return value


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise Unreadable("not_atif", f"{where} must be an array")
    return value
