"""The episode loop: many episodes at once, the engine's batch full, a dead episode never a crash.

One failure of the infrastructure (reset, tool, sandbox) makes that episode invalid with its reason; everything the
policy does is data. What an environment hands over is checked before anything rests on it, and every call of it is left
behind where it takes longer than the whole episode may and `GRACE_S`. Resets, the tool calls of a turn, and hand-ins
that take long run in several threads, since the sandbox has several slots. The tool calls of an environment that states
`bounded` are made in between the turns, by the thread that samples: to hand them to another one costs more than most of
them take. From the first that takes long, those of the turn are made like any others.

On a server each episode takes its turns by itself: one that waits for a tool leaves the batch, which the server fills
with the others. In this process a turn waits for all of its tool calls. To go on with those that are answered would
make the batch, and with it the last digits of log-probabilities and the weights that are trained on them, depend on how
long calls take; a server's last digits depend on what arrives together anyway.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from functools import cache, partial
from typing import TYPE_CHECKING, TypeVar

from ratchet.contracts.environment import Environment, Episode, Message, Task, ToolResult, bounded
from ratchet.contracts.policy import Decoding, Harness
from ratchet.deadline import HELP_AFTER_S, Outcome, all_within
from ratchet.policies.rendering import Rendering
from ratchet.rollouts.checked import checked_result
from ratchet.rollouts.engine import Conversations, PolicyEngine, Session
from ratchet.rollouts.garbage import seldom_collected
from ratchet.rollouts.live import Live, call_limit_s, closed, entered
from ratchet.rollouts.rollout import Rollout

if TYPE_CHECKING:
    from transformers import PreTrainedModel

T = TypeVar("T")
Runs = Callable[[Callable[[], None]], None]
"""Runs calls of the environment, and returns when they are back."""
AT_ONCE = 256
"""Episodes that take turns on a server at once."""


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
    live = [Live(task, seed, rendering, harness) for task, seed in requests]
    # Tokenizers are not made for several threads.
    one_at_a_time = threading.Lock()

    @cache
    def prompt(messages: tuple[Message, ...]) -> tuple[int, ...]:
        """Render an opening once: the attempts of a group open alike, and a template takes longer than all else."""
        return tuple(rendering.prompt(list(messages)))

    def each(
        phase: str,
        some: Iterable[Live],
        call: Callable[[Live], T],
        take: Callable[[Live, Outcome[T]], None],
        late: Callable[[T], object] | None = None,
    ) -> None:
        """Make a call of the environment for each of some episodes, and take in what comes back."""
        asked = list(some)
        # What is left behind may still change the episode: it is invalid then, and nothing reads it any more.
        outcomes = all_within(limit_s, [partial(call, one) for one in asked], pool=pool, late=late)
        for one, outcome in zip(asked, outcomes, strict=True):
            try:
                take(one, outcome)
            except Exception as error:  # the one capture point: a failing environment is data, not a crash
                one.fail(phase, error, outcome.ended)

    def opened(one: Live) -> tuple[Episode, ExitStack]:
        return entered(environment, one.task, one.seed, harness.options)

    def answer(one: Live, outcome: Outcome[ToolResult]) -> None:
        with one_at_a_time:
            one.answer(checked_result(outcome.get()), outcome.ended)

    def play(
        session: Conversations, some: Sequence[Live], stopped: threading.Event, called_by: Runs, *, here: bool
    ) -> None:
        """Take turns with some episodes until all of them are over, or the batch is stopped.

        Args:
            session: their conversations.
            some: the episodes, by row.
            stopped: stops the batch at the next turn.
            called_by: runs the calls of a turn.
            here: make calls in this thread as long as they are quick.
        """
        added = {row: one.added for row, one in enumerate(some) if not one.over}
        while added and not stopped.is_set():
            turns = session.turn(added)
            calling: list[Live] = []
            quick = here
            for row, turn in turns.items():
                one = some[row]
                try:
                    with one_at_a_time:
                        one.hear(turn)
                    if one.said is None or one.over:
                        continue
                    if not quick:
                        calling.append(one)
                        continue
                    began, outcome = time.monotonic(), _called(one)
                    quick = outcome.ended - began < HELP_AFTER_S
                    answer(one, outcome)
                except Exception as error:  # also a template or codec that fails on what this policy said
                    one.fail("tool", error, time.monotonic())
            if calling:
                called_by(partial(each, "tool", calling, Live.call, answer))
            for row, turn in turns.items():
                if some[row].tries:
                    session.take_back(row, turn.ids)
            added = {row: some[row].added for row in turns if not some[row].over}

    with seldom_collected(), ExitStack() as closing:
        closing.callback(each, "close", live, lambda one: one.stack.close(), lambda _, outcome: outcome.get())
        each("reset", live, opened, Live.enter, closed)
        some = (one for one in live if one.opened)
        each("reset", some, lambda one: one.episode.observation(), lambda one, back: one.look(back, prompt))
        keys = [f"{salt}/{one.task.task_id}/{one.seed}" for one in live]
        if isinstance(model, PolicyEngine):
            sessions = [model.session(rendering.end, decoding, [key]) for key in keys]
            _apart(
                [
                    partial(play, session, [one], here=False)
                    for session, one in zip(sessions, live, strict=True)
                    if not one.over
                ],
                # The pool bounds the calls at once, as the sandbox has so many slots, and a call's time begins there.
                lambda call: pool.submit(call).result(),
            )
        else:
            session = Session(model, rendering.end, decoding, keys)
            play(session, live, threading.Event(), lambda call: call(), here=bounded(environment))
        sound = (one for one in live if one.opened and one.invalid is None)
        each("deliverable", sound, lambda one: one.episode.deliverable(), Live.hand_in)
    return [one.rollout() for one in live]


def _called(one: Live) -> Outcome[ToolResult]:
    """Make a call in this thread; what interrupts it, unlike in a watching thread, was meant for the caller."""
    try:
        return Outcome(one.call(), None, time.monotonic())
    except Exception as error:
        return Outcome(None, error, time.monotonic())


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
