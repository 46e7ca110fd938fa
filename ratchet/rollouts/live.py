"""One episode while it runs: how it opens, and what becomes of what the policy says and the environment answers.

What an environment hands over is checked before anything rests on it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import cast

from ratchet.contracts.environment import (
    Deliverable,
    Environment,
    Episode,
    Message,
    SearchableEnvironment,
    Task,
    ToolCall,
    ToolResult,
)
from ratchet.contracts.model import revalidated
from ratchet.contracts.policy import Harness
from ratchet.deadline import Outcome, told
from ratchet.policies.rendering import Rendering
from ratchet.rollouts.engine import Turn
from ratchet.rollouts.rollout import Exchange, Rollout

GRACE_S = 30.0
"""Seconds that an environment has beyond the deadline of its episode, by which it answers that the time is over."""


class Live:
    """An episode while it runs."""

    __slots__ = (
        "deliverable", "ended", "episode", "exchanges", "harness", "invalid", "opened", "opening", "prompt", "read",
        "rendering", "said", "seed", "stack", "started", "taken_back", "task", "tries",
    )  # fmt: skip
    episode: Episode

    def __init__(self, task: Task, seed: int, rendering: Rendering, harness: Harness) -> None:
        """Before it opens."""
        self.task, self.seed, self.rendering, self.harness = task, seed, rendering, harness
        self.opened = False
        self.opening: list[str] = []
        self.prompt: list[int] = []
        self.read: list[int] = []
        self.said: tuple[Turn, ToolCall] | None = None
        self.exchanges: list[Exchange] = []
        self.taken_back: list[Turn] = []
        self.tries = 0
        self.invalid: str | None = None
        self.deliverable: Deliverable | None = None
        self.stack = ExitStack()
        self.started = time.monotonic()
        self.ended: float | None = None

    @property
    def over(self) -> bool:
        """Whether it has ended, one way or another."""
        return self.ended is not None

    @property
    def spent(self) -> int:
        """Turns of the budget that were used."""
        return len(self.exchanges) + len(self.taken_back)

    @property
    def added(self) -> list[int]:
        """Ids to append before the next turn."""
        # With a turn that was taken back, the token before it was forgotten; it is read again, and counts once.
        return self.read[-1:] if self.tries else self.read

    def end(self, at: float) -> None:
        """End it at a time, by the clock of `time.monotonic`."""
        self.ended = self.ended or at

    def fail(self, phase: str, error: Exception, at: float) -> None:
        """End it as invalid; the first reason stays."""
        self.invalid = self.invalid or told(phase, error)
        self.end(at)

    def enter(self, outcome: Outcome[tuple[Episode, ExitStack]]) -> None:
        """Take in what `entered` returned."""
        self.episode, self.stack = outcome.get()
        self.opened = True

    def look(self, outcome: Outcome[list[Message]], prompt: Callable[[tuple[Message, ...]], tuple[int, ...]]) -> None:
        """Take in the observation; `prompt` renders the messages that the policy sees first."""
        messages = seen(outcome.get())
        self.opening = [message.content for message in messages]
        system = self.harness.system_prompt
        told_first = [Message(role="system", content=system)] if system else []
        self.prompt = self.read = list(prompt((*told_first, *messages)))

    def hear(self, turn: Turn) -> None:
        """Take in a turn: as a call to be made, as one that is held back, or as none that is taken back."""
        self.said = None
        rendering, harness = self.rendering, self.harness
        sampled = turn.ids[:-1] if turn.finish_reason == "stop" else turn.ids
        call = rendering.call(sampled)
        if turn.finish_reason != "stop":
            call = ToolCall(name="", malformed=rendering.tokenizer.decode(sampled)[:200])
        elif call.malformed is None and call.name not in harness.tools:
            call = ToolCall(name="", malformed=call.name)
        if call.malformed is not None and self.tries < harness.retries and self.spent + 1 < harness.max_calls:
            self.tries += 1
            self.taken_back.append(turn)
            return
        self.tries, self.said = 0, (turn, call)
        if not harness.approval_rules:
            return
        before = self.exchanges[-1].call.name if self.exchanges else None
        if harness.holds_back(call.name, before) is not None:
            self.answer(ToolResult(content="approval needed", status="refused"), time.monotonic())

    def call(self) -> ToolResult:
        """Have the environment answer the call that was said."""
        assert self.said is not None
        return self.episode.call(self.said[1])

    def answer(self, result: ToolResult, at: float) -> None:
        """Take in what answers the call that was said."""
        assert self.said is not None
        (turn, call), self.said = self.said, None
        self.exchanges.append(Exchange(self.read, turn, call, result))
        if result.ends_episode or self.spent >= self.harness.max_calls:
            self.end(at)
        close = [] if turn.finish_reason == "stop" else [self.rendering.end]
        self.read = close + self.rendering.result(result.content)

    def hand_in(self, outcome: Outcome[Deliverable]) -> None:
        """Take in what is handed in."""
        self.deliverable = revalidated(Deliverable, outcome.get())

    def rollout(self) -> Rollout:
        """What is kept of it."""
        return Rollout(
            task=self.task,
            seed=self.seed,
            opening=self.opening,
            prompt_ids=self.prompt,
            exchanges=self.exchanges,
            deliverable=self.deliverable if self.invalid is None else None,
            invalid=self.invalid,
            latency_s=(self.ended or time.monotonic()) - self.started,
            system=self.harness.system_prompt,
            taken_back=tuple(self.taken_back),
        )


def call_limit_s(environment: Environment) -> float:
    """Seconds after which a call of an environment is left behind."""
    return environment.spec.limits.episode_timeout_s + GRACE_S


def entered(
    environment: Environment, task: Task, seed: int, options: Mapping[str, str] | None = None
) -> tuple[Episode, ExitStack]:
    """Open and enter an episode, under the options of a harness; returns it with the stack that closes it."""
    stack = ExitStack()
    opened = (
        cast(SearchableEnvironment, environment).open(task, seed, options=options)
        if options
        else environment.open(task, seed)
    )
    return stack.enter_context(opened), stack


def closed(opened: tuple[Episode, ExitStack]) -> None:
    """Close an episode that opened too late."""
    opened[1].close()


def seen(observation: Iterable[object]) -> list[Message]:
    """What a policy sees first, checked. Raises ValueError where it sees nothing."""
    messages = [revalidated(Message, message) for message in observation]
    if not messages:
        raise ValueError("there is no message to open with")
    return messages
