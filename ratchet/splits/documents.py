"""Trajectories as documents: everything that a trainer could show to a policy, for the contamination check."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ratchet.contracts.trajectory import Trajectory, text_of
from ratchet.splits.evidence import Document


def document_of(trajectory: Trajectory, source: str) -> Document:
    """Reduce a trajectory to a document.

    Args:
        trajectory: any trajectory; Ratchet's own fields are used where it has them.
        source: dataset or file it comes from.

    Returns: Text: messages, reasoning, call arguments and results, in order. Code: the multi-line strings among the
    arguments and the deliverable's files. Identifiers: task, repo and issue.
    """
    own = trajectory.ratchet if (trajectory.extra or {}).get("ratchet") else None
    parts: list[str] = []
    code: list[str] = []
    for step in trajectory.steps:
        parts += [text_of(step.message), step.reasoning_content or ""]
        for call in step.tool_calls or []:
            strings = list(_strings(call.arguments))
            parts += [call.function_name, *strings]
            code += [text for text in strings if "\n" in text]
        parts += [text_of(result.content) for result in (step.observation.results if step.observation else [])]
    if own and own.deliverable:
        code += own.deliverable.files.values()
    identifiers = [value for value in (own.task_id, own.repo, own.issue_id) if value] if own else []
    return Document(
        name=trajectory.trajectory_id or trajectory.digest,
        source=source,
        text="\n".join(part for part in parts if part),
        code=tuple(dict.fromkeys(code)),
        identifiers=tuple(identifiers),
        role="train",
    )


def _strings(value: Any) -> Iterator[str]:
    """Every string inside call arguments, unescaped; a string that holds a JSON object is opened too."""
    if isinstance(value, str):
        yield value
        if value.lstrip()[:1] in ("{", "["):
            try:
                yield from _strings(json.loads(value))
            except (ValueError, RecursionError):
                return
    elif isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
