"""Ways in which training code could try to read a file; each returns what it got. Run in a worker process."""

from __future__ import annotations

import ctypes
import mmap
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def _ptrace(parent: int) -> str:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(16, parent, 0, 0):
        raise OSError(ctypes.get_errno(), "ptrace")
    return "attached"


def _said(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise PermissionError(done.stderr.strip()[-200:])
    return done.stdout


def _copied_link(secret: Path, own: Path) -> str:
    os.link(secret, own / "linked")
    return (own / "linked").read_text()


def _moved(secret: Path, own: Path) -> str:
    os.rename(secret.parent, own / "moved")
    return (own / "moved" / secret.name).read_text()


def _symlinked(secret: Path, own: Path) -> str:
    (own / "link").unlink(missing_ok=True)
    (own / "link").symlink_to(secret)
    return (own / "link").read_text()


def _mapped(secret: Path) -> str:
    descriptor = os.open(secret, os.O_RDONLY)
    with mmap.mmap(descriptor, 0, prot=mmap.PROT_READ) as mapped:
        return mapped[:].decode()


def _forked(secret: Path) -> str:
    read, write = os.pipe()
    if os.fork() == 0:
        try:
            os.write(write, secret.read_bytes())
        finally:
            os._exit(0)
    os.close(write)
    os.wait()
    got = os.read(read, 100).decode()
    if not got:
        raise PermissionError("the child read nothing")
    return got


def _relative(secret: Path) -> str:
    os.chdir(secret.parent.parent)
    return Path(secret.parent.name, secret.name).read_text()


def _below(secret: Path) -> str:
    descriptor = os.open(secret.parent, os.O_PATH)
    return os.read(os.open(secret.name, os.O_RDONLY, dir_fd=descriptor), 100).decode()


def ways(secret: Path, own: Path) -> dict[str, Callable[[], Any]]:
    """Every way to read `secret` or to get where it could be read; `own` is a folder that may be written."""
    parent, python = os.getppid(), sys.executable
    code = f"print(open({str(secret)!r}).read())"
    return {
        "open": lambda: secret.read_text(),
        "open for writing": lambda: secret.open("r+").read(),
        "map": lambda: _mapped(secret),
        "relative path": lambda: _relative(secret),
        "descriptor of the folder": lambda: _below(secret),
        "hard link": lambda: _copied_link(secret, own),
        "symbolic link": lambda: _symlinked(secret, own),
        "move": lambda: _moved(secret, own),
        "fork": lambda: _forked(secret),
        "exec cat": lambda: _said("cat", str(secret)),
        "exec python": lambda: _said(python, "-c", code),
        "shell": lambda: _said("/bin/sh", "-c", f"cat < {secret}"),
        "root of the parent": lambda: Path(f"/proc/{parent}/root{secret}").read_text(),
        "folder of the parent": lambda: Path(f"/proc/{parent}/cwd/{os.path.relpath(secret, '/')}").read_text(),
        "memory of the parent": lambda: Path(f"/proc/{parent}/mem").open("rb").read(1),
        "variables of the parent": lambda: Path(f"/proc/{parent}/environ").read_bytes(),
        "trace the parent": lambda: _ptrace(parent),
        "mount": lambda: _said("mount", "--bind", str(secret.parent), str(own)),
        "own namespace": lambda: _said("unshare", "-Urm", "mount", "-t", "tmpfs", "x", "/mnt"),
        "raw disk": lambda: next(open(path, "rb") for path in Path("/dev").iterdir() if path.is_block_device()),
        "device node": lambda: os.mknod(own / "disk", 0o60600, os.makedev(254, 0)),
        "handler of crashes": lambda: open("/proc/sys/kernel/core_pattern", "r+"),
        "privileges by file": lambda: _said("sudo", "-n", "cat", str(secret)),
    }  # fmt: skip


def attempt(arguments: dict[str, Any]) -> dict[str, str]:
    """Try every way, or those that are named; returns by way what was got, or the kind of error after `refused: `."""
    found = {}
    for name, way in ways(Path(arguments["secret"]), Path(arguments["own"])).items():
        if name not in arguments.get("ways", [name]):
            continue
        try:
            found[name] = f"got {way()!r}"[:200]
        except (OSError, StopIteration) as error:
            found[name] = f"refused: {type(error).__name__}"
    return found


def works(arguments: dict[str, Any]) -> dict[str, Any]:
    """What training must still be able to do."""
    import tempfile

    own = Path(arguments["own"])
    (own / "checkpoints" / "step-1.new").mkdir(parents=True)
    (own / "checkpoints" / "step-1.new" / "weights").write_bytes(b"w" * 10)
    os.rename(own / "checkpoints" / "step-1.new", own / "checkpoints" / "step-1")
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "x").write_text("x")
        os.rename(Path(scratch) / "x", own / "x")
    one, other = socket.socketpair()
    one.send(b"x")
    shared = Path("/dev/shm") / f"ratchet-test-{os.getpid()}"
    shared.write_text("x")
    shared.unlink()
    return {
        "beside": Path(arguments["beside"]).read_text(),
        "weights": (own / "checkpoints" / "step-1" / "weights").stat().st_size,
        "socket": other.recv(1).decode(),
        "null": Path("/dev/null").write_text("x"),
        "random": len(Path("/dev/urandom").open("rb").read(4)),
        "child": _said(sys.executable, "-c", "print(6 * 7)").strip(),
        "scratch": scratch.startswith(arguments["scratch"]),
    }


def overwrite(arguments: dict[str, Any]) -> dict[str, str]:
    """Try to change what the loop keeps."""
    found = {}
    beside = Path(arguments["beside"])
    tried: dict[str, Callable[[], Any]] = {
        "change": lambda: beside.write_text("forged"),
        "remove": lambda: beside.unlink(),
        "add": lambda: (beside.parent / "new").write_text("x"),
        "replace": lambda: os.rename(beside, beside.parent / "other"),
        "code": lambda: os.close(os.open(__file__, os.O_WRONLY)),
    }
    for name, way in tried.items():
        try:
            way()
            found[name] = "done"
        except OSError as error:
            found[name] = type(error).__name__
    return found
