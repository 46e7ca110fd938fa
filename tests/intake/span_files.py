"""The sample files of the span formats: what a reader makes of one, and what a trajectory says in short."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import NamedTuple

from ratchet.contracts.trajectory import Trajectory, text_of
from ratchet.intake.formats import named
from ratchet.intake.records import Record, Rejected
from ratchet.intake.validate import trajectory_of

SAMPLES = Path(__file__).parent / "samples"


class Read(NamedTuple):
    """One record of a sample."""

    trajectory: Trajectory
    anomalies: Counter[str]
    record: Record


def read_sample(format: str, name: str) -> tuple[list[Read], list[Rejected]]:
    """Read a sample by its own reader; every record must become a trajectory."""
    stored, rejected = [], []
    for item in named(format).read((SAMPLES / format / name).read_bytes(), name):
        if isinstance(item, Rejected):
            rejected.append(item)
        else:
            made = trajectory_of(item, tenant="acme", grant_id="g")
            stored.append(Read(made, Counter(item.anomalies), item))
    return stored, rejected


def only(format: str, name: str) -> Read:
    """Read a sample that holds one sound record."""
    (read,), rejected = read_sample(format, name)
    assert rejected == []
    return read


def talk(trajectory: Trajectory) -> list[tuple[str, str]]:
    """Return who said what."""
    return [(step.source, text_of(step.message)) for step in trajectory.steps]


def answers(trajectory: Trajectory) -> list[tuple[str, dict[str, object], str | None]]:
    """Return every call with its arguments and the result it got, None for none."""
    results = {
        result.source_call_id: text_of(result.content)
        for step in trajectory.steps
        for result in (step.observation.results if step.observation else ())
    }
    return [
        (call.function_name, call.arguments, results.get(call.tool_call_id))
        for step in trajectory.steps
        for call in step.tool_calls or ()
    ]
