"""Scratch folders of the intake: `<home>/scratch/intake/<tenant>/<grant>/<random>/`, each locked by its writer.

The lock ends with the process, however it ends. So a folder whose lock is free belongs to nobody any more, and the
next writer of the home removes it; what is in the folder of a living writer is left alone.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ratchet.intake.keys import folder_of

_LOCK = ".lock"


class Scratch:
    """A folder of one writer."""

    def __init__(self, home: Path, tenant: str, grant_id: str) -> None:
        """Make the folder, and remove those that dead writers left."""
        base = _base(home)
        place = base / tenant / folder_of(grant_id)
        with _alone(base):
            for dead in _folders(base):
                _remove_dead(dead)
            place.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.folder = Path(tempfile.mkdtemp(dir=place))
            self._lock = _locked(self.folder)

    def close(self) -> None:
        """Remove the folder. Again is no error."""
        shutil.rmtree(self.folder, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def leftovers(home: Path, tenant: str, grant_id: str) -> list[Path]:
    """Return the files in the scratch folders of a grant, those of living writers included, sorted."""
    place = _base(home) / tenant / folder_of(grant_id)
    return sorted(path for path in place.rglob("*") if path.is_file() and path.name != _LOCK)


def remove(home: Path, tenant: str, grant_id: str) -> None:
    """Remove all scratch folders of a grant; a writer that still uses one fails, and publishes nothing."""
    base = _base(home)
    with _alone(base):
        shutil.rmtree(base / tenant / folder_of(grant_id), ignore_errors=True)


def _base(home: Path) -> Path:
    return home / "scratch" / "intake"


def _folders(base: Path) -> Iterator[Path]:
    yield from (path for path in base.glob("*/*/*") if path.is_dir())


def _locked(folder: Path) -> int | None:
    """Lock a folder; None where another process holds it."""
    handle = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    return handle


def _remove_dead(folder: Path) -> None:
    handle = _locked(folder)
    if handle is not None:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


@contextmanager
def _alone(base: Path) -> Iterator[None]:
    """Hold the lock under which folders are made and removed, so that none is removed before its owner locks it."""
    base.mkdir(parents=True, exist_ok=True, mode=0o700)
    with open(base / _LOCK, "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
