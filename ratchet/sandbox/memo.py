"""Remembers executions, so that the same program against the same tests runs once.

Sound, because an execution is a function of the program and the limits: string hashing is fixed, `random` starts from
a fixed seed in the program and from the test's own text in the checker, and no state passes from one execution to the
next. What is left is what a program reads from outside: clocks, the operating system's entropy, object addresses. Two
kinds are therefore never remembered: an execution that hit a limit (a loaded machine may have caused it) and a
program that says `repeatable=False`. A program that a policy wrote can still be unrepeatable without saying so; its
first outcome then stands for later ones in this process, which is the same as having sampled it once. Where that
matters (an audit of flaky tests, a benchmark), use the inner sandbox. `output`, `cpu_s` and `wall_s` are those of the
execution that really ran.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Self

from ratchet.contracts.canonical import digest
from ratchet.sandbox.base import Execution, Program, Sandbox


class MemoSandbox:
    """A `Sandbox` that asks the inner one only for executions it has not seen. Safe to use from several threads."""

    def __init__(self, inner: Sandbox, *, capacity: int = 200_000) -> None:
        """Wrap `inner`, which is closed together with this one.

        Args:
            inner: the sandbox that executes.
            capacity: executions to remember (about 1 KiB each); the one unused for longest is forgotten first.
        """
        self.inner, self.capacity = inner, capacity
        self.limits, self.slots = inner.limits, inner.slots
        self.hits = self.misses = 0
        self._known: OrderedDict[str, Execution] = OrderedDict()
        self._lock = threading.Lock()

    def run(self, program: Program) -> Execution:
        """Return the remembered execution, or execute; see `Sandbox.run`."""
        return self.run_many([program])[0]

    def run_many(self, programs: Sequence[Program]) -> list[Execution]:
        """Execute each distinct unknown program once; see `Sandbox.run_many`."""
        keys = [self._key(index, program) for index, program in enumerate(programs)]
        found: dict[str, Execution] = {}
        wanted: dict[str, Program] = {}
        with self._lock:
            for key, program in zip(keys, programs, strict=True):
                if key in self._known:
                    self._known.move_to_end(key)
                    found[key] = self._known[key]
                elif key not in wanted:
                    wanted[key] = program
            self.misses += len(wanted)
            self.hits += len(programs) - len(wanted)
        for (key, program), execution in zip(wanted.items(), self.inner.run_many(list(wanted.values())), strict=True):
            found[key] = execution
            if program.repeatable and execution.limit is None:
                self._remember(key, execution)
        return [found[key] for key in keys]

    def _key(self, index: int, program: Program) -> str:
        # An unrepeatable program shares its execution with nothing, not even with its double in the same call.
        return digest([program, self.limits]) if program.repeatable else f"call {index}"

    def _remember(self, key: str, execution: Execution) -> None:
        with self._lock:
            self._known[key] = execution
            while len(self._known) > self.capacity:
                self._known.popitem(last=False)

    def close(self) -> None:
        """Close the inner sandbox and forget everything."""
        self.inner.close()
        with self._lock:
            self._known.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
