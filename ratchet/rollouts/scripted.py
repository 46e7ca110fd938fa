"""Scripted agents act in an environment like any policy, so that their logs are real episodes."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

from ratchet.contracts.environment import Deliverable, Environment, Task, ToolCall, ToolResult
from ratchet.contracts.model import revalidated
from ratchet.deadline import told, within
from ratchet.rollouts.engine import Turn
from ratchet.rollouts.live import call_limit_s, closed, entered, seen
from ratchet.rollouts.rollout import Exchange, Rollout

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

    Returns:
        The attempt; invalid, with the reason, where the environment failed, handed over what is no result, or did not
        answer in time.
    """
    started, limit_s = time.monotonic(), call_limit_s(environment)
    results: list[ToolResult] = []
    exchanges: list[Exchange] = []
    opening: list[str] = []
    deliverable, invalid = None, None
    stack = ExitStack()
    phase = "reset"
    try:
        episode, stack = within(limit_s, partial(entered, environment, task, seed), late=closed)
        opening = [message.content for message in seen(within(limit_s, episode.observation))]
        phase = "tool"
        for wanted in script(task, random.Random(f"{agent}/{task.task_id}/{seed}"), results):
            call = ToolCall(name=wanted) if isinstance(wanted, str) else wanted
            results.append(revalidated(ToolResult, within(limit_s, partial(episode.call, call))))
            exchanges.append(Exchange([], Turn([], [], "scripted"), call, results[-1]))
            if results[-1].ends_episode:
                break
        phase = "deliverable"
        deliverable = revalidated(Deliverable, within(limit_s, episode.deliverable))
    except Exception as error:  # the one capture point: a failing environment is data, not a crash
        invalid = told(phase, error)
    finally:
        try:
            within(limit_s, stack.close)
        except Exception as error:
            invalid = invalid or told("close", error)
    ended = time.monotonic() - started
    return Rollout(task, seed, opening, [], exchanges, None if invalid else deliverable, invalid, ended)
