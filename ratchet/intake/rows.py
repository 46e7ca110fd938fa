"""Flat rows of trajectories: one per event, and one per trajectory for the index.

Free-form arguments are canonical JSON strings, never nested structs, so that two logs with other arguments have one
schema. Rows are for looking, filtering and joining; the document itself is in `trajectories/`.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from ratchet.contracts.canonical import canonical_json
from ratchet.contracts.score import Scored
from ratchet.contracts.trajectory import Trajectory, text_of

if TYPE_CHECKING:
    import pyarrow as pa

TRAJECTORY_COLUMNS = {"digest": "string", "document": "string"}
"""Columns of the trajectories: the document is canonical JSON, and its digest is that of the trajectory."""
QUARANTINE_COLUMNS = {
    "code": "string", "reason": "string", "source": "string", "number": "int64", "offset": "int64", "digest": "string",
    "bytes": "int64", "content": "binary",
}  # fmt: skip
"""Columns of the quarantine: `content` is the rejected piece, sealed with the grant's key; null where none is kept."""
ASIDE_COLUMNS = {"grant_id": "string", "digest": "string", "code": "string"}
"""Columns that tell quarantine entries apart, of a whole tenant."""
INDEX_COLUMNS = {
    "digest": "string", "grant_id": "string", "task_id": "string", "repo": "string", "issue_id": "string",
    "segment": "string", "environment": "string", "environment_version": "string", "policy": "string",
    "policy_digest": "string", "seed": "string", "score_kind": "string", "score": "float64", "submitted": "bool",
    "calls": "int64", "ok_calls": "int64", "steps": "int64", "copied_steps": "int64", "anomalies": "string",
    "source": "string", "offset": "int64", "format": "string", "personal": "string",
    "retention_until": "timestamp[us, tz=UTC]",
}  # fmt: skip
"""Columns of the index as stored, with their Arrow types. A seed may exceed 64 bits: it is stored as text."""
EVENT_COLUMNS = {
    "digest": "string", "step_id": "int64", "position": "int64", "kind": "string", "source": "string",
    "timestamp": "string", "copied": "bool", "call_id": "string", "function_name": "string", "arguments": "string",
    "text": "string",
}  # fmt: skip
"""Columns of the events: `kind` is message, reasoning, call or result; `position` counts within step and kind."""


def index_row(
    trajectory: Trajectory, digest: str, place: dict[str, Any], retention_until: datetime | None
) -> dict[str, Any]:
    """Return the index row of one trajectory.

    Args:
        trajectory: with its Ratchet fields.
        digest: its digest.
        place: `source`, `offset` and `format` of the record.
        retention_until: when the right to it ends.
    """
    extra = trajectory.ratchet
    own = [step for step in trajectory.steps if not step.is_copied_context]
    return {
        "digest": digest,
        **{
            name: getattr(extra, name)
            for name in (
                "grant_id", "task_id", "repo", "issue_id", "segment", "environment", "environment_version", "policy",
                "policy_digest", "ok_calls",
            )
        },
        "seed": None if extra.seed is None else str(extra.seed),
        "score_kind": extra.score.kind,
        "score": extra.score.value if isinstance(extra.score, Scored) else None,
        "submitted": extra.deliverable.submitted if extra.deliverable else None,
        "calls": sum(len(step.tool_calls or ()) for step in own) if extra.calls is None else extra.calls,
        "steps": len(own),
        "copied_steps": len(trajectory.steps) - len(own),
        "anomalies": " ".join(extra.anomalies),
        "retention_until": retention_until,
        **place,
    }  # fmt: skip


def event_rows(trajectory: Trajectory, digest: str) -> list[dict[str, Any]]:
    """Return the event rows of one trajectory, in order."""
    rows: list[dict[str, Any]] = []
    for step in trajectory.steps:
        base = {
            "digest": digest,
            "step_id": step.step_id,
            "source": step.source,
            "timestamp": step.timestamp,
            "copied": bool(step.is_copied_context),
        }
        rows.append({**base, "position": 0, "kind": "message", "text": text_of(step.message)})
        if step.reasoning_content is not None:
            rows.append({**base, "position": 0, "kind": "reasoning", "text": step.reasoning_content})
        for position, call in enumerate(step.tool_calls or ()):
            rows.append(
                {
                    **base,
                    "position": position,
                    "kind": "call",
                    "call_id": call.tool_call_id,
                    "function_name": call.function_name,
                    "arguments": canonical_json(call.arguments),
                }
            )
        for position, result in enumerate(step.observation.results if step.observation else ()):
            text = None if result.content is None else text_of(result.content)
            rows.append(
                {**base, "position": position, "kind": "result", "call_id": result.source_call_id, "text": text}
            )
    return rows


def schema(columns: dict[str, str]) -> pa.Schema:
    """Return the Arrow schema of columns that are given as here: name and type, in order."""
    import pyarrow as pa

    types = {"timestamp[us, tz=UTC]": pa.timestamp("us", tz="UTC"), "bool": pa.bool_()}
    return pa.schema([(name, types.get(kind) or getattr(pa, kind)()) for name, kind in columns.items()])


def table(rows: list[dict[str, Any]], columns: dict[str, str]) -> pa.Table:
    """Return rows as a table with exactly these columns; what a row lacks is null."""
    import pyarrow as pa

    return pa.Table.from_pydict({name: [row.get(name) for row in rows] for name in columns}, schema=schema(columns))
