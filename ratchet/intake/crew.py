"""The crew: worker processes that judge pieces, and give back what they came to in the order of the pieces.

Parts travel as Arrow IPC. No more pieces are under way than keep the workers busy, so that memory does not grow with
the input. Little input is judged in this process: starting workers takes longer. A worker that dies is one clear
error; Ctrl-C reaches this process alone, which stops the workers.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from ratchet.errors import IntakeError
from ratchet.intake.batch import Part
from ratchet.intake.judging import Judge, Outcome, Piece, Rules, Tally

if TYPE_CHECKING:
    import pyarrow as pa

_COLLECT_EVERY = 16
"""Pieces after which a worker looks for garbage in cycles, of which judging makes next to none."""


@dataclass(frozen=True)
class _Sent:
    """An outcome on its way between two processes."""

    parts: list[tuple[bytes, bytes, bytes, list[dict[str, Any]]]]
    tally: Tally
    clean: bool


class Crew:
    """Judges pieces in order, `workers` at a time. Use it as a context, so that its processes end."""

    def __init__(self, rules: Rules, workers: int) -> None:
        """Start nothing yet; with fewer than two workers this process does the work."""
        self._rules, self._workers = rules, workers
        self._waiting: deque[tuple[Callable[[], Outcome], Callable[[Outcome], None]]] = deque()

    def submit(self, piece: Piece, done: Callable[[Outcome], None]) -> None:
        """Have a piece judged; `done` is called with what it came to, in the order of submission, from here or later.

        Raises:
            IntakeError: a piece cannot be read, or a worker has died.
        """
        if self._workers < 2:
            done(self._own.judge(piece))
            return
        try:
            future = self._pool.submit(_judge, piece)
        except BrokenProcessPool:
            raise _died() from None
        self._waiting.append((lambda: _received(future), done))
        while len(self._waiting) > 2 * self._workers:
            self._next()

    def finish(self) -> None:
        """Wait for everything that was submitted. Raises as `submit`."""
        while self._waiting:
            self._next()

    def __enter__(self) -> Self:
        # They load their rules while this process loads its own.
        for _ in range(self._workers if self._workers > 1 else 0):
            self._pool.submit(_ready)
        return self

    def __exit__(self, *_: object) -> None:
        if "_pool" in self.__dict__:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def _next(self) -> None:
        outcome, done = self._waiting.popleft()
        done(outcome())

    @cached_property
    def _own(self) -> Judge:
        return Judge(self._rules)

    @cached_property
    def _pool(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(
            self._workers,
            # A fork would copy the locks of this process's threads.
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_start,
            initargs=(self._rules,),
        )


def cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


_judge_here: Judge
_judged = 0


def _start(rules: Rules) -> None:
    global _judge_here
    # Ctrl-C goes to the whole group: it is the parent that decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()
    _judge_here = Judge(rules)
    gc.freeze()


def _ready() -> None:
    """Do nothing, in a worker that is started for it."""


def _judge(piece: Piece) -> _Sent:
    global _judged
    outcome = _judge_here.judge(piece)
    _judged += 1
    if _judged % _COLLECT_EVERY == 0:
        gc.collect()
    parts = [
        (_packed(part.trajectories), _packed(part.index), _packed(part.events), part.quarantine)
        for part in outcome.parts
    ]
    return _Sent(parts, outcome.tally, outcome.clean)


def _received(future: Future[_Sent]) -> Outcome:
    try:
        sent = future.result()
    except BrokenProcessPool:
        raise _died() from None
    parts = [
        Part(_unpacked(trajectories), _unpacked(index), _unpacked(events), quarantine)
        for trajectories, index, events, quarantine in sent.parts
    ]
    return Outcome(parts, sent.tally, sent.clean)


def _packed(table: pa.Table) -> bytes:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def _unpacked(data: bytes) -> pa.Table:
    import pyarrow as pa

    return pa.ipc.open_stream(data).read_all()


def _died() -> IntakeError:
    return IntakeError(
        "a worker process of the intake",
        rule="it must not end before its work is done: it was killed, or ran out of memory",
        remedy="ingest again, with fewer workers or more memory; what was published before stays and is not read twice "
        "into the store",
    )
