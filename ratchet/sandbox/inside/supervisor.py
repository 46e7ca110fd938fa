"""Watches one execution from the warm process: limits, the end, and that nothing of it stays.

Limits that a control group records are read by the parent; here are the others: time, output, disk, and, where there is
no control group, memory and processes by looking at them every 40 ms.
"""

from __future__ import annotations

import os
import select
import signal
import time
from typing import Any, NamedTuple

SCRATCH = ("/tmp", "/dev/shm")
_TICK_MS = 40
# With more files than this a new sandbox is sooner there than an empty folder.
_WORTH_WIPING = 2000
_HERTZ = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Supervisor:
    """Watches one execution, ends it at its end or its first limit, and leaves no process and no file of it."""

    def __init__(self, config: dict[str, Any], hostile: int, trusted: int, output: int, started: float) -> None:
        self.config, self.hostile, self.trusted = config, hostile, trusted
        self.output, self.started = output, started
        self.written = 0
        self.ended: dict[int, int] = {}
        self.cpu_s = 0.0
        self.early: int | None = None

    def watch(self) -> dict[str, Any]:
        """Return the report of the execution once every process of it is dead and its files are gone."""
        limit = self._until_end_or_limit()
        if limit is None and not self.config["counted"]:
            limit = self._too_much()
        killed = self.trusted not in self.ended
        while self._kill_others(keep=()):
            self._reap(0)
        while limit is None and self._copy_output():
            if self.written > self.config["output_kb"] << 10:
                limit = "output"
        status = self.ended[self.hostile]
        if self.early is None and not (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL):
            # It left at the same moment as the checker, by itself: the kill came too late to change its status.
            self.early = status
        wall_s = time.monotonic() - self.started
        limit = limit or self._disk_full() or ("cpu" if self.cpu_s > self.config["cpu_s"] else None)
        return {
            "limit": limit,
            "early": self.early,
            "checked": not killed and self.ended[self.trusted] == 0,
            "cpu_s": self.cpu_s,
            "wall_s": wall_s,
            "clean": self._wipe(),
        }

    def _until_end_or_limit(self) -> str | None:
        poller = select.poll()
        trusted, hostile = os.pidfd_open(self.trusted), os.pidfd_open(self.hostile)
        for descriptor in (trusted, hostile, self.output):
            poller.register(descriptor, select.POLLIN)
        poller.register(0, 0)
        next_tick = self.started + _TICK_MS / 1000
        try:
            while True:
                ready = [descriptor for descriptor, _ in poller.poll(_TICK_MS)]
                if 0 in ready:
                    os._exit(0)
                if self.output in ready and not self._copy_output():
                    poller.unregister(self.output)
                if self.written > self.config["output_kb"] << 10:
                    return "output"
                if trusted in ready:
                    self._reap(os.WNOHANG)
                    return None
                if hostile in ready:
                    poller.unregister(hostile)
                    self._program_ended()
                now = time.monotonic()
                if now < next_tick:
                    continue
                next_tick = now + _TICK_MS / 1000
                limit = self._too_much() or self._disk_full()
                if limit is None and now - self.started > self.config["wall_s"]:
                    limit = "wall"
                if limit:
                    return limit
        finally:
            os.close(trusted)
            os.close(hostile)

    def _program_ended(self) -> None:
        """The program's first process has gone: end what it left behind, so that the checker sees its pipe close."""
        self._reap(os.WNOHANG)
        self.early = self.ended.get(self.hostile)
        deadline = time.monotonic() + 1
        while self._kill_others(keep=(self.trusted,)) and time.monotonic() < deadline:
            time.sleep(0.001)
            self._reap(os.WNOHANG)

    def _kill_others(self, keep: tuple[int, ...]) -> bool:
        """Kill every process but this one and `keep`; return whether there was any."""
        if not keep:
            try:
                os.kill(-1, signal.SIGKILL)
            except ProcessLookupError:
                return False
            return True
        others = [pid for pid in _pids() if pid not in keep]
        for pid in others:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        return bool(others)

    def _reap(self, flags: int) -> None:
        while True:
            try:
                pid, status, usage = os.wait4(-1, flags)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self.ended[pid] = status
            self.cpu_s += usage.ru_utime + usage.ru_stime

    def _copy_output(self) -> int:
        # splice, so that what a program prints never enters the memory that later programs inherit.
        try:
            count = os.splice(self.output, self.config["output_fd"], 1 << 16)
        except BrokenPipeError:
            os._exit(0)
        self.written += count
        return count

    def _too_much(self) -> str | None:
        now = _running()
        if self.cpu_s + now.cpu_s > self.config["cpu_s"]:
            return "cpu"
        # Where a cgroup counts memory and processes, its own record is exact and the parent reads that.
        if self.config["counted"]:
            return None
        if now.memory > (self.config["memory_mb"] + self.config["base_mb"]) << 20:
            return "memory"
        own = now.tasks - (self.trusted not in self.ended)
        return "processes" if own > self.config["processes"] else None

    def _disk_full(self) -> str | None:
        for path in SCRATCH:
            state = os.statvfs(path)
            if state.f_bfree * 50 < state.f_blocks or state.f_ffree * 50 < state.f_files:
                return "disk"
        return None

    def _wipe(self) -> bool:
        """Empty the scratch folders; False asks for a new sandbox instead."""
        for scratch in SCRATCH:
            # The folder itself belongs to the program's user: its mode and its times could carry something over.
            os.chmod(scratch, 0o1777)
            state = os.statvfs(scratch)
            if state.f_files - state.f_ffree > _WORTH_WIPING:
                return False
            try:
                _empty(scratch)
            except (OSError, RecursionError):
                return False
            os.utime(scratch, (0, 0))
        return True


def _empty(scratch: str) -> None:
    """Remove what is in a folder; no process is left that could change it meanwhile."""
    for folder, folders, files in os.walk(scratch, topdown=False):
        for name in files:
            os.unlink(f"{folder}/{name}")
        for name in folders:
            path = f"{folder}/{name}"
            if os.path.islink(path):
                os.unlink(path)
            else:
                os.rmdir(path)


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and name != "1"]


class _Usage(NamedTuple):
    cpu_s: float
    memory: int
    tasks: int


def _running() -> _Usage:
    """Add up the living processes: seconds (with those of children they waited for), resident bytes, tasks."""
    ticks = pages = tasks = 0
    for pid in _pids():
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        ticks += sum(int(field) for field in fields[11:15])
        tasks += int(fields[17])
        pages += int(fields[21])
    return _Usage(ticks / _HERTZ, pages * _PAGE, tasks)
