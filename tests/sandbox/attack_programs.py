"""Hostile programs, in three kinds.

`limit`: must be ended by the named limit. `contained`: lists what it managed to do; its test demands an empty list.
`forgery`: computes a wrong answer and tries to pass all the same. System call numbers are those of x86-64.
"""

from __future__ import annotations

from typing import NamedTuple


class Attack(NamedTuple):
    kind: str
    source: str
    limits: tuple[str, ...] = ()


PRELUDE = """
import ctypes, gc, mmap, os, resource, signal, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)

def call(number, *arguments):
    result = libc.syscall(number, *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return result

def worked(attempts):
    done = []
    for name, attempt in attempts.items():
        try:
            if attempt() is not False:
                done.append(name)
        except OSError:
            pass
    return done

def content(path):
    with open(path, "rb") as file:
        return file.read(4096)

def others():
    # The warm process is 1; the checker was forked just before or after this process.
    near = range(max(2, os.getpid() - 20), os.getpid() + 20)
    return [1, *(pid for pid in near if pid != os.getpid())]
"""

# What a fresh execution must look like, whatever ran before it in the same warm sandbox.
CLEAN = """
import builtins, gc, os, random, resource, signal, sys
first_random = random.random()
def attack():
    found = [name for name in ("POISON",) if name in os.environ]
    found += ["poisoned"] * hasattr(builtins, "poisoned") + ["abs"] * (abs(-1) != 1)
    found += ["path"] * ("/tmp" in sys.path) + ["recursion"] * (sys.getrecursionlimit() != 1000)
    found += [f"file {name}" for folder in ("/tmp", "/dev/shm") for name in os.listdir(folder)]
    found += ["random"] * (first_random != 0.8444218515250481)
    found += ["umask"] * (os.umask(0o22) != 0o22) + ["alarm"] * bool(signal.alarm(0)) + ["gc"] * len(gc.callbacks)
    found += ["descriptors"] * (resource.getrlimit(resource.RLIMIT_NOFILE)[0] != 64)
    found += ["processes"] * (sum(alive(pid) for pid in range(max(2, os.getpid() - 500), os.getpid() + 100)) != 2)
    return found
def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
"""
