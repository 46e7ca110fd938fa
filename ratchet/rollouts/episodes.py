"""The episode loop: many episodes at once, the engine's batch full, a dead episode never a crash.

One failure of the infrastructure (reset, tool, sandbox) makes that episode invalid with its reason; everything the
policy does is data. Tool calls of a turn run in threads, since the sandbox has several slots.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ratchet.contracts.environment import Deliverable, Environment, Episode, Task, ToolCall, ToolResult
from ratchet.contracts.policy import Decoding, Harness
from ratchet.policies.rendering import Rendering
from ratchet.rollouts.engine import Session, Turn

if TYPE_CHECKING:
    from transformers import PreTrainedModel


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

    def __init__(self, task: Task, seed: int) -> None:
        self.task, self.seed = task, seed
        self.episode: Episode | None = None
        self.opening: list[str] = []
        self.ids: list[int] = []
        self.prompt: list[int] = []
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
    live = [_Live(task, seed) for task, seed in requests]
    try:
        for one in live:
            _guarded(one, "reset", partial(_open, one, environment, rendering))
        keys = [f"{salt}/{one.task.task_id}/{one.seed}" for one in live]
        session = Session(model, rendering.end, decoding, keys)
        added = {row: one.prompt for row, one in enumerate(live) if not one.over}
        while added:
            turns = session.turn(added)
            steps = [(live[row], added[row], turn, rendering, harness) for row, turn in turns.items()]
            list(pool.map(lambda step: _step(*step), steps))
            added = {row: _answer(live[row], turns[row], rendering) for row in turns if not live[row].over}
        for one in live:
            _guarded(one, "deliverable", partial(_hand_in, one))
    finally:
        for one in live:
            _guarded(one, "close", one.stack.close)
    return [_finish(one) for one in live]


def run(
    model: PreTrainedModel,
    rendering: Rendering,
    environment: Environment,
    harness: Harness,
    requests: Sequence[tuple[Task, int]],
    *,
    batch: int = 128,
    salt: str = "",
    threads: int = 4,
    done: Callable[[int], None] = lambda parts: None,
) -> Iterator[list[Rollout]]:
    """Run many episodes batch by batch; yields each finished batch and reports its size to `done`."""
    with ThreadPoolExecutor(threads) as pool:
        for start in range(0, len(requests), batch):
            rollouts = run_batch(
                model, rendering, environment, harness, requests[start : start + batch], salt=salt, pool=pool
            )
            done(len(rollouts))
            yield rollouts


def _open(one: _Live, environment: Environment, rendering: Rendering) -> None:
    one.episode = one.stack.enter_context(environment.open(one.task, one.seed))
    messages = one.episode.observation()
    one.opening = [message.content for message in messages]
    one.prompt = rendering.prompt(messages)


def _guarded(one: _Live, phase: str, action: Callable[[], None]) -> None:
    """Run one phase of an episode; an error in it makes this episode invalid and no other."""
    try:
        action()
    except Exception as error:  # the one capture point: a failing environment is data, not a crash
        one.invalid = one.invalid or f"{phase}: {type(error).__name__}: {error}"
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
        result = one.episode.call(call)
        one.exchanges.append(Exchange(prompt, turn, call, result))
        if result.ends_episode or len(one.exchanges) >= harness.max_calls:
            one.end()

    _guarded(one, "tool", act)


def _answer(one: _Live, turn: Turn, rendering: Rendering) -> list[int]:
    close = [] if turn.finish_reason == "stop" else [rendering.end]
    return close + rendering.result(one.exchanges[-1].result.content)


def _hand_in(one: _Live) -> None:
    if one.episode is not None and one.invalid is None:
        one.deliverable = one.episode.deliverable()


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
