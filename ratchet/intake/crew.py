"""The crew: worker processes that judge pieces, and give back what they came to in the order of the pieces.

The rows of a big piece lie in files then, as `handover` has them. No more pieces are under way than keep the workers
busy, so that memory does not grow with the input. Little input is judged in this process: starting workers takes
longer. A worker that dies is one clear error; Ctrl-C reaches this process alone, which stops the workers.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import cached_property
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Self, TypeVar

from ratchet.errors import IntakeError
from ratchet.intake.judging import Judge, Outcome, Piece, Rules

Given = TypeVar("Given")
Got = TypeVar("Got")
_COLLECT_EVERY = 16
"""Pieces after which a worker looks for garbage in cycles, of which judging makes next to none."""

_AHEAD = 6
"""Pieces for each worker that are under way, so that none waits while what came before is published."""
_AHEAD_IN_MEMORY = 2
"""The same of pieces that are unpacked, and so held in memory here."""
_LOOK_S = 1.0
"""Seconds of waiting after which it is looked whether every worker lives."""
_KEPT_BYTES = 1 << 30
_MAPPED_BYTES = 32 << 20


class Crew:
    """Judges pieces in order, `workers` at a time. Use it as a context, so that its processes end."""

    def __init__(self, rules: Rules, workers: int, folder: Path) -> None:
        """Start nothing yet.

        Args:
            rules: what holds for all pieces.
            workers: how many; with fewer than two this process does the work.
            folder: where they put files, which are the writer's to take.
        """
        self._rules, self._workers, self._folder = rules, workers, folder
        self._waiting: deque[tuple[Callable[[], Outcome], Callable[[Outcome], None]]] = deque()

    def submit(self, piece: Piece, done: Callable[[Outcome], None]) -> None:
        """Have a piece judged; `done` is called with what it came to, in the order of submission, from here or later.

        Raises:
            IntakeError: a piece cannot be read, or a worker has died.
        """
        if self._workers < 2:
            done(self._own.judge(piece))
            return
        future = self._sent(_judge, piece)
        self._waiting.append((lambda: _received(future, self._pool), done))
        ahead = _AHEAD if isinstance(piece.place, Path) else _AHEAD_IN_MEMORY
        while len(self._waiting) > ahead * self._workers:
            self._next()

    def named(self, names: Sequence[str]) -> list[str]:
        """Return names of files as they may be stored, as `SecretScanner.named`. Raises as `submit`."""
        if self._workers < 2:
            return self._own.named(names)
        # Not here: to load the rules once more takes half a second.
        return _received(self._sent(_named, list(names)), self._pool)

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

    def _sent(self, work: Callable[[Given], Got], given: Given) -> Future[Got]:
        try:
            return self._pool.submit(work, given)
        except BrokenProcessPool:
            raise _died() from None

    @cached_property
    def _own(self) -> Judge:
        return Judge(self._rules, self._folder)

    @cached_property
    def _pool(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(
            self._workers,
            # A fork would copy the locks of this process's threads.
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_start,
            initargs=(self._rules, self._folder),
        )


def cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


_judge_here: Judge
_judged = 0


def _start(rules: Rules, folder: Path) -> None:
    global _judge_here
    # Ctrl-C goes to the whole group: it is the parent that decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()
    _leave_pandas_out()
    _keep_memory()
    _judge_here = Judge(rules, folder)
    gc.freeze()


class _WithoutPandas(MetaPathFinder):
    """Finds no pandas."""

    def find_spec(self, name: str, path: object, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name=name)


def _leave_pandas_out() -> None:
    """Have pyarrow find no pandas: it would load it, a third of a second, to see whether a list is one of its own."""
    import pyarrow as pa

    none = _WithoutPandas()
    sys.meta_path.insert(0, none)
    try:
        pa.array([])  # it looks once
    finally:
        sys.meta_path.remove(none)


def _keep_memory() -> None:
    """Have memory that was freed kept for the next piece: to ask the system for it again costs as much as decoding."""
    import ctypes

    import pyarrow as pa

    pa.set_memory_pool(pa.system_memory_pool())
    adjust = getattr(ctypes.CDLL(None), "mallopt", None)
    if adjust is not None:  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of the GNU C library
        adjust(-1, _KEPT_BYTES)
        adjust(-3, _MAPPED_BYTES)


def _ready() -> None:
    """Do nothing, in a worker that is started for it."""


def _judge(piece: Piece) -> Outcome:
    global _judged
    outcome = _judge_here.judge(piece)
    _judged += 1
    if _judged % _COLLECT_EVERY == 0:
        gc.collect()
    return outcome


def _named(names: list[str]) -> list[str]:
    return _judge_here.named(names)


def _received(future: Future[Got], pool: ProcessPoolExecutor) -> Got:
    while True:
        try:
            return future.result(_LOOK_S)
        except BrokenProcessPool:
            raise _died() from None
        except TimeoutError:
            if future.done():
                raise
            if any(not worker.is_alive() for worker in list((pool._processes or {}).values())):
                _end(pool)


def _end(pool: ProcessPoolExecutor) -> None:
    """End a pool of which a worker died: one that died while it wrote leaves the pool waiting for the rest for ever.

    The pool sees the end of its pipe once nobody holds the other side of it, and is then broken as it should be.
    """
    for worker in list((pool._processes or {}).values()):
        worker.kill()
    writer = pool._result_queue._writer  # type: ignore[attr-defined]
    if not writer.closed:
        writer.close()


def _died() -> IntakeError:
    return IntakeError(
        "a worker process of the intake",
        rule="it must not end before its work is done: it was killed, or ran out of memory",
        remedy="ingest again, with fewer workers or more memory; what was published before stays and is not read twice "
        "into the store",
    )
