"""From a record to a trajectory: the ATIF rules, and Ratchet's metadata under the tenant and grant of the ingest call.

Types are strict (the string "1" is no step id), as the ATIF schema has them. Beyond the models of
`contracts.trajectory` this checks what the ATIF specification adds: media types, steps without a model call, and the
identity of embedded trajectories.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator

from pydantic import ValidationError

from ratchet.contracts.trajectory import ContentPart, RatchetExtra, Step, Trajectory
from ratchet.intake.parts import AUDIO, IMAGES
from ratchet.intake.records import Record, Unreadable

MEDIA = {"image": IMAGES, "audio": tuple(f"audio/{kind}" for kind in AUDIO)}


def trajectory_of(record: Record, *, tenant: str, grant_id: str) -> Trajectory:
    """Build the canonical trajectory of a record.

    Raises:
        Unreadable: it is no valid ATIF, its metadata is wrong, or it claims another tenant or grant.
    """
    for field, own in (("tenant", tenant), ("grant_id", grant_id)):
        if record.claims.get(field, own) != own:
            raise Unreadable(f"foreign_{field}", f"it claims another {field} than the one it is ingested under")
    earlier = record.claims.get("anomalies", [])
    # What is no list of texts is left as it is, to be refused.
    sound = isinstance(earlier, list) and all(isinstance(item, str) for item in earlier)
    found = sorted({*record.anomalies, *earlier}) if sound else earlier
    claims = {**record.claims, "tenant": tenant, "grant_id": grant_id, "anomalies": found}
    try:
        extra = RatchetExtra.model_validate_json(json.dumps(claims), strict=True)
    except ValidationError as error:
        raise Unreadable("bad_metadata", f"its Ratchet metadata is wrong: {_where(error)}") from None
    if max(extra.calls or 0, extra.ok_calls or 0) >= 2**63:
        raise Unreadable("bad_metadata", "its Ratchet metadata is wrong: a count of calls exceeds 64 bits")
    document, other = record.document, record.document.get("extra")
    if other is None or isinstance(other, dict):
        document = {**document, "extra": {**(other or {}), "ratchet": extra.model_dump(mode="json")}}
    try:
        trajectory = Trajectory.model_validate(document, strict=True)
    except ValidationError as error:
        raise Unreadable("not_atif", f"it is no valid ATIF trajectory: {_where(error)}") from None
    for mistake in mistakes(trajectory):
        raise Unreadable("not_atif", f"it is no valid ATIF trajectory: {mistake}")
    return trajectory


def mistakes(trajectory: Trajectory) -> Iterator[str]:
    """Yield what breaks the ATIF specification beyond the types of its fields, embedded trajectories included."""
    for step in trajectory.steps:
        yield from _step_mistakes(step)
    if trajectory.final_metrics and not _finite(trajectory.final_metrics.total_cost_usd):
        yield "the total cost is not finite"
    embedded = trajectory.subagent_trajectories or []
    names = [item.trajectory_id for item in embedded]
    if None in names or len(set(names)) != len(names):
        yield "embedded trajectories need a trajectory_id of their own"
    for item in embedded:
        yield from mistakes(item)


def _step_mistakes(step: Step) -> Iterator[str]:
    where = f"step {step.step_id}"
    contents = [result.content for result in step.observation.results] if step.observation else []
    for content in (step.message, *contents):
        if isinstance(content, list) and not all(_media_fits(part) for part in content):
            yield f"{where}: the media type does not fit the part"
    if step.metrics is not None and not _finite(step.metrics.cost_usd, *(step.metrics.logprobs or ())):
        yield f"{where}: a metric is not finite"
    if step.source != "agent" and (step.tool_calls or step.reasoning_content is not None or step.metrics is not None):
        yield f"{where}: only an agent's step may have calls, reasoning and metrics"
    without_model = step.source == "agent" and step.llm_call_count == 0
    if without_model and (step.metrics is not None or step.reasoning_content is not None):
        yield f"{where}: a step without a model call has neither metrics nor reasoning"


def _finite(*values: float | None) -> bool:
    return all(value is None or math.isfinite(value) for value in values)


def _media_fits(part: ContentPart) -> bool:
    return part.source is None or part.source.media_type in MEDIA[part.type]


def _where(error: ValidationError) -> str:
    """Name the first wrong field and its rule, without the value that was found there."""
    first = error.errors(include_input=False, include_url=False)[0]
    place = ".".join(str(item) for item in first["loc"]) or "document"
    rule = first["msg"].removeprefix("Value error, ")[:200]
    return f"{place}: {rule} (and {error.error_count() - 1} more)" if error.error_count() > 1 else f"{place}: {rule}"
