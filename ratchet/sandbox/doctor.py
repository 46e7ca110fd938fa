"""Probes everything the sandbox needs on this machine, each by really using it.

A finding that is not ok means that no sandbox can be opened here. A finding that is ok but has a remedy means that one
line of defence is missing and others stand in; the detail says which.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from contextlib import ExitStack

from ratchet.errors import SandboxError
from ratchet.sandbox import cgroups, launch
from ratchet.sandbox.base import Finding, Program, TestCase
from ratchet.sandbox.bubblewrap import BubblewrapSandbox
from ratchet.sandbox.inside import landlock
from ratchet.sandbox.syscalls import filter_program

_FULL_LANDLOCK = 6
# Reports what worked that must not: the answer of a sound sandbox is an empty list.
_BREAKOUT = Program(
    source="""
import os, socket

def attempts():
    worked = []
    for name, attempt in (
        ("network", lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM)),
        ("host files", lambda: open("/etc/passwd")),
        ("host processes", lambda: open("/proc/1/environ")),
        ("writing to the system", lambda: open("/usr/ratchet", "w")),
        ("running programs", lambda: os.execv("/usr/bin/env", ["env"])),
        ("changing the kernel", lambda: open("/proc/sys/kernel/core_pattern", "r+")),
    ):
        try:
            attempt()
            worked.append(name)
        except OSError:
            pass
    return worked
""",
    entry_point="attempts",
    tests=(TestCase(name="isolation", source="assert candidate() == []"),),
)


def diagnose() -> list[Finding]:
    """Probe the bubblewrap backend; the last finding is a real execution, tried only when all before it are ok."""
    probes: list[tuple[str, Callable[[], tuple[str, str]]]] = [
        ("bubblewrap", _bubblewrap),
        ("system python", _interpreter),
        ("seccomp", _seccomp),
        ("user namespaces", _namespaces),
        ("control groups", _control_groups),
        ("landlock", _landlock),
    ]
    findings = [_probe(name, probe) for name, probe in probes]
    if all(finding.ok for finding in findings):
        findings.append(_probe("isolation", _isolation))
    return findings


def _probe(name: str, probe: Callable[[], tuple[str, str]]) -> Finding:
    try:
        detail, remedy = probe()
    except SandboxError as error:
        return Finding(name, False, str(error), error.remedy)
    return Finding(name, True, detail, remedy)


def _bubblewrap() -> tuple[str, str]:
    with ExitStack() as stack:
        entry = launch.enter(stack, 0)
        version = _said([*entry.command, "--version"], "bwrap", entry=entry)
    return f"{version} at {launch.find_bwrap().path}", ""


def _interpreter() -> tuple[str, str]:
    path = launch.find_interpreter()
    version = _said([path, "-I", "-S", "-c", "import sys; print('%d.%d.%d' % sys.version_info[:3])"], path)
    if tuple(int(part) for part in version.split(".")[:2]) < (3, 10):
        raise SandboxError(
            path, seen=version, rule="Python 3.10 or later runs inside the sandbox", remedy="install a newer python3"
        )
    return f"{version} at {path}", ""


def _seccomp() -> tuple[str, str]:
    try:
        return f"filter of {len(filter_program()) // 8} instructions", ""
    except (RuntimeError, OSError) as error:
        raise SandboxError(
            "libseccomp",
            seen=str(error),
            rule="the sandbox filters system calls",
            remedy="`apt-get install libseccomp2`",
        ) from None


def _namespaces() -> tuple[str, str]:
    with ExitStack() as stack:
        entry = launch.enter(stack, 0)
        command = [*entry.command, "--unshare-all", "--unshare-user", "--disable-userns", "--ro-bind", "/", "/"]
        _said([*command, "--proc", "/proc", "true"], "user namespaces", remedy=_namespace_remedy(), entry=entry)
    return "an unprivileged process can make user, pid, mount, network and ipc namespaces", ""


def _namespace_remedy() -> str:
    for path, wanted in (
        ("/proc/sys/kernel/unprivileged_userns_clone", "1"),
        ("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "0"),
    ):
        if os.path.exists(path):
            with open(path) as file:
                if file.read().strip() != wanted:
                    return f"allow them: `sysctl {path.removeprefix('/proc/sys/').replace('/', '.')}={wanted}`"
    return "allow unprivileged user namespaces; in a container, run it with a seccomp profile that permits `unshare`"


def _control_groups() -> tuple[str, str]:
    group = cgroups.create(cgroups.label("doctor"), memory_mb=64, processes=8)
    if group is None:
        return (
            "not writable: memory is limited per process and processes by rlimit, not both for the whole tree",
            "run as root or under a delegated cgroup to limit a program's processes together",
        )
    group.remove()
    return "memory and processes are limited for the whole tree", ""


def _landlock() -> tuple[str, str]:
    version = landlock.abi()
    if version >= _FULL_LANDLOCK:
        return f"ABI {version}: files, TCP, signals and abstract sockets", ""
    missing = "signals to the checker, which can only fail the program's own tests," if version else "all of it"
    detail = f"ABI {version}: without {missing}; namespaces and seccomp stand alone there"
    if not version:
        detail += ". Training is refused: nothing keeps it from the held-out tasks"
    return detail, "use Linux 6.12 or later" + ("" if version else ", with Landlock enabled (lsm=landlock,...)")


def _isolation() -> tuple[str, str]:
    with BubblewrapSandbox(slots=1) as sandbox:
        execution = sandbox.run(_BREAKOUT)
    if not execution.passed:
        raise SandboxError(
            "bubblewrap sandbox",
            seen=execution.outcomes[0].last_value or str(execution.limit),
            rule="hostile code must reach nothing",
            remedy="do not run episodes on this machine",
        )
    return f"an execution took {execution.wall_s * 1000:.0f} ms and reached nothing outside", ""


def _said(
    command: list[str], culprit: str, *, remedy: str = "see what it said", entry: launch.Entry | None = None
) -> str:
    """Run a command and return what it printed. Raises SandboxError when it fails."""
    passed, environment = (entry.descriptors, entry.environment) if entry else ([], None)
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=30, cwd="/", pass_fds=passed, env=environment
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SandboxError(culprit, seen=str(error), rule="it must run", remedy=remedy) from None
    if done.returncode:
        raise SandboxError(culprit, seen=done.stderr.strip()[-300:], rule="it must work here", remedy=remedy)
    return done.stdout.strip()
