"""From a record to the document that is stored: plain JSON, as the models of `contracts.trajectory` write it.

Nearly all documents have a plain shape: steps of text, calls and results. For these, what the models would find and
write is said here in a few comparisons, at a fifth of the cost. Whatever has another shape, a mistake in it too, goes
through the models (`validate.trajectory_of`), which alone refuse a record and say why.
"""

from __future__ import annotations

from typing import Any

from ratchet.contracts.trajectory import ATIF_VERSIONS, RatchetExtra
from ratchet.intake.records import Record
from ratchet.intake.validate import trajectory_of

_NO_CLAIMS = RatchetExtra(tenant="-", grant_id="-").model_dump(mode="json")
_TEXT_CLAIMS = {
    "task_id", "repo", "issue_id", "segment", "environment", "environment_version", "policy", "policy_digest", "source",
}  # fmt: skip
"""Fields of `RatchetExtra` that are any text."""
_TEXTS = ("session_id", "trajectory_id", "notes", "continued_trajectory_ref")
"""Fields of a document that are any text."""
_DOCUMENT = {"schema_version", "agent", "steps", "extra", *_TEXTS}
_AGENT = {"name", "version", "model_name", "tool_definitions"}
_RESULT = {"source_call_id", "content", "extra"}


def document_of(record: Record, *, tenant: str, grant_id: str) -> dict[str, Any]:
    """Return the document of a record as it is stored: its Ratchet fields in `extra.ratchet`, no field null.

    It shares with the record what it holds. Raises Unreadable as `validate.trajectory_of`.
    """
    plain = _plain(record.document, steps_are=record.plain)
    claims = _plain_claims(record.claims) if plain else None
    if plain is None or claims is None:
        return trajectory_of(record, tenant=tenant, grant_id=grant_id).model_dump(exclude_none=True)
    ratchet = {**claims, "tenant": tenant, "grant_id": grant_id, "anomalies": sorted(set(record.anomalies))}
    plain["extra"] = {**plain.get("extra", {}), "ratchet": ratchet}
    return plain


def _plain_claims(claims: dict[str, Any]) -> dict[str, Any] | None:
    """Return the Ratchet fields of a record that claims texts alone."""
    texts = claims.keys() <= _TEXT_CLAIMS and all(type(value) is str for value in claims.values())
    return {**_NO_CLAIMS, **claims} if texts else None


def _plain(document: dict[str, Any], *, steps_are: bool = False) -> dict[str, Any] | None:
    """Return a document of the plain shape without what is null in it, or None where it has another shape.

    `steps_are` says that its steps have that shape, with nothing null in them.
    """
    plain = {name: value for name, value in document.items() if value is not None}
    agent, steps = _agent(plain.get("agent")), plain.get("steps")
    if not document.keys() <= _DOCUMENT or agent is None or type(steps) is not list or not steps:
        return None
    if plain.get("schema_version") not in ATIF_VERSIONS or type(plain.get("extra", {})) is not dict:
        return None
    if not all(type(plain.get(name, "")) is str for name in _TEXTS):
        return None
    if steps_are:
        return {**plain, "agent": agent}
    known: set[str] = set()
    made = []
    for number, step in enumerate(steps, 1):
        of_plain_shape = _step(step, number, known)
        if of_plain_shape is None:
            return None
        made.append(of_plain_shape)
    return {**plain, "agent": agent, "steps": made}


def _agent(agent: Any) -> dict[str, Any] | None:
    if type(agent) is not dict or not agent.keys() <= _AGENT:
        return None
    plain = {name: value for name, value in agent.items() if value is not None}
    tools = plain.get("tool_definitions", [])
    if type(tools) is not list or not all(type(tool) is dict for tool in tools):
        return None
    texts = [plain.get("name"), plain.get("version"), plain.get("model_name", "")]
    return plain if all(type(text) is str for text in texts) else None


def _step(step: Any, number: int, known: set[str]) -> dict[str, Any] | None:
    """Return a step of the plain shape; the ids of its calls are added to those that are `known`."""
    if type(step) is not dict or type(step.get("message")) is not str:
        return None
    place, source = step.get("step_id"), step.get("source")
    if type(place) is not int or place != number or source not in ("system", "user", "agent"):
        return None
    # Fields that are not accounted for: most steps have no other than these three.
    left = len(step) - 3
    if left and "extra" in step:
        left -= type(step["extra"]) is dict
    if left and "timestamp" in step:
        left -= type(step["timestamp"]) is str
    if left and source == "agent":
        if "reasoning_content" in step:
            left -= type(step["reasoning_content"]) is str
        if "tool_calls" in step:
            left -= _are_calls(step["tool_calls"], known)
    if left and "observation" in step:
        observation = _observation(step["observation"], known)
        if observation is None:
            return None
        left -= 1
        if observation is not step["observation"]:
            step = {**step, "observation": observation}
    return None if left else step


def _are_calls(calls: Any, known: set[str]) -> bool:
    if type(calls) is not list:
        return False
    for call in calls:
        if type(call) is not dict or type(call.get("function_name")) is not str:
            return False
        name, extra = call.get("tool_call_id"), call.get("extra")
        if type(name) is not str or name in known or type(call.get("arguments")) is not dict:
            return False
        if len(call) != 3 + (type(extra) is dict):
            return False
        known.add(name)
    return True


def _observation(observation: Any, known: set[str]) -> dict[str, Any] | None:
    """Return an observation of the plain shape without what is null in it."""
    if type(observation) is not dict or len(observation) != 1 or type(observation.get("results")) is not list:
        return None
    nulls = 0
    for result in observation["results"]:
        if type(result) is not dict or not result.keys() <= _RESULT:
            return None
        content, call, extra = result.get("content"), result.get("source_call_id"), result.get("extra")
        if not (content is None or type(content) is str) or not (extra is None or type(extra) is dict):
            return None
        if call is not None and (type(call) is not str or call not in known):
            return None
        nulls += len(result) - (content is not None) - (call is not None) - (extra is not None)
    if not nulls:
        return observation
    kept = [{name: value for name, value in result.items() if value is not None} for result in observation["results"]]
    return {"results": kept}
