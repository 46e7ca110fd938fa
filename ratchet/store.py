"""The store: create-if-absent objects and compare-and-swap pointers under one root.

Everything the loop keeps is an object that is written once, or a small pointer that moves by compare-and-swap. Readers
open what they name, never a glob that decides. Here the root is a local folder; the operations are those that an object
store with conditional writes offers, so that another backend can take its place.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ratchet.contracts.canonical import canonical_json, digest_bytes
from ratchet.errors import ConflictError, IntegrityError


class Store:
    """Objects by relative path under a root folder. Every write is atomic: whole or absent."""

    def __init__(self, root: str | Path) -> None:
        """Open (and make) the store at `root`."""
        self.root = Path(root).resolve()
        self.root.mkdir(parents=True, exist_ok=True)

    def path(self, name: str) -> Path:
        """Return the local path of `name`. Raises IntegrityError for a name that leaves the root."""
        path = (self.root / name).resolve()
        if path != self.root and self.root not in path.parents:
            raise IntegrityError(
                name, rule="names stay under the store's root", remedy="use a relative name without .."
            )
        return path

    def exists(self, name: str) -> bool:
        """Whether an object or folder of that name is there."""
        return self.path(name).exists()

    def read(self, name: str) -> bytes:
        """Return the bytes of `name`. Raises IntegrityError where it is missing."""
        try:
            return self.path(name).read_bytes()
        except FileNotFoundError:
            raise IntegrityError(name, rule="it must be in the store", remedy="run the stage that writes it") from None

    def create(self, name: str, data: bytes) -> bool:
        """Write `data` as `name` if nothing is there. Returns whether this call wrote it; existing content stays."""
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._temporary(path.parent, data)
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        finally:
            os.unlink(temporary)
        return True

    def create_same(self, name: str, data: bytes) -> bool:
        """Like `create`, but raise ConflictError where something else is already there."""
        if self.create(name, data):
            return True
        if self.read(name) != data:
            raise ConflictError(
                name,
                rule="it is written once and its content differs from what is to be written",
                remedy="keep what is there, or give the new content a name of its own",
            )
        return False

    def pointer(self, name: str) -> str | None:
        """Return the value of a pointer, or None where it was never set."""
        path = self.path(name)
        return path.read_text() if path.exists() else None

    def swap(self, name: str, expected: str | None, value: str) -> None:
        """Move a pointer from `expected` to `value`. Raises ConflictError where it no longer is `expected`."""
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        with self.locked(name):
            seen = self.pointer(name)
            if seen != expected:
                raise ConflictError(
                    name, seen=seen, rule=f"it was expected to be {expected!r}", remedy="read it again and decide anew"
                )
            os.replace(self._temporary(path.parent, value.encode()), path)

    def names(self, prefix: str) -> list[str]:
        """List the objects under `prefix`, sorted: to show or to sweep, never to decide what a dataset is."""
        base = self.path(prefix)
        return sorted(
            str(path.relative_to(self.root))
            for path in base.rglob("*")
            if path.is_file() and not any(part.startswith(".") for part in path.relative_to(base).parts)
        )

    def publish_folder(self, local: Path, name: str) -> str:
        """Move a finished local folder into the store as `name`, if absent, and return the digest of its files."""
        target = self.path(name)
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            staged = Path(tempfile.mkdtemp(prefix=".publish-", dir=target.parent))
            shutil.copytree(local, staged, dirs_exist_ok=True)
            os.chmod(staged, 0o755)
            try:
                os.rename(staged, target)
            except OSError:
                shutil.rmtree(staged)
                if not target.exists():
                    raise
        return folder_digest(target)

    @contextlib.contextmanager
    def locked(self, name: str) -> Iterator[None]:
        """Hold an exclusive lock on `name` among the processes of this machine."""
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path.parent / f".{path.name}.lock", "w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield

    @staticmethod
    def _temporary(folder: Path, data: bytes) -> str:
        handle, temporary = tempfile.mkstemp(prefix=".write-", dir=folder)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        return temporary


def folder_digest(folder: Path) -> str:
    """SHA-256 over the relative names and contents of all files of a folder; hidden files do not count."""
    listing = {
        str(path.relative_to(folder)): digest_bytes(path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".")
    }
    return digest_bytes(canonical_json(listing).encode())
