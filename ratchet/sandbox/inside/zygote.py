"""The warm process of a slot: pid 1 of the sandbox, forks a checker and a candidate for each execution and supervises.

Order matters: the candidate is forked before anything of the execution is read, and only the checker ever reads the
request, so neither the tests of this execution nor of an earlier one are in the memory that hostile code inherits.
Descriptors: 0 requests (16 bytes of nonce, then a frame for the checker), 1 the supervisor's reports, and two more,
named in the configuration, for outcomes and for the program's output. As pid 1 it cannot be killed from inside, adopts
every orphan, and its own end takes the whole tree with it.
"""

from __future__ import annotations

import gc
import os
import random
import resource
import select
import shutil
import signal
import sys
import sysconfig
import time
from typing import Any, NamedTuple, NoReturn

from ratchet.sandbox.inside import candidate, checker, landlock, wire

_SCRATCH = ("/tmp", "/dev/shm")
_TICK_MS = 40
# With more files than this a new sandbox is sooner there than an empty folder.
_WORTH_WIPING = 2000
_HERTZ = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def main() -> NoReturn:
    """Prepare everything that executions share, say so, and serve until the parent has gone."""
    config: dict[str, Any] = wire.decode(bytes.fromhex(sys.argv[1]))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN if os.getpid() == 1 else signal.SIG_DFL)
    rules = _ruleset() if landlock.abi() else None
    landlock.hide()
    gc.collect()
    gc.freeze()
    gc.disable()
    version = ".".join(str(part) for part in sys.version_info[:3])
    wire.write(1, wire.frame(wire.encode({"ready": version, "landlock": landlock.abi()}, 4096)))
    waiting = select.poll()
    waiting.register(0, select.POLLIN)
    while True:
        waiting.poll()
        report = _execute(config, rules)
        wire.write(1, wire.frame(wire.encode(report, 4096)))
        if not report["clean"]:
            os._exit(0)


def _ruleset() -> int:
    libraries = {os.path.realpath(path) for path in ("/lib", "/lib64", "/usr/lib/x86_64-linux-gnu")}
    triplet = sysconfig.get_config_var("MULTIARCH")
    readable = {
        sysconfig.get_path("stdlib"),
        sysconfig.get_path("platstdlib"),
        "/usr/share/zoneinfo",
        "/etc/ld.so.cache",
    }
    readable |= {path for path in libraries if path != "/usr/lib"}
    if triplet:
        readable.add(f"/usr/lib/{triplet}")
    rules = [(path, landlock.READ if os.path.isdir(path) else landlock.READ & ~8) for path in sorted(readable)]
    rules += [(path, landlock.SCRATCH) for path in _SCRATCH]
    rules += [(f"/dev/{name}", landlock.DEVICE) for name in ("null", "zero", "urandom", "random")]
    return landlock.ruleset(rules)


def _execute(config: dict[str, Any], rules: int | None) -> dict[str, Any]:
    started = time.monotonic()
    calls_read, calls_write = os.pipe()
    answers_read, answers_write = os.pipe()
    output_read, output_write = os.pipe()
    hostile = os.fork()
    if hostile == 0:
        _become_candidate(config, rules, calls_read, answers_write, output_write)
    try:
        nonce = wire.read_exactly(0, 16)
    except wire.Closed:
        os._exit(0)
    trusted = os.fork()
    if trusted == 0:
        for descriptor in (calls_read, answers_write, output_read, output_write, 1):
            os.close(descriptor)
        _become_checker(config, rules, calls_write, answers_read)
    for descriptor in (calls_read, calls_write, answers_read, answers_write, output_write):
        os.close(descriptor)
    supervisor = _Supervisor(config, hostile, trusted, output_read, started)
    report = supervisor.watch()
    os.close(output_read)
    return {"nonce": nonce, **report}


def _become_candidate(config: dict[str, Any], rules: int | None, calls: int, answers: int, output: int) -> NoReturn:
    try:
        os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
        if rules is not None:
            landlock.restrict(rules)
        os.dup2(output, 1)
        os.dup2(output, 2)
        # Above every descriptor in use, then down to the two fixed places: neither copy may overwrite the other.
        calls, answers = os.dup2(calls, 200), os.dup2(answers, 201)
        os.dup2(calls, 3)
        os.dup2(answers, 4)
        os.closerange(5, 1024)
        memory, disk = config["memory_mb"] << 20, config["disk_mb"] << 20
        seconds = int(config["cpu_s"]) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
        resource.setrlimit(resource.RLIMIT_AS, (memory + config["base_mb"] * (1 << 20),) * 2)
        resource.setrlimit(resource.RLIMIT_FSIZE, (disk + (1 << 20),) * 2)
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_NPROC, (config["nproc"],) * 2)
        os.chdir("/tmp")
        # Python reseeds `random` from the system's entropy in every fork; an execution must repeat.
        random.seed(0)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        gc.enable()
        candidate.serve(3, 4, config["value_kb"] << 10)
    finally:
        os._exit(0)


def _become_checker(config: dict[str, Any], rules: int | None, requests: int, answers: int) -> NoReturn:
    outcomes, code = config["outcomes_fd"], 1
    try:
        # Read whole before the program is loaded: no hostile code runs while the shared stream is half read.
        request = wire.read_frame(0, wire.REQUEST_LIMIT)
        os.dup2(os.open("/dev/null", os.O_RDWR), 0)
        os.dup2(0, 1)
        os.dup2(0, 2)
        if rules is not None:
            landlock.restrict(rules)
        limit = config["value_kb"] << 10

        def report(outcome: tuple[Any, ...]) -> None:
            wire.write(outcomes, wire.frame(wire.encode((request["nonce"], *outcome), wire.REQUEST_LIMIT)))

        program = checker.Candidate(requests, answers, limit)
        program.hello()
        try:
            checker.run(request, program, report)
        except SyntaxError as error:
            report((-1, "unusable", f"{error.filename}: {error.msg}", None))
        if program.malformed:
            report((-2, "protocol", None, None))
        code = 0
    finally:
        os._exit(code)


class _Supervisor:
    """Watches one execution, ends it at its end or its first limit, and leaves no process and no file of it."""

    def __init__(self, config: dict[str, Any], hostile: int, trusted: int, output: int, started: float) -> None:
        self.config, self.hostile, self.trusted = config, hostile, trusted
        self.output, self.started = output, started
        self.written = 0
        self.ended: dict[int, int] = {}
        self.cpu_s = 0.0
        self.early: int | None = None

    def watch(self) -> dict[str, Any]:
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
        for path in _SCRATCH:
            state = os.statvfs(path)
            if state.f_bfree * 50 < state.f_blocks or state.f_ffree * 50 < state.f_files:
                return "disk"
        return None

    def _wipe(self) -> bool:
        """Empty the scratch folders; False asks for a new sandbox instead."""
        deadline = time.monotonic() + 1
        for folder in _SCRATCH:
            # The folder itself belongs to the program's user: its mode and its times could carry something over.
            os.chmod(folder, 0o1777)
            state = os.statvfs(folder)
            if state.f_files - state.f_ffree > _WORTH_WIPING:
                return False
            for name in os.listdir(folder):
                path = f"{folder}/{name}"
                try:
                    if os.path.isdir(path) and not os.path.islink(path):
                        shutil.rmtree(path)
                    else:
                        os.unlink(path)
                except (OSError, RecursionError):
                    return False
                if time.monotonic() > deadline:
                    return False
            os.utime(folder, (0, 0))
        return True


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


if __name__ == "__main__":
    main()
