"""Canaries: strings of a tenant that must never come in, remembered in `<home>/canaries/<tenant>.txt`, one a line.

Once given they are in force for every later ingest of the tenant, the landing folder's too. They are secrets
themselves: the file has mode 0600, and they are never printed.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from pathlib import Path

from ratchet.errors import IntakeError
from ratchet.intake import published


def remembered(home: Path, tenant: str) -> tuple[str, ...]:
    """Return the canaries of a tenant, sorted."""
    try:
        text = _place(home, tenant).read_text(encoding="utf-8")
    except FileNotFoundError:
        return ()
    return tuple(sorted({line.strip() for line in text.splitlines() if line.strip()}))


def remember(home: Path, tenant: str, canaries: Sequence[str]) -> int:
    """Add canaries to those of a tenant; returns how many are in force now."""
    path = _place(home, tenant)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), "a", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        known = set(remembered(home, tenant))
        new = sorted({canary.strip() for canary in canaries} - known - {""})
        file.write("".join(f"{canary}\n" for canary in new))
        file.flush()
        os.fsync(file.fileno())
    return len(known) + len(new)


def from_file(path: Path) -> list[str]:
    """Return the canaries that a file lists, one a line. Raises IntakeError where it cannot be read."""
    try:
        return [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise IntakeError(
            str(path), rule=f"it must be a readable text ({type(error).__name__})", remedy="one canary a line"
        ) from None


def _place(home: Path, tenant: str) -> Path:
    published.pointer(tenant)
    return home / "canaries" / f"{tenant}.txt"
