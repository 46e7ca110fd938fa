"""A Postgres server of our own in a temporary folder, on a Unix socket alone, where the machine has the binaries."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


def _binaries() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if found:
        return found[-1].parent
    where = shutil.which("initdb")
    return Path(where).resolve().parent if where else None


@contextlib.contextmanager
def postgres_url() -> Iterator[str]:
    """Start a server, yield its SQLAlchemy URL, stop it. Skips the test where there is no Postgres to start."""
    pytest.importorskip("psycopg2", reason="psycopg2-binary is not installed (it is in the dev extra)")
    binaries = _binaries()
    if binaries is None:
        pytest.skip("no Postgres on this machine: install Debian's `postgresql` to run this test on it")
    folder = Path(tempfile.mkdtemp(prefix="ratchet-pg-"))
    as_user: dict[str, str] = {}
    if os.getuid() == 0:
        # Postgres refuses to run as root.
        account = next((entry.pw_name for entry in pwd.getpwall() if entry.pw_name == "postgres"), "nobody")
        shutil.chown(folder, account)
        as_user = {"user": account}
    data = folder / "data"

    def call(*command: str) -> None:
        subprocess.run(
            [str(binaries / command[0]), *command[1:]],
            check=True,
            stdout=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            cwd=folder,
            **as_user,  # type: ignore[call-overload]
        )

    try:
        call("initdb", "-D", str(data), "-U", "ratchet", "--auth=trust", "--no-sync", "-E", "UTF8")
        options = f"-c listen_addresses='' -k {folder} -c fsync=off -c max_connections=150"
        call("pg_ctl", "-D", str(data), "-w", "-o", options, "-l", str(folder / "log"), "start")
        try:
            yield f"postgresql+psycopg2://ratchet@/postgres?host={folder}"
        finally:
            call("pg_ctl", "-D", str(data), "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
