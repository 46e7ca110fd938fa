"""Landlock by system call: what one execution may touch, whatever the mount namespace shows.

A domain reads the interpreter's own library, writes the scratch folders, executes nothing, makes no links, devices or
sockets, binds and connects no TCP port and, from ABI 6 on, signals no process and reaches no abstract socket outside
itself. It also cannot trace processes outside itself. Kernel documentation: userspace-api/landlock.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

_CREATE, _ADD, _RESTRICT = 444, 445, 446
EXECUTE, _WRITE_FILE, READ_FILE, READ_DIR, _REMOVE_DIR, _REMOVE_FILE = (1 << n for n in range(6))
_MAKE_DIR, _MAKE_REG, _REFER, _TRUNCATE, _IOCTL_DEV = 1 << 7, 1 << 8, 1 << 13, 1 << 14, 1 << 15
_FS_BITS_BY_ABI = {1: 13, 2: 14, 3: 15, 4: 15}
_NEWEST_FS_BITS = 16
READ = READ_FILE | READ_DIR
SCRATCH = READ | _WRITE_FILE | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_REG | _REFER | _TRUNCATE
DEVICE = READ_FILE | _WRITE_FILE
_MAKE_SOCK, _MAKE_FIFO, _MAKE_SYM = 1 << 9, 1 << 10, 1 << 12
OWNED = EXECUTE | SCRATCH | _MAKE_SOCK | _MAKE_FIFO | _MAKE_SYM
"""All that a process does with files of its own; neither that nor anything else makes device nodes."""
OWNED_FILE = EXECUTE | DEVICE | _TRUNCATE | _IOCTL_DEV
"""Of these what a single file or device can have."""

_libc = ctypes.CDLL(None, use_errno=True)


class _Ruleset(ctypes.Structure):
    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def _call(number: int, *arguments: Any) -> int:
    result: int = _libc.syscall(number, *arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def abi() -> int:
    """Return the kernel's Landlock ABI, 0 where there is none."""
    try:
        return _call(_CREATE, None, 0, 1)
    except OSError:
        return 0


def ruleset(rules: list[tuple[str, int]], *, files_only: bool = False) -> int:
    """Return the descriptor of a ruleset that allows only `rules` (path, access rights).

    Missing paths are skipped. With `files_only` TCP, signals and abstract sockets stay as they are.
    """
    version = abi()
    handled = (1 << _FS_BITS_BY_ABI.get(version, _NEWEST_FS_BITS)) - 1
    network, scoped = (0b11 if version >= 4 else 0, 0b11 if version >= 6 else 0) if not files_only else (0, 0)
    attributes = _Ruleset(handled, network, scoped)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    made = _call(_CREATE, ctypes.byref(attributes), ctypes.c_size_t(size), 0)
    for path, access in rules:
        try:
            parent = os.open(path, os.O_PATH | os.O_CLOEXEC | (os.O_NOFOLLOW if files_only else 0))
        except FileNotFoundError:
            continue
        rule = _PathBeneath(access & handled, parent)
        _call(_ADD, made, 1, ctypes.byref(rule), 0)
        os.close(parent)
    return made


def restrict(descriptor: int) -> None:
    """Put the calling process into a new domain under the ruleset. There is no way out of it."""
    _call(_RESTRICT, descriptor, 0)


def hide() -> None:
    """Make the process undumpable: its /proc files belong to nobody, and its peers cannot trace it."""
    if _libc.prctl(4, 0, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_DUMPABLE)")
