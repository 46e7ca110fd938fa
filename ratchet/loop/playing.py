"""Episodes that become logs: played in parts, tried again where they are invalid, kept where the stage stops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ratchet.contracts.trajectory import Trajectory
from ratchet.loop.context import Run
from ratchet.progress import say
from ratchet.progress import task as progress
from ratchet.rollouts.judged import Faults, Judged, Request, attempt_all, faults, reasons_told, refuse_excess
from ratchet.rollouts.kept import Kept
from ratchet.rollouts.rollout import Rollout

THREADS = 4
PART = 128
"""Episodes that are played together, and kept together."""


def kept(run: Run, agent: str) -> Kept:
    """Finished episodes of an agent whose log is not written yet."""
    return Kept(run.home / "work" / run.manifest.run_id / f"{agent}.episodes.jsonl")


def played(
    run: Run,
    agent: str,
    requests: Sequence[Request],
    play: Callable[[Sequence[Request], ThreadPoolExecutor], Sequence[Rollout]],
    record: Callable[[Judged], Trajectory],
) -> list[Trajectory]:
    """Play episodes and return their logs, in the order of the requests; what was finished before is taken up.

    What failed is counted under `episodes/<agent>.json`, for the stage to show. Drop what is `kept` once the logs are
    written.

    Args:
        run: whose environment, reward and limits hold.
        agent: who plays.
        requests: tasks and seeds.
        play: runs some of them.
        record: turns a judged episode into its log.

    Raises:
        TooManyInvalid: more are invalid, after their retries, than the manifest allows; the valid ones are kept.
    """
    manifest = run.manifest
    place = kept(run, agent)
    found = place.read()
    left = [(task, seed) for task, seed in requests if (task.task_id, seed) not in found]
    seen = Faults(len(requests) - len(left), {}, {})
    with progress(f"episodes of {agent}", len(left)) as tick, ThreadPoolExecutor(THREADS) as pool:
        for start in range(0, len(left), PART):
            part = left[start : start + PART]
            judged = attempt_all(
                run.environment, part, manifest.reward, lambda some: play(some, pool), pool, manifest.invalid_retries
            )
            logs = [record(one) for one in judged]
            place.add(logs)
            found.update({(task.task_id, seed): log for (task, seed), log in zip(part, logs, strict=True)})
            seen += faults(judged)
            refuse_excess(f"episodes of {agent}", seen, manifest.max_invalid_share, of=len(requests))
            tick(len(part))
    if seen.invalid or seen.mended:
        say(f"  episodes of {agent}: {seen}")
    run.once_json(f"episodes/{agent}.json", seen._asdict)
    return [found[(task.task_id, seed)] for task, seed in requests]


def told_of(run: Run, agent: str) -> dict[str, Any]:
    """What failed among the episodes of an agent, as figures to show; empty where it was not recorded."""
    name = run.name(f"episodes/{agent}.json")
    if not run.store.exists(name):
        return {}
    seen = Faults(**run.once_json(f"episodes/{agent}.json", dict)[0])
    return {
        "invalid": sum(seen.invalid.values()),
        "mended": sum(seen.mended.values()),
        "reasons": reasons_told(dict(Counter(seen.invalid) + Counter(seen.mended))),
    }
