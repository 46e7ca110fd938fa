"""Sources: local files and folders, and whatever fsspec reaches (`s3://bucket/prefix`), listed once and in order.

A remote file is downloaded while it is its turn, into a local file without a name: it takes no memory, and is gone
with this process however that ends.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from ratchet.errors import IntakeError
from ratchet.intake.judging import unreadable

_BLOCK = 4 << 20


@dataclass(frozen=True)
class Entry:
    """One file to be read."""

    name: str
    """Relative to the folder or prefix that it was found in."""
    size: int
    """Bytes, when it was listed."""
    path: str
    files: Any = None
    """The fsspec file system that it is in; None for a local file."""

    @contextmanager
    def local(self) -> Iterator[Path]:
        """Give a local path for a while. Raises IntakeError where it cannot be read."""
        if self.files is None:
            yield Path(self.path)
            return
        # Without a name: what may hold a secret must not outlive this process.
        with tempfile.TemporaryFile() as copy:
            try:
                with self.files.open(self.path, "rb") as remote:
                    while block := remote.read(_BLOCK):
                        copy.write(block)
            except _failures() as error:
                raise unreadable(self.name, error) from None
            copy.flush()
            yield Path(f"/proc/{os.getpid()}/fd/{copy.fileno()}")


def listed(source: str | Path) -> list[Entry]:
    """List a source, sorted by name; links and names that begin with a dot are passed over.

    Args:
        source: a local file or folder, or a URL of a file or prefix.

    Raises:
        IntakeError: it does not exist, or cannot be listed.
    """
    if isinstance(source, str) and "://" in source and not source.startswith("file://"):
        return _remote(source)
    path = Path(str(source).removeprefix("file://"))
    if path.is_file():
        return [Entry(path.name, path.stat().st_size, str(path))]
    if path.is_dir():
        # A link could lead to another tenant's files.
        found = [item for item in path.rglob("*") if item.is_file() and not item.is_symlink()]
        entries = [Entry(str(item.relative_to(path)), item.stat().st_size, str(item)) for item in found]
        return _in_order(entries)
    raise IntakeError(str(source), rule="it must be a file or a folder", remedy="check the path")


def _failures() -> tuple[type[Exception], ...]:
    """What a file system raises where it cannot do what is asked; botocore's errors are no OSError."""
    known: tuple[type[Exception], ...] = (OSError, ValueError, ImportError)
    if "botocore" in sys.modules:
        known = (*known, import_module("botocore.exceptions").BotoCoreError)
    return known


def _remote(url: str) -> list[Entry]:
    import fsspec

    fresh = {"use_listings_cache": False, "skip_instance_cache": True}
    try:
        files, root = fsspec.core.url_to_fs(url, **fresh)
        root = root.rstrip("/")
        # With `detail`, a prefix gives what is under it and a file itself.
        found = files.find(root, detail=True)
    except _failures() as error:
        raise IntakeError(
            url,
            rule=f"it must be a place that can be listed ({str(error) or type(error).__name__})",
            remedy="check the URL, the credentials and the endpoint",
        ) from None
    if not found:
        raise IntakeError(url, rule="there must be something under it", remedy="check the URL")
    return _in_order(
        [
            Entry(path[len(root) + 1 :] or path.rsplit("/", 1)[-1], int(info.get("size") or 0), path, files)
            for path, info in found.items()
            if path == root or path.startswith(f"{root}/")
        ]
    )


def _in_order(entries: list[Entry]) -> list[Entry]:
    seen = [entry for entry in entries if not any(part.startswith(".") for part in Path(entry.name).parts)]
    return sorted(seen, key=lambda entry: entry.name)
