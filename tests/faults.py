"""Faults to order: the real environment on a real sandbox, of which one part fails as told, for some attempts.

A part fails for an attempt a number of times and is whole afterwards. What hangs does so until `release` is called.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ratchet.contracts.environment import Deliverable, Message, Task, ToolCall, ToolResult, Verdict
from ratchet.environments.repair import RepairEnvironment
from ratchet.environments.repair.episode import RepairEpisode
from ratchet.sandbox import Program, Sandbox
from ratchet.sandbox.base import Execution
from ratchet.sandbox.bubblewrap import BubblewrapSandbox
from ratchet.sandbox.slot import Slot

PLACES = ("reset", "tool", "sandbox", "deliverable", "close", "verifier")
KINDS = ("raise", "hang", "kill", "garbage", "nan")
ALWAYS = 1_000_000
NAN = float("nan")
GARBAGE: dict[str, Any] = {
    "reset": Message.model_construct(role="user", content=None),
    "tool": {"content": "passed all", "status": "ok"},
    "sandbox": object(),
    "deliverable": "def f(): pass",
    "close": None,
    "verifier": True,
}
NANS: dict[str, Any] = {
    "reset": Message.model_construct(role="user", content=NAN),
    "tool": ToolResult.model_construct(content="passed all", status="ok", violation=None, sandbox_s=NAN),
    "sandbox": Execution.model_construct(outcomes=(), limit=None, output="", cpu_s=NAN, wall_s=NAN),
    "deliverable": Deliverable.model_construct(submitted=NAN, files={"solution.py": NAN}, visible_passed=None),
    "verifier": Verdict.model_construct(target_passed=NAN, regression_passed=True, tests=("t",), verifier_s=NAN),
}
released = threading.Event()


class Fault(NamedTuple):
    """What fails, how, and how often for one attempt."""

    place: str
    kind: str
    times: int = ALWAYS


def fail(fault: Fault, instead: Callable[[], Any]) -> Any:
    """Fail as told; `instead` really kills something."""
    if fault.kind == "raise":
        raise OSError(f"{fault.place} died")
    if fault.kind == "hang":
        released.wait(60)
        raise OSError("released")
    if fault.kind == "kill":
        return instead()
    return GARBAGE[fault.place] if fault.kind == "garbage" else NANS[fault.place]


def end_of_process() -> Any:
    """What a library does that takes its own failure for the end of the program."""
    raise SystemExit(137)


class KilledSandbox(BubblewrapSandbox):
    """A real sandbox whose processes are killed as soon as they are warm."""

    def _slot(self) -> Slot:
        slot = super()._slot()
        os.kill(slot.pid, signal.SIGKILL)
        return slot


class FaultySandbox:
    """A sandbox that fails as told while its attempt has faults left; else the real one."""

    def __init__(self, inner: Sandbox, fault: Fault, left: Callable[[], bool]) -> None:
        self.inner, self.fault, self.left = inner, fault, left
        self.limits, self.slots = inner.limits, inner.slots

    def run(self, program: Program) -> Execution:
        if not self.left():
            return self.inner.run(program)

        def killed() -> Execution:
            with KilledSandbox(slots=1, limits=self.limits) as sandbox:
                return sandbox.run(program)

        found: Execution = fail(self.fault, killed)
        return found

    def run_many(self, programs: Sequence[Program]) -> list[Execution]:
        return [self.run(program) for program in programs]


class Faulty:
    """The environment `repair` with faults by attempt: task id and seed, or task id alone."""

    bounded = False

    def __init__(self, inner: RepairEnvironment, faults: Mapping[Any, Fault]) -> None:
        self.inner, self.spec, self.faults = inner, inner.spec, faults
        self.opened: Counter[tuple[str, int]] = Counter()
        self.verified: Counter[str] = Counter()
        self.struck: Counter[Any] = Counter()
        self._lock = threading.Lock()

    def strike(self, place: str, task: Task, seed: int | None) -> Fault | None:
        """The fault of this part for an attempt, where it has one left; `seed` is None for a verification."""
        key = (task.task_id, seed) if (task.task_id, seed) in self.faults else task.task_id
        fault = self.faults.get(key)
        if fault is None or fault.place != place:
            return None
        with self._lock:
            self.struck[key] += 1
            return fault if self.struck[key] <= fault.times else None

    def open(self, task: Task, seed: int) -> FaultyEpisode:
        with self._lock:
            self.opened[(task.task_id, seed)] += 1
        return FaultyEpisode(self, task, seed)

    def verify(self, task: Task, deliverable: Deliverable) -> Verdict:
        with self._lock:
            self.verified[task.task_id] += 1
        if fault := self.strike("verifier", task, None):
            found: Verdict = fail(fault, end_of_process)
            return found
        return self.inner.verify(task, deliverable)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class FaultyEpisode(RepairEpisode):
    """An attempt of which one part fails."""

    def __init__(self, outer: Faulty, task: Task, seed: int) -> None:
        self.outer, self.seed = outer, seed
        sandbox: Any = outer.inner.sandbox
        fault = outer.faults.get((task.task_id, seed)) or outer.faults.get(task.task_id)
        if fault is not None and fault.place == "sandbox":
            sandbox = FaultySandbox(sandbox, fault, lambda: outer.strike("sandbox", task, seed) is not None)
        super().__init__(task, outer.spec, sandbox, "short", outer.inner.true_fix)

    def observation(self) -> list[Message]:
        if fault := self.outer.strike("reset", self.task, self.seed):
            return [fail(fault, end_of_process)]
        return super().observation()

    def call(self, call: ToolCall) -> ToolResult:
        if self.calls == 1 and (fault := self.outer.strike("tool", self.task, self.seed)):
            found: ToolResult = fail(fault, end_of_process)
            return found
        return super().call(call)

    def deliverable(self) -> Deliverable:
        if fault := self.outer.strike("deliverable", self.task, self.seed):
            found: Deliverable = fail(fault, end_of_process)
            return found
        return super().deliverable()

    def __exit__(self, *error: Any) -> None:
        if fault := self.outer.strike("close", self.task, self.seed):
            fail(fault, end_of_process)
        super().__exit__(*error)
