"""Flat rows of trajectories: one per event, and one per trajectory for the index.

Free-form arguments are canonical JSON strings, never nested structs, so that two logs with other arguments have one
schema. Rows are for looking, filtering and joining; the document itself is in `trajectories/`.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

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
    document: dict[str, Any], digest: str, place: dict[str, Any], retention_until: datetime | None
) -> dict[str, Any]:
    """Return the index row of one trajectory.

    Args:
        document: as it is stored, with its Ratchet fields.
        digest: its digest.
        place: `source`, `offset` and `format` of the record.
        retention_until: when the right to it ends.
    """
    extra = document["extra"]["ratchet"]
    steps = document["steps"]
    own = [step for step in steps if not step.get("is_copied_context")]
    return {
        "digest": digest,
        **{
            name: extra[name]
            for name in (
                "grant_id", "task_id", "repo", "issue_id", "segment", "environment", "environment_version", "policy",
                "policy_digest", "ok_calls",
            )
        },
        "seed": None if extra["seed"] is None else str(extra["seed"]),
        "score_kind": extra["score"]["kind"],
        "score": extra["score"].get("value"),
        "submitted": extra["deliverable"]["submitted"] if extra["deliverable"] else None,
        "calls": sum(len(step.get("tool_calls", ())) for step in own) if extra["calls"] is None else extra["calls"],
        "steps": len(own),
        "copied_steps": len(steps) - len(own),
        "anomalies": " ".join(extra["anomalies"]),
        "retention_until": retention_until,
        **place,
    }  # fmt: skip


EventRow = tuple[Any, ...]
"""An event in the order of `EVENT_COLUMNS`, without the digest: a third of the cost of a dict."""


def event_rows(document: dict[str, Any]) -> list[EventRow]:
    """Return the events of a trajectory, given as it is stored, in order."""
    rows: list[EventRow] = []
    add = rows.append
    for step in document["steps"]:
        if len(step) == 3 and type(text := step["message"]) is str:  # as most steps are: number, source and text
            add((step["step_id"], 0, "message", step["source"], None, False, None, None, None, text))
            continue
        get = step.get
        at, source, time, copied = step["step_id"], step["source"], get("timestamp"), bool(get("is_copied_context"))
        add((at, 0, "message", source, time, copied, None, None, None, _text(step["message"])))
        if "reasoning_content" in step:
            add((at, 0, "reasoning", source, time, copied, None, None, None, step["reasoning_content"]))
        for position, call in enumerate(get("tool_calls", ())):
            name, arguments = call["function_name"], canonical_bytes(call["arguments"])
            add((at, position, "call", source, time, copied, call["tool_call_id"], name, arguments, None))
        if "observation" in step:
            for position, result in enumerate(step["observation"]["results"]):
                answers, text = result.get("source_call_id"), _text(result.get("content"))
                add((at, position, "result", source, time, copied, answers, None, None, text))
    return rows


class EventRows:
    """The event rows of many trajectories."""

    def __init__(self) -> None:
        """Start without rows."""
        self._rows: list[EventRow] = []
        self._digests: list[tuple[str, int]] = []
        """Digest and number of rows of each trajectory."""

    def add(self, rows: list[EventRow], digest: str) -> None:
        """Add the events of one trajectory."""
        self._rows += rows
        self._digests.append((digest, len(rows)))

    def table(self) -> pa.Table:
        """Return the rows as a table with the columns of `EVENT_COLUMNS`."""
        import pyarrow as pa

        others = list(schema(EVENT_COLUMNS))[1:]
        columns = list(zip(*self._rows, strict=True)) or [()] * len(others)
        return pa.Table.from_arrays(
            [
                _repeated(self._digests),
                *(pa.array(column, type=field.type) for column, field in zip(columns, others, strict=True)),
            ],
            schema=schema(EVENT_COLUMNS),
        )


def _text(content: Any) -> str | None:
    """Return what `contracts.trajectory.text_of` does, of content as it is stored; null stays null."""
    if not isinstance(content, list):
        return content
    return "\n".join(
        part["text"] if "text" in part else f"[{part['type']}: {part['source']['path']}]" for part in content
    )


def _repeated(texts: list[tuple[str, int]]) -> pa.Array:
    """Return texts, each repeated as often as is said."""
    import pyarrow as pa

    places = [place for place, (_, times) in enumerate(texts) for _ in range(times)]
    return pa.array([text for text, _ in texts], type=pa.string()).take(pa.array(places, type=pa.int32()))


def schema(columns: dict[str, str]) -> pa.Schema:
    """Return the Arrow schema of columns that are given as here: name and type, in order."""
    import pyarrow as pa

    types = {"timestamp[us, tz=UTC]": pa.timestamp("us", tz="UTC"), "bool": pa.bool_()}
    return pa.schema([(name, types.get(kind) or getattr(pa, kind)()) for name, kind in columns.items()])


def documents_table(digests: list[str], documents: list[bytes]) -> pa.Table:
    """Return trajectories as a table with the columns of `TRAJECTORY_COLUMNS`; documents are given in UTF-8."""
    import numpy as np
    import pyarrow as pa

    ends = np.cumsum([0, *map(len, documents)], dtype=np.int32)
    # Not from the list: every document would be checked for what it is and copied twice.
    column = pa.StringArray.from_buffers(len(documents), pa.py_buffer(ends), pa.py_buffer(b"".join(documents)))
    return pa.Table.from_arrays([pa.array(digests, type=pa.string()), column], schema=schema(TRAJECTORY_COLUMNS))


def table(rows: list[dict[str, Any]], columns: dict[str, str]) -> pa.Table:
    """Return rows as a table with exactly these columns; what a row lacks is null."""
    import pyarrow as pa

    return pa.Table.from_pydict({name: [row.get(name) for row in rows] for name in columns}, schema=schema(columns))
