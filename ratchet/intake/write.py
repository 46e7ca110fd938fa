"""The writing side: trajectories as logs that any of our readers takes back.

ATIF keeps everything. OpenAI chat has no place for token ids, log-probs, usage, timings, call and result metadata,
embedded trajectories, or trajectory and session ids: those are lost. Ratchet's own fields travel in
`metadata.ratchet`, the agent's name and version in `metadata.agent`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ratchet.contracts.canonical import canonical_json
from ratchet.contracts.trajectory import ContentPart, Step, Trajectory


def write_atif(trajectories: Iterable[Trajectory], place: Path) -> list[Path]:
    """Write ATIF documents.

    Args:
        trajectories: what to write.
        place: a path that ends in `.jsonl` for one document a line, else a folder for `<digest>.json` each.

    Returns:
        The files. Each appears whole or not at all.
    """
    documents = (
        (item.digest, canonical_json(item.model_dump(mode="json", exclude_none=True))) for item in trajectories
    )
    if place.suffix == ".jsonl":
        return [_whole(place, "".join(text + "\n" for _, text in documents))]
    return [_whole(place / f"{digest}.json", text + "\n") for digest, text in documents]


def write_openai_chat(trajectories: Iterable[Trajectory], path: Path) -> Path:
    """Write OpenAI-chat conversations as JSON Lines, one a line. The file appears whole or not at all."""
    return _whole(path, "".join(canonical_json(openai_chat(item)) + "\n" for item in trajectories))


def openai_chat(trajectory: Trajectory) -> dict[str, Any]:
    """Return one trajectory as an OpenAI-chat record."""
    record: dict[str, Any] = {
        "messages": [message for step in trajectory.steps for message in _messages(step)],
        "metadata": {
            "agent": {"name": trajectory.agent.name, "version": trajectory.agent.version},
            "ratchet": (trajectory.extra or {}).get("ratchet", {}),
        },
    }
    if trajectory.agent.model_name is not None:
        record["model"] = trajectory.agent.model_name
    if trajectory.agent.tool_definitions is not None:
        record["tools"] = trajectory.agent.tool_definitions
    return record


def _messages(step: Step) -> list[dict[str, Any]]:
    role = {"system": "system", "user": "user", "agent": "assistant"}[step.source]
    message: dict[str, Any] = {"role": role, "content": _content(step.message)}
    if step.timestamp is not None:
        message["timestamp"] = step.timestamp
    if step.reasoning_content is not None:
        message["reasoning_content"] = step.reasoning_content
    if step.tool_calls:
        message["tool_calls"] = [
            {
                "id": call.tool_call_id,
                "type": "function",
                "function": {"name": call.function_name, "arguments": canonical_json(call.arguments)},
            }
            for call in step.tool_calls
        ]
    results = [
        {
            "role": "tool",
            "content": None if result.content is None else _content(result.content),
            **({"tool_call_id": result.source_call_id} if result.source_call_id is not None else {}),
        }
        for result in (step.observation.results if step.observation else [])
    ]
    return [message, *results]


def _content(content: str | list[ContentPart]) -> Any:
    return content if isinstance(content, str) else [_part(part) for part in content]


def _part(part: ContentPart) -> dict[str, Any]:
    if part.source is None:
        return {"type": "text", "text": part.text}
    if part.type == "image":
        return {"type": "image_url", "image_url": {"url": part.source.path}}
    kind = part.source.media_type.removeprefix("audio/")
    return {"type": "input_audio", "input_audio": {"data": part.source.path.split("base64,", 1)[-1], "format": kind}}


def _whole(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)
    return path
