"""Flat rows of trajectories: one per event, and one per trajectory for the index.

Free-form arguments are canonical JSON strings, never nested structs, so that two logs with other arguments have one
schema. Rows are for looking, filtering and joining; the document itself is in `trajectories/`.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from ratchet.contracts.score import Scored
from ratchet.contracts.trajectory import Trajectory, text_of
from ratchet.intake.canon import canonical_bytes

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


class EventRows:
    """The event rows of many trajectories: tuples in the order of `EVENT_COLUMNS`, a third of the cost of dicts."""

    def __init__(self) -> None:
        """Start without rows."""
        self._rows: list[tuple[Any, ...]] = []

    def add(self, trajectory: Trajectory, digest: str) -> None:
        """Add the rows of one trajectory, in order."""
        add = self._rows.append
        for step in trajectory.steps:
            at, source, time, copied = step.step_id, step.source, step.timestamp, bool(step.is_copied_context)
            message = step.message if isinstance(step.message, str) else text_of(step.message)
            add((digest, at, 0, "message", source, time, copied, None, None, None, message))
            if step.reasoning_content is not None:
                add((digest, at, 0, "reasoning", source, time, copied, None, None, None, step.reasoning_content))
            for position, call in enumerate(step.tool_calls or ()):
                name, arguments = call.function_name, canonical_bytes(call.arguments)
                add((digest, at, position, "call", source, time, copied, call.tool_call_id, name, arguments, None))
            for position, result in enumerate(step.observation.results if step.observation else ()):
                text = None if result.content is None else text_of(result.content)
                add((digest, at, position, "result", source, time, copied, result.source_call_id, None, None, text))

    def table(self) -> pa.Table:
        """Return the rows as a table with the columns of `EVENT_COLUMNS`."""
        import pyarrow as pa

        columns = list(zip(*self._rows, strict=True)) or [()] * len(EVENT_COLUMNS)
        return pa.Table.from_arrays(
            [pa.array(column, type=field.type) for column, field in zip(columns, schema(EVENT_COLUMNS), strict=True)],
            schema=schema(EVENT_COLUMNS),
        )


def schema(columns: dict[str, str]) -> pa.Schema:
    """Return the Arrow schema of columns that are given as here: name and type, in order."""
    import pyarrow as pa

    types = {"timestamp[us, tz=UTC]": pa.timestamp("us", tz="UTC"), "bool": pa.bool_()}
    return pa.schema([(name, types.get(kind) or getattr(pa, kind)()) for name, kind in columns.items()])


def table(rows: list[dict[str, Any]], columns: dict[str, str]) -> pa.Table:
    """Return rows as a table with exactly these columns; what a row lacks is null."""
    import pyarrow as pa

    return pa.Table.from_pydict({name: [row.get(name) for row in rows] for name in columns}, schema=schema(columns))
