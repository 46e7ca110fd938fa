"""Where the wall time of an experiment went: seconds of every stage that did work, in whichever launch it did.

A stage that failed or was resumed counts with all its parts; one that found everything done counts with nothing.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from ratchet.contracts.canonical import canonical_json
from ratchet.loop.context import Run
from ratchet.loop.learning import open_policy
from ratchet.loop.leaving_out import made
from ratchet.loop.lineage import descent

FOLDER = "wall_time"


class Spent(NamedTuple):
    """The wall time of one stage."""

    stage: str
    seconds: float
    parts: int
    """Launches in which it did work."""


def keep(run: Run, stage: str, seconds: float, ended: str) -> None:
    """Record that a stage worked for so many seconds.

    Args:
        run: the experiment.
        stage: name of the stage.
        seconds: its wall time.
        ended: how it ended: `done` or `failed`.
    """
    at = run.now().strftime("%Y%m%dT%H%M%S.%fZ")
    body = {"stage": stage, "seconds": round(seconds, 3), "ended": ended, "at": at}
    run.store.create(run.name(FOLDER, f"{at}.{stage}.json"), canonical_json(body).encode())


def breakdown(run: Run) -> list[Spent]:
    """The stages that worked, in the order in which they first ended."""
    found: dict[str, Spent] = {}
    for name in run.store.names(run.name(FOLDER)):
        one = json.loads(run.store.read(name))
        before = found.get(one["stage"], Spent(one["stage"], 0.0, 0))
        found[one["stage"]] = before._replace(seconds=before.seconds + one["seconds"], parts=before.parts + 1)
    return list(found.values())


class Trained(NamedTuple):
    """The training time of one candidate, in seconds."""

    candidate: str
    seconds: float
    """Of its own method."""
    whole: float
    """With that of the candidates of this run which it started from."""


def training_times(run: Run) -> list[Trained]:
    """How long every candidate that was made trained or searched, in the order of the manifest."""
    found = []
    for section in made(run):
        chain = descent(run, open_policy(run, section.name))
        seconds = [float(policy.training["seconds"]) for policy in chain]
        found.append(Trained(section.name, seconds[0], sum(seconds)))
    return found


def told_trained(trained: list[Trained]) -> list[str]:
    """A line per candidate."""
    width = max(len(one.candidate) for one in trained)
    return [
        f"  {one.candidate:<{width}} {one.seconds:8.1f} s"
        + (f", {one.whole:.1f} s with what it started from" if one.whole > one.seconds else "")
        for one in trained
    ]


def told(spent: list[Spent]) -> list[str]:
    """A line per stage with its seconds and its share, and a last one with the sum; none where nothing worked."""
    if not spent:
        return []
    whole = sum(one.seconds for one in spent)
    width = max(len(one.stage) for one in spent)
    lines = []
    for one in spent:
        share = one.seconds / whole if whole else 0.0
        more = f"  in {one.parts} launches" if one.parts > 1 else ""
        lines.append(f"  {one.stage:<{width}} {one.seconds:8.1f} s {share:5.0%}{more}")
    return [*lines, f"  {'all stages':<{width}} {whole:8.1f} s"]
