"""Scripted agents act in an environment like any policy, so that their logs are real episodes."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator

from ratchet.contracts.environment import Environment, Task, ToolCall, ToolResult
from ratchet.rollouts.engine import Turn
from ratchet.rollouts.episodes import Exchange, Rollout

Script = Callable[[Task, random.Random, list[ToolResult]], Iterator[str | ToolCall]]
"""Yields the name of the next tool, or a whole call where it has arguments."""


def play(environment: Environment, agent: str, script: Script, task: Task, seed: int) -> Rollout:
    """Run one episode of a scripted agent.

    Args:
        environment: where it acts.
        agent: its name; enters the seed of its choices.
        script: yields the next call, and sees the results so far.
        task: what it attempts.
        seed: seed of the episode.
    """
    started = time.monotonic()
    results: list[ToolResult] = []
    exchanges: list[Exchange] = []
    opening: list[str] = []
    deliverable = invalid = None
    try:
        with environment.open(task, seed) as episode:
            opening = [message.content for message in episode.observation()]
            for wanted in script(task, random.Random(f"{agent}/{task.task_id}/{seed}"), results):
                call = ToolCall(name=wanted) if isinstance(wanted, str) else wanted
                results.append(episode.call(call))
                exchanges.append(Exchange([], Turn([], [], "scripted"), call, results[-1]))
                if results[-1].ends_episode:
                    break
            deliverable = episode.deliverable()
    except Exception as error:  # the one capture point: a failing environment is data, not a crash
        invalid = f"tool: {type(error).__name__}: {error}"
    return Rollout(task, seed, opening, [], exchanges, deliverable, invalid, time.monotonic() - started)
