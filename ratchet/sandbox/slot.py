"""One slot: a warm sandbox process and the exchange of one execution with it.

The parent sends 16 bytes of nonce and one frame for the checker. It gets a frame per outcome from the checker and one
report from the supervisor; both carry nonces of this execution (different ones), and neither goes through any process
that runs hostile code. The report ends the execution.
"""

from __future__ import annotations

import os
import secrets
import select
import subprocess
import time
from typing import Any

from ratchet.errors import SandboxError
from ratchet.sandbox import cgroups, launch
from ratchet.sandbox.base import Execution, Limit, Limits, Program, TestOutcome
from ratchet.sandbox.inside import wire

_START_S = 60.0
_GRACE_S = 15.0
# Address space of the interpreter itself, and the memory of zygote and checker.
_INTERPRETER_MB = 96
_OUTPUT_TAIL = 4096
_SIGNAL_LIMITS: dict[int, Limit] = {24: "cpu", 25: "disk"}  # SIGXCPU, SIGXFSZ


class SlotLost(Exception):
    """The slot's sandbox ended in the middle of an execution."""

    def __init__(self, detail: str, *, out_of_memory: bool) -> None:
        super().__init__(detail)
        self.out_of_memory = out_of_memory


class Slot:
    """A warm sandbox. Not thread-safe; the thread that starts it must outlive it, or the kernel ends it."""

    def __init__(self, number: int, limits: Limits) -> None:
        """Start the sandbox and wait until it is warm. Raises SandboxError with what bwrap or Python said."""
        self.limits = limits
        self.number = number
        self.label = cgroups.label(f"{number}.{secrets.token_hex(4)}")
        # Zygote, checker and bwrap's monitor are in the group beside the program's own processes.
        self.group = cgroups.create(
            self.label,
            memory_mb=limits.memory_mb + 2 * limits.disk_mb + _INTERPRETER_MB,
            processes=limits.processes + 3,
        )
        self._errors = os.memfd_create("ratchet-sandbox-errors")
        self._outcomes, outcomes_write = os.pipe()
        self._output, output_write = os.pipe()
        try:
            self._process = self._start(outcomes_write, output_write)
        except BaseException:
            self._release()
            raise
        finally:
            os.close(outcomes_write)
            os.close(output_write)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._reports = self._process.stdin.fileno(), self._process.stdout.fileno()
        self._seen = self._counters()
        self.dirty = False
        try:
            ready = self._await_report(time.monotonic() + _START_S, {})
        except SlotLost as lost:
            self.close()
            raise SandboxError(
                "bubblewrap sandbox",
                seen=str(lost),
                rule="the sandbox must start",
                remedy="run `ratchet doctor`: it probes each thing the sandbox needs",
            ) from None
        self.python: str = ready["ready"]
        self.landlock: int = ready["landlock"]

    def _start(self, outcomes: int, output: int) -> subprocess.Popen[bytes]:
        limits = self.limits
        counted = self.group is not None
        config = limits.model_dump() | {
            "base_mb": _INTERPRETER_MB,
            "counted": counted,
            # Where a cgroup counts processes, let it refuse first: only a cgroup records that it did. Elsewhere one
            # more than allowed may start, beside zygote and checker, and is seen to be there.
            "nproc": limits.processes + (64 if counted else 3),
            "outcomes_fd": outcomes,
            "output_fd": output,
        }
        return launch.start(
            label=self.label,
            slot=self.number,
            groups=self.group.paths if self.group else [],
            disk_mb=limits.disk_mb,
            config=wire.encode(config, 4096),
            inherit=(outcomes, output),
            stderr=self._errors,
        )

    @property
    def pid(self) -> int:
        """Process id of bwrap's monitor, the parent of the warm process."""
        return self._process.pid

    def execute(self, program: Program) -> Execution:
        """Run one program. Raises SlotLost when the sandbox ends or does not answer in time."""
        supervisor_nonce, checker_nonce = secrets.token_bytes(16), secrets.token_bytes(16)
        request = {
            "nonce": checker_nonce,
            "source": program.source,
            "entry_point": program.entry_point,
            "support": program.support,
            "tests": [test.source for test in program.tests],
        }
        self.dirty = True
        frame = wire.frame(wire.encode(request, wire.REQUEST_LIMIT))
        received: dict[int, bytearray] = {self._outcomes: bytearray(), self._output: bytearray()}
        deadline = time.monotonic() + self.limits.wall_s + _GRACE_S
        report = self._await_report(deadline, received, supervisor_nonce + frame)
        if report.get("nonce") != supervisor_nonce:
            raise SlotLost("the report carries another execution's nonce", out_of_memory=False)
        now, seen = self._counters(), self._seen
        self._seen = now
        self.dirty = not report["clean"]
        found = _outcomes(bytes(received[self._outcomes]), checker_nonce)
        if -1 in found:
            raise SandboxError(
                f"tests of {program.entry_point}",
                seen=found[-1][1],
                rule="trusted tests must compile in the sandbox's Python",
                remedy=f"write them for Python {self.python}",
            )
        outcomes = tuple(
            TestOutcome(name=test.name, status=status, exception=exception, last_value=last_value)
            for test, (status, exception, last_value) in (
                (test, found.get(index, ("not_run", None, None))) for index, test in enumerate(program.tests)
            )
        )
        limit = self._limit(report, now.out_of_memory > seen.out_of_memory, now.refused_forks > seen.refused_forks)
        if limit is None and any(outcome.exception == "MemoryError" for outcome in outcomes):
            limit = "memory"
        if limit is None and any(outcome.status == "not_run" for outcome in outcomes):
            limit = "protocol" if -2 in found else self._end(report)
        return Execution(
            outcomes=outcomes,
            limit=limit,
            output=bytes(received[self._output][-_OUTPUT_TAIL:]).decode("utf-8", "replace"),
            cpu_s=report["cpu_s"],
            wall_s=report["wall_s"],
        )

    def _limit(self, report: dict[str, Any], out_of_memory: bool, refused_forks: bool) -> Limit | None:
        """Name the cause before its effects: a fork bomb also burns its processor time."""
        if out_of_memory:
            return "memory"
        if refused_forks:
            return "processes"
        limit: Limit | None = report["limit"]
        return limit

    def _end(self, report: dict[str, Any]) -> Limit:
        """Say how a program ended that hit no limit of the supervisor and yet left tests unfinished."""
        if not report["checked"]:
            raise SlotLost("the checker ended without a cause", out_of_memory=False)
        status = report["early"]
        if status is None:
            return "killed"
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            if number == 9 and report["cpu_s"] >= self.limits.cpu_s:
                return "cpu"
            return _SIGNAL_LIMITS.get(number, "killed")
        return "exited"

    def _await_report(self, deadline: float, received: dict[int, bytearray], request: bytes = b"") -> dict[str, Any]:
        """Send the request and read every stream until the supervisor's report is whole."""
        poller = select.poll()
        poller.register(self._reports, select.POLLIN)
        for descriptor in received:
            poller.register(descriptor, select.POLLIN)
        unsent = memoryview(request)
        if unsent:
            os.set_blocking(self._requests, False)
            poller.register(self._requests, select.POLLOUT)
        head = bytearray()
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise self._lost("no answer in time")
            ready = [descriptor for descriptor, _ in poller.poll(left * 1000)]
            if self._requests in ready:
                try:
                    unsent = unsent[os.write(self._requests, unsent) :]
                except BrokenPipeError:
                    raise self._lost("the sandbox has ended") from None
                if not unsent:
                    poller.unregister(self._requests)
            for descriptor in received:
                if descriptor in ready:
                    self._receive(descriptor, received[descriptor], poller)
            if self._reports not in ready:
                continue
            part = os.read(self._reports, 4096)
            if not part:
                raise self._lost("the sandbox has ended")
            head += part
            if len(head) >= 4 and len(head) == 4 + int.from_bytes(head[:4], "little"):
                self._drain(received)
                report: dict[str, Any] = wire.decode(bytes(head[4:]))
                return report

    def _receive(self, descriptor: int, into: bytearray, poller: select.poll) -> None:
        part = os.read(descriptor, 1 << 16)
        if not part:
            poller.unregister(descriptor)
        into += part

    def _drain(self, received: dict[int, bytearray]) -> None:
        """Every writer of this execution is dead: what is in the pipes now is all there will be."""
        for descriptor, into in received.items():
            while select.select([descriptor], [], [], 0)[0]:
                part = os.read(descriptor, 1 << 16)
                if not part:
                    break
                into += part

    def _counters(self) -> cgroups.Counters:
        return self.group.counters() if self.group else cgroups.Counters(0, 0)

    def _lost(self, what: str) -> SlotLost:
        said = os.pread(self._errors, 1 << 20, 0)[-2000:].decode("utf-8", "replace").strip()
        out_of_memory = self._counters().out_of_memory > self._seen.out_of_memory
        return SlotLost(f"{what}: {said}" if said else what, out_of_memory=out_of_memory)

    def close(self) -> None:
        """End the sandbox and remove its group."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        # bwrap's monitor takes the whole pid namespace with it (--die-with-parent).
        self._process.kill()
        self._process.wait()
        self._release()

    def _release(self) -> None:
        if self.group:
            self.group.remove()
        for descriptor in (self._outcomes, self._output, self._errors):
            os.close(descriptor)


def _outcomes(data: bytes, nonce: bytes) -> dict[int, tuple[Any, Any, Any]]:
    """Read the checker's frames; a frame that was cut off by a kill or has another nonce counts for nothing."""
    found: dict[int, tuple[Any, Any, Any]] = {}
    at = 0
    while at + 4 <= len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "little")
        if end > len(data):
            break
        its_nonce, index, status, exception, last_value = wire.decode(data[at + 4 : end])
        if secrets.compare_digest(its_nonce, nonce):
            found[index] = (status, exception, last_value)
        at = end
    return found
