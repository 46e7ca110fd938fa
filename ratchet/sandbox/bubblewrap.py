"""The default backend: bubblewrap around a warm zygote, one per slot, one worker thread per slot.

A thread keeps its own slot, because the kernel ends a slot when the thread that started it ends. A slot that is lost is
started again and the execution retried once; when it is lost again, a harmless probe decides whose fault it is, so
that a program that can take its sandbox down fails as a program and does not become an infrastructure error.
"""

from __future__ import annotations

import atexit
import itertools
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Self

from ratchet.errors import SandboxError
from ratchet.sandbox import cgroups
from ratchet.sandbox.base import Execution, Limit, Limits, Program, TestCase, TestOutcome
from ratchet.sandbox.slot import Slot, SlotLost

PROBE = Program(
    source="def probe(x):\n    return x + 1\n",
    entry_point="probe",
    tests=(TestCase(name="probe", source="assert candidate(1) == 2"),),
)


class BubblewrapSandbox:
    """Runs programs in warm bubblewrap sandboxes. See `ratchet.sandbox.base.Sandbox`."""

    def __init__(self, *, slots: int | None = None, limits: Limits | None = None) -> None:
        """Sweep orphans, start the first slot, and refuse with SandboxError when that is impossible.

        Args:
            slots: executions at one time; default the number of processors this process may use.
            limits: what one execution may use.
        """
        self.limits = limits or Limits()
        self.slots = slots or len(os.sched_getaffinity(0))
        self._owner = os.getpid()
        self._numbers = itertools.count()
        self._mine = threading.local()
        self._started: set[Slot] = set()
        self._lock = threading.Lock()
        self._closed = False
        cgroups.sweep()
        self._workers = ThreadPoolExecutor(self.slots, thread_name_prefix="ratchet-sandbox")
        _open.add(self)
        try:
            self._workers.submit(self._slot).result()
        except BaseException:
            self.close()
            raise

    def run(self, program: Program) -> Execution:
        """Execute one program; see `Sandbox.run`."""
        self._check_open()
        return self._workers.submit(self._execute, program).result()

    def run_many(self, programs: Sequence[Program]) -> list[Execution]:
        """Execute programs on all slots; see `Sandbox.run_many`."""
        self._check_open()
        futures = [self._workers.submit(self._execute, program) for program in programs]
        try:
            return [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()

    def started(self) -> list[Slot]:
        """Return the slots that are warm now."""
        with self._lock:
            return list(self._started)

    def close(self) -> None:
        """End all slots. A sandbox inherited over a fork is left to its owner."""
        if os.getpid() != self._owner:
            return
        with self._lock:
            self._closed = True
        self._workers.shutdown(wait=True, cancel_futures=True)
        for slot in self.started():
            self._end(slot)
        _open.discard(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._closed or os.getpid() != self._owner:
            state = "closed" if self._closed else "opened by another process"
            raise SandboxError("sandbox", seen=state, rule="it must be open here", remedy="call open_sandbox() again")

    def _slot(self) -> Slot:
        slot: Slot | None = getattr(self._mine, "slot", None)
        if slot is None or slot.dirty:
            if slot is not None:
                self._end(slot)
                self._mine.slot = None
            slot = Slot(next(self._numbers), self.limits)
            with self._lock:
                self._started.add(slot)
            self._mine.slot = slot
        return slot

    def _end(self, slot: Slot) -> None:
        with self._lock:
            if slot not in self._started:
                return
            self._started.discard(slot)
        slot.close()

    def _execute(self, program: Program) -> Execution:
        for _ in range(2):
            try:
                return self._slot().execute(program)
            except SlotLost as lost:
                if lost.out_of_memory:
                    return _unfinished(program, "memory")
                last = lost
        try:
            healthy = self._slot().execute(PROBE).passed
        except SlotLost:
            healthy = False
        if healthy:
            return _unfinished(program, "killed")
        raise SandboxError(
            "bubblewrap sandbox",
            seen=str(last),
            rule="an execution must come back",
            remedy="run `ratchet doctor`; if it finds nothing, give the sandbox more memory or fewer slots",
        )


def _unfinished(program: Program, limit: Limit) -> Execution:
    outcomes = tuple(TestOutcome(name=test.name, status="not_run") for test in program.tests)
    return Execution(outcomes=outcomes, limit=limit, cpu_s=0.0, wall_s=0.0)


# Strong references: a sandbox that its user forgot is still closed at exit.
_open: set[BubblewrapSandbox] = set()


@atexit.register
def _close_all() -> None:
    for sandbox in list(_open):
        sandbox.close()
