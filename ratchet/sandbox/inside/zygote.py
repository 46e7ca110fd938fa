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
import signal
import sys
import time
from typing import Any, NoReturn

from ratchet.sandbox.inside import candidate, checker, landlock, supervisor, wire

_RESERVE = 4 << 20
"""Address space, beyond what a program may take, in which it is told that it took everything."""


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
    # The interpreter's own folder and the places of shared libraries; `sysconfig` knows more, for a megabyte.
    multiarch = getattr(sys.implementation, "_multiarch", "")
    readable = {os.path.dirname(os.__file__), "/usr/share/zoneinfo", "/etc/ld.so.cache", f"/usr/lib/{multiarch}"}
    readable |= {os.path.realpath(path) for path in ("/lib", "/lib64")}
    # Too wide: where libraries lie in /usr/lib itself, a program does without extensions that load more of them.
    readable -= {"/usr/lib", "/usr/lib/"}
    rules = [(path, landlock.READ if os.path.isdir(path) else landlock.READ_FILE) for path in sorted(readable)]
    rules += [(path, landlock.SCRATCH) for path in supervisor.SCRATCH]
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
    # The program sees its pipe close only after the supervisor has: until then its processes are there to be counted.
    for descriptor in (calls_read, answers_read, answers_write, output_write):
        os.close(descriptor)
    report = supervisor.Supervisor(config, hostile, trusted, output_read, started).watch()
    for descriptor in (calls_write, output_read):
        os.close(descriptor)
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
        space = memory + (config["base_mb"] << 20)
        resource.setrlimit(resource.RLIMIT_AS, (space, space + _RESERVE))
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


if __name__ == "__main__":
    main()
