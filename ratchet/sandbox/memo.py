"""Remembers executions, so that the same program against the same tests runs once.

Sound, because an execution is a function of the program and the limits: string hashing is fixed, `random` starts from
a fixed seed in the program and from the test's own text in the checker, and no state passes from one execution to the
next. What is left is what a program reads from outside: clocks, the operating system's entropy, object addresses. So
a program that says `repeatable=False` is never remembered, and an execution that hit a limit is not either (a loaded
machine may have caused it), with one exception: the limit of processor time counts what the program used, not how
long that took, so a program that hit it twice is taken to be an endless loop. A program that a policy wrote can still
be unrepeatable without saying so; its first outcome then stands for later ones, which is the same as having sampled
it once. Where that matters (an audit of flaky tests, a benchmark), use the inner sandbox. `output`, `cpu_s` and
`wall_s` are those of the execution that really ran.

With a file, the memory outlives the process and is shared by the processes of one home: a training process finds what
the log making before it has run. Only the processes that own a sandbox write it; no program can reach it.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Self

from ratchet.contracts.canonical import digest
from ratchet.sandbox.base import Execution, Program, Sandbox
from ratchet.sandbox.recall import ByIdentity


class _File:
    """Executions by key in a SQLite file."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._connection = sqlite3.connect(path, timeout=60.0, check_same_thread=False, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        # Losing the last entries in a power cut costs only their execution again.
        self._connection.execute("PRAGMA synchronous = OFF")
        self._connection.execute(
            "CREATE TABLE IF NOT EXISTS executions (key TEXT PRIMARY KEY, execution TEXT NOT NULL)"
        )

    def read(self, keys: Iterable[str]) -> dict[str, Execution]:
        rows = (self._connection.execute("SELECT key, execution FROM executions WHERE key = ?", (key,)) for key in keys)
        return {row[0]: Execution.model_validate_json(row[1]) for found in rows for row in found}

    def write(self, key: str, execution: Execution) -> None:
        self._connection.execute("INSERT OR IGNORE INTO executions VALUES (?, ?)", (key, execution.model_dump_json()))

    def close(self) -> None:
        self._connection.close()


class MemoSandbox:
    """A `Sandbox` that asks the inner one only for executions it has not seen. Safe to use from several threads."""

    def __init__(self, inner: Sandbox, *, capacity: int = 200_000, file: Path | None = None) -> None:
        """Wrap `inner`, which is closed together with this one.

        Args:
            inner: the sandbox that executes.
            capacity: executions to remember in this process (about 1 KiB each); the one unused for longest is
                forgotten first.
            file: SQLite file that keeps them beyond the process, or None.
        """
        self.inner, self.capacity = inner, capacity
        self.limits, self.slots = inner.limits, inner.slots
        self.hits = self.misses = 0
        self._known: OrderedDict[str, Execution] = OrderedDict()
        self._endless: set[str] = set()
        by_value: Callable[[Program], str] = lru_cache(maxsize=4096)(lambda program: digest([program, self.limits]))
        self._digest = ByIdentity(by_value)
        self._lock = threading.Lock()
        self._file = _File(file) if file else None

    def run(self, program: Program) -> Execution:
        """Return the remembered execution, or execute; see `Sandbox.run`."""
        if program.repeatable:
            with self._lock:
                known = self._recalled(self._digest(program))
                if known is not None:
                    self.hits += 1
                    return known
        return self.run_many([program])[0]

    def run_many(self, programs: Sequence[Program]) -> list[Execution]:
        """Execute each distinct unknown program once; see `Sandbox.run_many`."""
        keys = [self._key(index, program) for index, program in enumerate(programs)]
        found: dict[str, Execution] = {}
        wanted: dict[str, Program] = {}
        with self._lock:
            for key, program in zip(keys, programs, strict=True):
                known = self._recalled(key)
                if known is not None:
                    found[key] = known
                elif key not in wanted:
                    wanted[key] = program
            for key, execution in self._file.read(wanted).items() if self._file else ():
                self._known[key] = found[key] = execution
                del wanted[key]
            self.misses += len(wanted)
            self.hits += len(programs) - len(wanted)
        for (key, program), execution in zip(wanted.items(), self.inner.run_many(list(wanted.values())), strict=True):
            found[key] = execution
            if program.repeatable and (execution.limit is None or self._again(key, execution)):
                self._remember(key, execution)
        return [found[key] for key in keys]

    def _recalled(self, key: str) -> Execution | None:
        """What this process remembers, used just now; under the lock."""
        known = self._known.get(key)
        if known is not None:
            self._known.move_to_end(key)
        return known

    def _key(self, index: int, program: Program) -> str:
        # An unrepeatable program shares its execution with nothing, not even with its double in the same call.
        return self._digest(program) if program.repeatable else f"call {index}"

    def _again(self, key: str, execution: Execution) -> bool:
        """Whether this execution used up its processor time, and did so before."""
        if execution.limit != "cpu":
            return False
        with self._lock:
            before = key in self._endless
            self._endless.add(key)
        return before

    def _remember(self, key: str, execution: Execution) -> None:
        with self._lock:
            self._known[key] = execution
            if self._file:
                self._file.write(key, execution)
            while len(self._known) > self.capacity:
                self._known.popitem(last=False)

    def close(self) -> None:
        """Close the inner sandbox and forget everything but what the file keeps."""
        self.inner.close()
        with self._lock:
            if self._file:
                self._file.close()
                self._file = None
            self._known.clear()
            self._endless.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
