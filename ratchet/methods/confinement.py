"""What training code can touch, by rule of the kernel: all but what is held out to read, its own folders to write.

`enter` puts the calling process into a Landlock domain; what it starts inherits the domain, and there is no way out of
it. A Landlock domain is a list of what is allowed, so all that lies beside the hidden paths is allowed one by one, from
the root of the file system down to them; names of files can be listed everywhere. The domain also forbids to mount, to
trace processes outside itself (and so to look into their memory or file system) and to make device nodes; block
devices, from which files could be read past the file system, are hidden too. Programs with the set-user-id bit gain
nothing, and root loses every capability beyond those over files. Kernel documentation: userspace-api/landlock.

Not reached by it: the network, and services that listen on sockets and would read a file for whoever asks (a container
daemon, for one). Such a service must not be open to the account that trains.
"""

from __future__ import annotations

import ctypes
import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from ratchet.errors import HeldoutError
from ratchet.sandbox.inside import landlock

_NO_NEW_PRIVS, _DROP_BOUNDING = 38, 24
_CAPSET, _CAPABILITIES_V3 = 126, 0x20080522
_KEPT = (0, 1, 3, 4, 5)
"""CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL. Without DAC_READ_SEARCH no file is opened by its handle."""
_LAST_CAPABILITY = Path("/proc/sys/kernel/cap_last_cap")


class Confinement(NamedTuple):
    """What a training process must not read, and where alone it may write. Plain strings, so that it is plain JSON."""

    hidden: list[str]
    """Files and folders; one that is missing is hidden once it is there, if its folder is there now."""
    writable: list[str]
    """Folders; none may hold a hidden path. Missing ones are left out."""


class _Mount(NamedTuple):
    device: str
    root: str
    point: str


def supported() -> bool:
    """Whether the kernel has Landlock."""
    return landlock.abi() > 0


def enter(confinement: Confinement) -> None:
    """Confine the calling process for good. To be called before it starts a thread: the domain is the caller's own.

    Raises:
        HeldoutError: the kernel has no Landlock, or a folder that is to be written holds a hidden path.
    """
    if not supported():
        raise HeldoutError(
            "this kernel",
            seen="no Landlock",
            rule="training code is kept from the held-out data by the kernel",
            remedy="use Linux 5.13 or later with Landlock enabled (`lsm=landlock,...`), or set "
            "evaluation.unconfined_training to allow",
        )
    made = landlock.ruleset(rules(confinement), files_only=True)
    libc = ctypes.CDLL(None, use_errno=True)
    if os.geteuid() == 0:
        _drop_capabilities(libc)
    if libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_NO_NEW_PRIVS)")
    landlock.restrict(made)
    os.close(made)


def rules(confinement: Confinement) -> list[tuple[str, int]]:
    """Return what the domain allows, as (path, rights)."""
    named = [os.path.realpath(path) for path in confinement.hidden]
    hidden = {*named, *_other_ways(named), *_block_devices()}
    above = {str(folder) for path in hidden for folder in Path(path).parents}
    allowed = [(folder, landlock.READ_DIR) for folder in sorted(above)]
    for folder in sorted(above):
        for path, is_folder in _beside(folder):
            if path not in hidden and path not in above:
                device = landlock.OWNED_FILE if folder == "/dev" else landlock.EXECUTE | landlock.READ_FILE
                allowed.append((path, landlock.READ | landlock.EXECUTE if is_folder else device))
    for path in dict.fromkeys(os.path.realpath(path) for path in (*confinement.writable, "/dev/shm", "/dev/pts")):
        if path in above | hidden or any(one in hidden for one in map(str, Path(path).parents)):
            raise HeldoutError(
                path,
                rule="a folder that training writes to lies apart from what it must not read",
                remedy="keep the home folder out of the library caches and the temporary folder of training",
            )
        if os.path.isdir(path):
            allowed.append((path, landlock.OWNED))
    return allowed


def _beside(folder: str) -> Iterator[tuple[str, bool]]:
    """Yield the entries of a folder and whether they are folders; links are allowed by what they lead to."""
    try:
        with os.scandir(folder) as entries:
            found = [(entry.path, entry.is_dir(follow_symlinks=False)) for entry in entries if not entry.is_symlink()]
    except (FileNotFoundError, PermissionError):
        return
    yield from sorted(found)


def _block_devices() -> Iterator[str]:
    with os.scandir("/dev") as entries:
        yield from (entry.path for entry in entries if stat.S_ISBLK(entry.stat(follow_symlinks=False).st_mode))


def _other_ways(paths: Iterable[str]) -> Iterator[str]:
    """Yield the other paths that lead to the same files because a file system is mounted at several places."""
    mounts = [_mount(line) for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for path in paths:
        own = max((one for one in mounts if _holds(one.point, path)), key=lambda one: len(one.point))
        within = _joined(own.root, os.path.relpath(path, own.point))
        for other in mounts:
            if other.device != own.device or other.point == own.point:
                continue
            if _holds(other.root, within):
                yield _joined(other.point, os.path.relpath(within, other.root))
            elif _holds(within, other.root):
                yield other.point


def _mount(line: str) -> _Mount:
    # Blanks, tabs and backslashes of a path stand there as three octal digits.
    fields = [re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), field) for field in line.split()]
    return _Mount(fields[2], fields[3], fields[4])


def _holds(folder: str, path: str) -> bool:
    return folder == "/" or path == folder or path.startswith(f"{folder}/")


def _joined(folder: str, rest: str) -> str:
    return os.path.normpath(os.path.join(folder, rest))


def _drop_capabilities(libc: ctypes.CDLL) -> None:
    """Keep root's power over files, and nothing that leads past the domain: raw devices, modules, other processes."""
    for number in range(int(_LAST_CAPABILITY.read_text()) + 1):
        # A process that was started without CAP_SETPCAP cannot drop more, and has less to drop.
        if number not in _KEPT:
            libc.prctl(_DROP_BOUNDING, number, 0, 0, 0)
    permitted = int(_status("CapPrm"), 16) & sum(1 << number for number in _KEPT)
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES_V3, 0)
    low, high = permitted & 0xFFFFFFFF, permitted >> 32
    sets = (ctypes.c_uint32 * 6)(low, low, 0, high, high, 0)
    if libc.syscall(_CAPSET, ctypes.byref(header), ctypes.byref(sets)):
        raise OSError(ctypes.get_errno(), "capset")


def _status(field: str) -> str:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith(f"{field}:"))
