"""Control groups, v1 and v2: one group per slot for memory and process count, and the label that names its owner.

The label is in the group's name and on the sandbox's command line: pid namespace, pid and start time of the owner. A
sandbox whose owner is gone is an orphan, and the next sandbox that starts removes it.
"""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PREFIX = "ratchet-sandbox-"
VARIABLE = "RATCHET_SANDBOX"
_ROOT = Path("/sys/fs/cgroup")
_STALE_S = 60.0


class Counters(NamedTuple):
    """Events of a group since it was made."""

    out_of_memory: int
    refused_forks: int


class Group:
    """The control groups of one slot: one directory per hierarchy."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths
        # Read around every execution: open files are read again for a tenth of what opening them costs.
        self._memory = _opened(paths, ("memory.events", "memory.oom_control"))
        self._processes = _opened(paths, ("pids.events",))

    def counters(self) -> Counters:
        """Return how often the group ran out of memory or processes."""
        return Counters(_sum(self._memory, b"oom_kill"), _sum(self._processes, b"max"))

    def remove(self) -> None:
        """Kill what is left in the group and remove it."""
        for descriptor in self._memory + self._processes:
            os.close(descriptor)
        for path in self.paths:
            _remove(path)


def _opened(paths: list[Path], names: tuple[str, ...]) -> list[int]:
    found = [path / name for path in paths for name in names if (path / name).exists()]
    return [os.open(path, os.O_RDONLY | os.O_CLOEXEC) for path in found]


def _sum(descriptors: list[int], key: bytes) -> int:
    lines = [line.split() for descriptor in descriptors for line in os.pread(descriptor, 4096, 0).splitlines()]
    return sum(int(line[1]) for line in lines if line[0] == key)


def label(slot: str) -> str:
    """Return the ownership label of a slot of this process."""
    return f"{PREFIX}{_pid_namespace()}-{os.getpid()}-{_start_time(os.getpid())}-{slot}"


def create(name: str, *, memory_mb: int, processes: int) -> Group | None:
    """Make the groups of a slot, or return None where this process may not limit memory and processes by cgroup."""
    made: list[Path] = []
    for controller in ("memory", "pids"):
        path = next((path for base in _bases(controller) if (path := _make(base / name, controller))), None)
        if path is None:
            Group(made).remove()
            return None
        if path not in made:
            made.append(path)
    group = Group(made)
    try:
        for path in made:
            _limit(path, memory_mb << 20, processes)
    except OSError:
        group.remove()
        return None
    return group


def _bases(controller: str) -> Iterator[Path]:
    """Yield the directories that may hold a slot's group: below this process's own group first, then the root."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        if controller in names.split(","):
            yield _ROOT / controller / path.lstrip("/")
            yield _ROOT / controller
        elif names == "" and (_ROOT / "cgroup.controllers").exists():
            yield _ROOT / path.lstrip("/")
            yield _ROOT


def _make(path: Path, controller: str) -> Path | None:
    """Make a group that really has the controller, or return None."""
    limit = "memory.limit_in_bytes" if controller == "memory" else "pids.max"
    unified = path.parent / "cgroup.subtree_control"
    try:
        if unified.exists():
            # Refused to a v2 group that has processes of its own.
            unified.write_text("+memory +pids")
            limit = f"{controller}.max"
        path.mkdir(exist_ok=True)
    except OSError:
        return None
    if (path / limit).exists():
        return path
    path.rmdir()
    return None


def _limit(path: Path, memory: int, processes: int) -> None:
    for name, value in (
        ("memory.limit_in_bytes", memory),
        ("memory.memsw.limit_in_bytes", memory),
        ("memory.max", memory),
        ("memory.swap.max", 0),
        ("pids.max", processes),
    ):
        if (path / name).exists():
            (path / name).write_text(str(value))


def sweep() -> list[str]:
    """Kill the sandboxes whose owner has gone, remove their groups, and return their labels."""
    swept = set()
    for pid, name in _labelled_processes():
        if _is_orphan(name):
            swept.add(name)
            _kill(pid)
    for path in _labelled_groups():
        if _is_orphan(path.name) or _is_stale(path):
            swept.add(path.name)
            _remove(path)
    return sorted(swept)


def _labelled_groups() -> Iterator[Path]:
    """Yield the groups of sandboxes, wherever in the hierarchies their owners were."""
    for root in {_ROOT, _ROOT / "memory", _ROOT / "pids"}:
        if (root / "cgroup.procs").exists():
            for folder, names, _ in os.walk(root):
                yield from (Path(folder, name) for name in names if name.startswith(PREFIX))


def _labelled_processes() -> Iterator[tuple[int, str]]:
    """Yield the sandboxes of this user that run: bwrap's command line sets the label as a variable."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            # A root owner's sandboxes run under the slots' uids; anybody else's under their own.
            if os.geteuid() not in (0, entry.stat().st_uid):
                continue
            arguments = (entry / "cmdline").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        for variable, value in itertools.pairwise(arguments):
            if variable == VARIABLE.encode():
                yield int(entry.name), value.decode("ascii", "replace")


def _is_orphan(name: str) -> bool:
    """Tell whether the label's owner is known to be gone; one in another pid namespace cannot be judged from here."""
    parts = name.removeprefix(PREFIX).split("-")
    if len(parts) != 4 or parts[0] != _pid_namespace() or not parts[1].isdigit():
        return False
    return _start_time(int(parts[1])) != parts[2]


def _is_stale(path: Path) -> bool:
    """Tell whether a group of another pid namespace is old and empty: its namespace has ended."""
    if path.name.removeprefix(PREFIX).split("-")[0] == _pid_namespace():
        return False
    try:
        return time.time() - path.stat().st_mtime > _STALE_S and not (path / "cgroup.procs").read_text()
    except FileNotFoundError:
        return False


def _remove(path: Path) -> None:
    deadline = time.monotonic() + 5
    while True:
        try:
            pids = [int(pid) for pid in (path / "cgroup.procs").read_text().split()]
        except FileNotFoundError:
            return
        for pid in pids:
            # 0 is a process of another pid namespace: not ours to end.
            if pid > 0:
                _kill(pid)
        try:
            path.rmdir()
            return
        except OSError:
            # Busy until the kernel has buried the last process.
            if time.monotonic() > deadline:
                return
            time.sleep(0.005)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _pid_namespace() -> str:
    return os.readlink("/proc/self/ns/pid").strip("pid:[]")


def _start_time(pid: int) -> str:
    """Return the start time of a process in clock ticks since boot, '' when there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (FileNotFoundError, ProcessLookupError):
        return ""
