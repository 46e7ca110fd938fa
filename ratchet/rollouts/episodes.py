"""The episode loop: many episodes at once, the engine's batch full, a dead episode never a crash.

One failure of the infrastructure (reset, tool, sandbox) makes that episode invalid with its reason; everything the
policy does is data. What an environment hands over is checked before anything rests on it, and every call of it is left
behind where it takes longer than the whole episode may and `GRACE_S`. Resets, the tool calls of a turn, and hand-ins
run in threads, since the sandbox has several slots.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ratchet.contracts.environment import Deliverable, Environment, Episode, Message, Task, ToolCall, ToolResult
from ratchet.contracts.model import revalidated
from ratchet.contracts.policy import Decoding, Harness
from ratchet.deadline import told, within
from ratchet.policies.rendering import Rendering
from ratchet.rollouts.engine import Session, Turn

if TYPE_CHECKING:
    from transformers import PreTrainedModel

GRACE_S = 30.0
"""Seconds that an environment has beyond the deadline of its episode, by which it answers that the time is over."""


class Exchange(NamedTuple):
    """One turn as logged: what was read, what was sampled, the call and its result."""

    prompt_ids: list[int]
    turn: Turn
    call: ToolCall
    result: ToolResult


class Rollout(NamedTuple):
    """One finished attempt."""

    task: Task
    seed: int
    opening: list[str]
    prompt_ids: list[int]
    exchanges: list[Exchange]
    deliverable: Deliverable | None
    invalid: str | None
    latency_s: float

    @property
    def calls(self) -> int:
        """Tool calls made, malformed and refused ones included."""
        return len(self.exchanges)

    @property
    def ok_calls(self) -> int:
        """Calls that were well-formed, permitted and succeeded."""
        return sum(exchange.result.status == "ok" for exchange in self.exchanges)

    @property
    def malformed(self) -> int:
        """Calls that did not parse or were refused."""
        return sum(exchange.result.status in ("malformed", "refused") for exchange in self.exchanges)

    @property
    def violations(self) -> list[str]:
        """Policy rules that were broken, in order."""
        return [exchange.result.violation for exchange in self.exchanges if exchange.result.violation]

    @property
    def sandbox_s(self) -> float:
        """Sandbox CPU seconds of the episode's own calls."""
        return sum(exchange.result.sandbox_s for exchange in self.exchanges)

    @property
    def tokens_in(self) -> int:
        """Tokens read, each counted once: the cache is kept across turns."""
        return self._length - self.tokens_out

    @property
    def tokens_out(self) -> int:
        """Tokens sampled."""
        return sum(len(exchange.turn.ids) for exchange in self.exchanges)

    @property
    def _length(self) -> int:
        last = self.exchanges[-1] if self.exchanges else None
        return len(last.prompt_ids) + len(last.turn.ids) if last else len(self.prompt_ids)


class _Live:
    """An episode while it runs."""

    def __init__(self, task: Task, seed: int, limit_s: float) -> None:
        self.task, self.seed, self.limit_s = task, seed, limit_s
        self.episode: Episode | None = None
        self.opening: list[str] = []
        self.ids: list[int] = []
        self.prompt: list[int] = []
        self.added: list[int] = []
        self.exchanges: list[Exchange] = []
        self.invalid: str | None = None
        self.deliverable: Deliverable | None = None
        self.stack = ExitStack()
        self.started = time.monotonic()
        self.ended: float | None = None

    @property
    def over(self) -> bool:
        return self.ended is not None

    def end(self) -> None:
        self.ended = self.ended or time.monotonic()


def run_batch(
    model: PreTrainedModel,
    rendering: Rendering,
    environment: Environment,
    harness: Harness,
    requests: Sequence[tuple[Task, int]],
    *,
    salt: str = "",
    decoding: Decoding | None = None,
    pool: ThreadPoolExecutor,
) -> list[Rollout]:
    """Run one batch of episodes to their ends.

    Args:
        model: the policy's model.
        rendering: its tokenizer's rendering.
        environment: where the tasks run.
        harness: limits and decoding; calls beyond `harness.max_calls` end the episode.
        requests: (task, seed) pairs.
        salt: enters the seeds of the draws beside task and seed, e.g. the training step.
        decoding: overrides the harness's.
        pool: runs the tool calls.

    Returns:
        One rollout per request, in order.
    """
    decoding = decoding or harness.decoding
    live = [_Live(task, seed, call_limit_s(environment)) for task, seed in requests]

    def each(phase: str, action: Callable[[_Live], None]) -> None:
        list(pool.map(lambda one: _guarded(one, phase, partial(action, one)), live))

    try:
        each("reset", partial(_open, environment=environment, rendering=rendering))
        keys = [f"{salt}/{one.task.task_id}/{one.seed}" for one in live]
        session = Session(model, rendering.end, decoding, keys)
        added = {row: one.added for row, one in enumerate(live) if not one.over}
        while added:
            turns = session.turn(added)
            steps = [(live[row], added[row], turn, rendering, harness) for row, turn in turns.items()]
            list(pool.map(lambda step: _step(*step), steps))
            added = {row: live[row].added for row in turns if not live[row].over}
        each("deliverable", _hand_in)
    finally:
        each("close", _close)
    return [_finish(one) for one in live]


def call_limit_s(environment: Environment) -> float:
    """Seconds after which a call of an environment is left behind."""
    return environment.spec.limits.episode_timeout_s + GRACE_S


def entered(environment: Environment, task: Task, seed: int, limit_s: float) -> tuple[Episode, ExitStack]:
    """Open and enter an episode in time; returns it with the stack that closes it.

    Raises:
        Overdue: it did not open within `limit_s`; if it does later, it is closed then.
    """

    def enter() -> tuple[Episode, ExitStack]:
        stack = ExitStack()
        return stack.enter_context(environment.open(task, seed)), stack

    return within(limit_s, enter, late=lambda opened: opened[1].close())


def observed(episode: Episode, limit_s: float) -> list[Message]:
    """What a policy sees first, checked. Raises ValueError where it sees nothing."""
    messages = [revalidated(Message, message) for message in within(limit_s, episode.observation)]
    if not messages:
        raise ValueError("there is no message to open with")
    return messages


def _open(one: _Live, environment: Environment, rendering: Rendering) -> None:
    one.episode, one.stack = entered(environment, one.task, one.seed, one.limit_s)
    messages = observed(one.episode, one.limit_s)
    one.opening = [message.content for message in messages]
    one.prompt = one.added = rendering.prompt(messages)


def _guarded(one: _Live, phase: str, action: Callable[[], None]) -> None:
    """Run one phase of an episode; an error in it makes this episode invalid and no other."""
    try:
        action()
    except Exception as error:  # the one capture point: a failing environment is data, not a crash
        one.invalid = one.invalid or told(phase, error)
        one.end()


def _step(one: _Live, added: list[int], turn: Turn, rendering: Rendering, harness: Harness) -> None:
    prompt = one.ids + added
    one.ids = prompt + turn.ids

    def act() -> None:
        assert one.episode is not None
        sampled = turn.ids[:-1] if turn.finish_reason == "stop" else turn.ids
        call = rendering.call(sampled)
        if turn.finish_reason != "stop":
            call = ToolCall(name="", malformed=rendering.tokenizer.decode(sampled)[:200])
        elif call.malformed is None and call.name not in harness.tools:
            call = ToolCall(name="", malformed=call.name)
        # What is left behind may still change the episode: it is invalid then, and nothing reads it any more.
        result = revalidated(ToolResult, within(one.limit_s, partial(one.episode.call, call)))
        one.exchanges.append(Exchange(prompt, turn, call, result))
        if result.ends_episode or len(one.exchanges) >= harness.max_calls:
            one.end()
        close = [] if turn.finish_reason == "stop" else [rendering.end]
        one.added = close + rendering.result(result.content)

    _guarded(one, "tool", act)


def _hand_in(one: _Live) -> None:
    if one.episode is not None and one.invalid is None:
        one.deliverable = revalidated(Deliverable, within(one.limit_s, one.episode.deliverable))


def _close(one: _Live) -> None:
    within(one.limit_s, one.stack.close)


def _finish(one: _Live) -> Rollout:
    return Rollout(
        task=one.task,
        seed=one.seed,
        opening=one.opening,
        prompt_ids=one.prompt,
        exchanges=one.exchanges,
        deliverable=one.deliverable if one.invalid is None else None,
        invalid=one.invalid,
        latency_s=(one.ended or time.monotonic()) - one.started,
    )
