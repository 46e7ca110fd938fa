"""The store on a local folder: hard links for create-if-absent, renames for the rest.

    <root>/<name>                  an object, a pointer, or a published folder
    <root>/.../.write-<name>-*     an object that is being written, or that a crash left behind
    <root>/.../.publish-<name>-*   a folder that is being copied in, likewise
    <root>/.../.<name>.lock        the lock of a pointer

The folder must lie on a file system with hard links and locks that all its writers see: a disk of this machine.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from ratchet.errors import ConflictError, IntegrityError
from ratchet.store.base import Finding, Store, checked, folder_digest, missing

LOCK = ".lock"
UNIQUE = 8
"""Characters by which `tempfile` tells its names apart."""


class LocalStore(Store):
    """A store under a root folder."""

    unfit = "move it to a local file system with hard links and locks, or keep the store on S3"

    def __init__(self, place: str | Path) -> None:
        """Open the store at the folder `place`, which the first write makes."""
        self.root = Path(place).resolve()
        self.place = str(self.root)

    def path(self, name: str) -> Path:
        """Return the local path of `name`. Raises IntegrityError for a name that leaves the root."""
        path = (self.root / checked(name)).resolve()
        if path != self.root and self.root not in path.parents:
            raise IntegrityError(
                name, rule="names stay under the store's root", remedy="remove the link that leads outside"
            )
        return path

    def probe(self) -> list[Finding]:
        """Try the promises on a folder of its own."""
        name = f".probe-{uuid.uuid4().hex}/object"
        try:
            first, second = self.create(name, b"first"), self.create(name, b"second")
            kept = self.read(name)
            try:
                self.swap(name, "other", "third")
            except ConflictError:
                held = True
            else:
                held = False
            self.swap(name, kept.decode() if held else "third", "fourth")
            return [
                Finding("a new object is created", first),
                Finding("an object that is there is not written over", not second and kept == b"first"),
                Finding("a pointer that is another by now is not moved", held),
                Finding("what was written is read back", self.read(name) == b"fourth"),
            ]
        finally:
            self.delete_all(name.partition("/")[0])

    def exists(self, name: str) -> bool:
        """Whether there is a file or folder of that name."""
        return self.path(name).exists()

    def read(self, name: str) -> bytes:
        """Return the bytes of the file."""
        with LocalStore.open(self, name) as handle:
            return handle.read()

    def open(self, name: str) -> BinaryIO:
        """Open the file."""
        try:
            return self.path(name).open("rb")
        except (FileNotFoundError, NotADirectoryError):
            raise missing(name) from None

    def create(self, name: str, data: bytes) -> bool:
        """Write a temporary file and link it to its name, which the file system does only where nothing is there."""
        path = self._ready(name)
        return _link(self._temporary(path, data), path)

    def create_file(self, name: str, source: Path) -> bool:
        """Link the file itself, or where that cannot be done a copy of it, as `create` does."""
        path = self._ready(name)
        try:
            with source.open("rb") as whole:
                _settle(whole)
            os.link(os.path.realpath(source), path)
        except FileExistsError:
            return False
        except OSError:  # another file system, or one without links; a file of somebody else
            return self._copied(source, path)
        return True

    def _copied(self, source: Path, path: Path) -> bool:
        handle, temporary = tempfile.mkstemp(prefix=f".write-{path.name}-", dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            shutil.copyfile(source, temporary)  # inside the kernel, where it can be
            _settle(file)
        return _link(temporary, path)

    def pointer(self, name: str) -> str | None:
        """Return the text of the file."""
        path = self.path(name)
        return path.read_text() if path.exists() else None

    def swap(self, name: str, expected: str | None, value: str) -> None:
        """Compare and rename under the lock of the name."""
        path = self._ready(name)
        with self.locked(name):
            seen = self.pointer(name)
            if seen != expected:
                raise ConflictError(
                    name, seen=seen, rule=f"it was expected to be {expected!r}", remedy="read it again and decide anew"
                )
            os.replace(self._temporary(path, value.encode()), path)

    def publish_folder(self, local: Path, name: str) -> str:
        """Copy to a temporary folder and rename that."""
        target = self._ready(name)
        if not target.exists():
            staged = Path(tempfile.mkdtemp(prefix=f".publish-{target.name}-", dir=target.parent))
            shutil.copytree(local, staged, dirs_exist_ok=True)
            os.chmod(staged, 0o755)
            try:
                os.rename(staged, target)
            except OSError:
                shutil.rmtree(staged)
                if not target.exists():
                    raise
        return folder_digest(target)

    def folder(self, name: str) -> Path:
        """The folder itself, whatever became of its files."""
        path = self.path(name)
        if not path.is_dir():
            raise missing(name)
        return path

    def names(self, prefix: str) -> list[str]:
        """Walk the folder; hidden files are not shown."""
        base = self.path(prefix)
        return sorted(
            str(path.relative_to(self.root))
            for path in base.rglob("*")
            if path.is_file() and not any(part.startswith(".") for part in path.relative_to(base).parts)
        )

    def children(self, prefix: str) -> list[str]:
        """List the folder; hidden files are not shown."""
        base = self.path(prefix)
        return sorted(path.name for path in base.iterdir() if path.name[0] != ".") if base.is_dir() else []

    def written(self, name: str) -> datetime | None:
        """Time of the last change of the file."""
        path = self.path(name)
        return datetime.fromtimestamp(path.stat().st_mtime, UTC) if path.exists() else None

    def delete(self, name: str) -> int:
        """Remove the file or folder, its lock, and what crashed writers of that name left."""
        path = self.path(name)
        found = list(_traces(path))
        for trace in found:
            _remove(trace)
        self._lock_file(name).unlink(missing_ok=True)
        self._tidy(path.parent)
        return len(found)

    def delete_all(self, prefix: str) -> int:
        """Remove the folder `prefix` with all that is in it, hidden or not."""
        base = self.path(prefix)
        found = [path for path in base.rglob("*") if path.is_file() and not path.name.endswith(LOCK)]
        if base != self.root:
            found += [path for path in _traces(base) if path != base]
            self.delete(prefix)
        else:
            for path in list(base.iterdir()) if base.is_dir() else []:
                _remove(path)
        return len(found)

    def _lock_file(self, name: str) -> Path:
        path = self.path(name)
        return path.parent / f".{path.name}{LOCK}"

    def _ready(self, name: str) -> Path:
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def _tidy(self, folder: Path) -> None:
        """Remove the folders that a deletion left empty; a writer that needs one makes it again."""
        while folder != self.root:
            try:
                folder.rmdir()
            except OSError:
                return
            folder = folder.parent

    @staticmethod
    def _temporary(path: Path, data: bytes) -> str:
        handle, temporary = tempfile.mkstemp(prefix=f".write-{path.name}-", dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            _settle(file)
        return temporary


def _settle(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
    os.fchmod(file.fileno(), 0o644)


def _link(temporary: str, path: Path) -> bool:
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        os.unlink(temporary)
    return True


def _traces(path: Path) -> Iterator[Path]:
    """What is there of a name: itself, and what writers of it left behind."""
    if path.exists():
        yield path
    beginnings = (f".write-{path.name}-", f".publish-{path.name}-")
    if path.parent.is_dir():
        yield from (found for found in path.parent.iterdir() if found.name[:-UNIQUE] in beginnings)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
