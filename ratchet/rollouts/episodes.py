"""The episode loop: many episodes at once, the engine's batch full, a dead episode never a crash.

One failure of the infrastructure (reset, tool, sandbox) makes that episode invalid with its reason; everything the
policy does is data. What an environment hands over is checked before anything rests on it, and every call of it is left
behind where it takes longer than the whole episode may and `GRACE_S`. Resets, the tool calls of a turn, and hand-ins
that take long run in several threads, since the sandbox has several slots.

On a server each episode takes its turns by itself: one that waits for a tool leaves the batch, which the server fills
with the others. In this process a turn waits for all of its tool calls. To go on with those that are answered would
make the batch, and with it the last digits of log-probabilities and the weights that are trained on them, depend on how
long calls take; a server's last digits depend on what arrives together anyway.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from functools import cache, partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

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
from ratchet.contracts.policy import Decoding, Harness
from ratchet.deadline import Outcome, all_within, told
from ratchet.policies.rendering import Rendering
from ratchet.rollouts.checked import checked_result
from ratchet.rollouts.engine import Conversations, PolicyEngine, Session, Turn

if TYPE_CHECKING:
    from transformers import PreTrainedModel

T = TypeVar("T")
Runs = Callable[[Callable[[], None]], None]
"""Runs calls of the environment, and returns when they are back."""
GRACE_S = 30.0
"""Seconds that an environment has beyond the deadline of its episode, by which it answers that the time is over."""
AT_ONCE = 256
"""Episodes that take turns on a server at once."""


class Exchange(NamedTuple):
    """One turn as logged: what was read since the turn before, what was sampled, the call and its result."""

    read: list[int]
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
    system: str = ""
    """The harness's instruction before the opening; empty for none."""
    taken_back: tuple[Turn, ...] = ()
    """Turns that were no call and were sampled again."""

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
        return sum(len(exchange.read) for exchange in self.exchanges) or len(self.prompt_ids)

    @property
    def tokens_out(self) -> int:
        """Tokens sampled, those of turns that were taken back included."""
        kept = sum(len(exchange.turn.ids) for exchange in self.exchanges)
        return kept + sum(len(turn.ids) for turn in self.taken_back)

    def prompts(self) -> Iterator[list[int]]:
        """All ids before each turn, the turns before it included."""
        ids: list[int] = []
        for exchange in self.exchanges:
            ids = ids + exchange.read
            yield ids
            ids = ids + exchange.turn.ids


class _Live:
    """An episode while it runs."""

    episode: Episode

    def __init__(self, task: Task, seed: int) -> None:
        self.task, self.seed = task, seed
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
        self.ended = self.ended or at

    def fail(self, phase: str, error: Exception, at: float) -> None:
        self.invalid = self.invalid or told(phase, error)
        self.end(at)


def run_batch(
    model: PreTrainedModel | PolicyEngine,
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
        model: the policy's model, or an engine that serves it.
        rendering: its tokenizer's rendering.
        environment: where the tasks run.
        harness: limits and decoding; calls beyond `harness.max_calls` end the episode.
        requests: (task, seed) pairs.
        salt: enters the seeds of the draws beside task and seed, e.g. the training step.
        decoding: overrides the harness's.
        pool: runs the environment's calls that take long, beside the others.

    Returns:
        One rollout per request, in order.
    """
    decoding = decoding or harness.decoding
    limit_s = call_limit_s(environment)
    live = [_Live(task, seed) for task, seed in requests]
    # Tokenizers are not made for several threads.
    one_at_a_time = threading.Lock()

    @cache
    def prompt(messages: tuple[Message, ...]) -> tuple[int, ...]:
        """Render an opening once: the attempts of a group open alike, and a template takes longer than all else."""
        return tuple(rendering.prompt(list(messages)))

    def each(
        phase: str,
        some: Iterable[_Live],
        call: Callable[[_Live], T],
        take: Callable[[_Live, Outcome[T]], None],
        late: Callable[[T], object] | None = None,
    ) -> None:
        """Make a call of the environment for each of some episodes, and take in what comes back."""
        asked = list(some)
        outcomes = all_within(limit_s, [partial(call, one) for one in asked], pool=pool, late=late)
        for one, outcome in zip(asked, outcomes, strict=True):
            try:
                take(one, outcome)
            except Exception as error:  # the one capture point: a failing environment is data, not a crash
                one.fail(phase, error, outcome.ended)

    def opened(one: _Live) -> tuple[Episode, ExitStack]:
        return entered(environment, one.task, one.seed, harness.options)

    def look(one: _Live, outcome: Outcome[list[Message]]) -> None:
        _look(one, outcome.get(), prompt, harness)

    def called(one: _Live) -> ToolResult:
        assert one.said is not None
        return one.episode.call(one.said[1])

    def answer(one: _Live, outcome: Outcome[ToolResult]) -> None:
        with one_at_a_time:
            _answer(one, checked_result(outcome.get()), rendering, harness, outcome.ended)

    def play(session: Conversations, some: Sequence[_Live], stopped: threading.Event, called_by: Runs) -> None:
        """Take turns with some episodes until all of them are over, or the batch is stopped."""
        added = {row: one.added for row, one in enumerate(some) if not one.over}
        while added and not stopped.is_set():
            turns = session.turn(added)
            for row, turn in turns.items():
                try:
                    with one_at_a_time:
                        _hear(some[row], turn, rendering, harness)
                except Exception as error:  # a template or codec that fails on what this policy said
                    some[row].fail("tool", error, time.monotonic())
            # What is left behind may still change the episode: it is invalid then, and nothing reads it any more.
            calling = [some[row] for row in turns if some[row].said and not some[row].over]
            if calling:
                called_by(partial(each, "tool", calling, called, answer))
            for row, turn in turns.items():
                if some[row].tries:
                    session.take_back(row, turn.ids)
            added = {row: some[row].added for row in turns if not some[row].over}

    # What is there already is not searched for garbage while the batch makes its own: a model's process holds so much
    # that collecting costs as much as all calls of the tools.
    gc.freeze()
    try:
        each("reset", live, opened, _enter, closed)
        each("reset", (one for one in live if one.opened), lambda one: one.episode.observation(), look)
        keys = [f"{salt}/{one.task.task_id}/{one.seed}" for one in live]
        if isinstance(model, PolicyEngine):
            sessions = [model.session(rendering.end, decoding, [key]) for key in keys]
            _apart(
                [partial(play, session, [one]) for session, one in zip(sessions, live, strict=True) if not one.over],
                # The pool bounds the calls at once, as the sandbox has so many slots, and a call's time begins there.
                lambda call: pool.submit(call).result(),
            )
        else:
            play(Session(model, rendering.end, decoding, keys), live, threading.Event(), lambda call: call())
        sound = (one for one in live if one.opened and one.invalid is None)
        each("deliverable", sound, lambda one: one.episode.deliverable(), _hand_in)
    finally:
        gc.unfreeze()
        each("close", live, lambda one: one.stack.close(), lambda _, outcome: outcome.get())
    return [_finish(one, harness) for one in live]


def _apart(plays: Sequence[Callable[[threading.Event, Runs], None]], called_by: Runs) -> None:
    """Play each episode in a thread of its own. Where one raises, the others stop at their next turn."""
    stopped = threading.Event()
    with ThreadPoolExecutor(max(1, min(len(plays), AT_ONCE)), thread_name_prefix="episode") as threads:
        waiting = [threads.submit(one, stopped, called_by) for one in plays]
        try:
            for done in as_completed(waiting):
                done.result()
        except BaseException:  # an interrupt of the caller, too
            stopped.set()
            raise


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


def _enter(one: _Live, outcome: Outcome[tuple[Episode, ExitStack]]) -> None:
    one.episode, one.stack = outcome.get()
    one.opened = True


def _look(
    one: _Live,
    observation: list[Message],
    prompt: Callable[[tuple[Message, ...]], tuple[int, ...]],
    harness: Harness,
) -> None:
    messages = seen(observation)
    one.opening = [message.content for message in messages]
    told_first = [Message(role="system", content=harness.system_prompt)] if harness.system_prompt else []
    one.prompt = one.read = list(prompt((*told_first, *messages)))


def _hear(one: _Live, turn: Turn, rendering: Rendering, harness: Harness) -> None:
    """Take in a turn: as a call to be made, as one that is held back, or as none that is taken back."""
    one.said = None
    sampled = turn.ids[:-1] if turn.finish_reason == "stop" else turn.ids
    call = rendering.call(sampled)
    if turn.finish_reason != "stop":
        call = ToolCall(name="", malformed=rendering.tokenizer.decode(sampled)[:200])
    elif call.malformed is None and call.name not in harness.tools:
        call = ToolCall(name="", malformed=call.name)
    if call.malformed is not None and one.tries < harness.retries and one.spent + 1 < harness.max_calls:
        one.tries += 1
        one.taken_back.append(turn)
        return
    one.tries, one.said = 0, (turn, call)
    before = one.exchanges[-1].call.name if one.exchanges else None
    if harness.holds_back(call.name, before) is not None:
        held_back = ToolResult(content="approval needed", status="refused")
        _answer(one, held_back, rendering, harness, time.monotonic())


def _answer(one: _Live, result: ToolResult, rendering: Rendering, harness: Harness, at: float) -> None:
    """Take in what answers the call that was said."""
    assert one.said is not None
    (turn, call), one.said = one.said, None
    one.exchanges.append(Exchange(one.read, turn, call, result))
    if result.ends_episode or one.spent >= harness.max_calls:
        one.end(at)
    close = [] if turn.finish_reason == "stop" else [rendering.end]
    one.read = close + rendering.result(result.content)


def _hand_in(one: _Live, outcome: Outcome[Deliverable]) -> None:
    one.deliverable = revalidated(Deliverable, outcome.get())


def _finish(one: _Live, harness: Harness) -> Rollout:
    return Rollout(
        task=one.task,
        seed=one.seed,
        opening=one.opening,
        prompt_ids=one.prompt,
        exchanges=one.exchanges,
        deliverable=one.deliverable if one.invalid is None else None,
        invalid=one.invalid,
        latency_s=(one.ended or time.monotonic()) - one.started,
        system=harness.system_prompt,
        taken_back=tuple(one.taken_back),
    )
