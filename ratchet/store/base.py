"""What every store offers, whatever it lies on: the operations, and what holds of each of them.

Everything the loop keeps is an object that is written once, a folder that is published once, or a small pointer that
moves by compare-and-swap. Readers open what they name, never a listing that decides. `Store(place)` gives the store on
a local folder or, for `s3://bucket/prefix`, on S3; what the two promise is the same, and tested by the same tests.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, NamedTuple, Self, TypeVar

from ratchet.contracts.canonical import canonical_json, digest_bytes
from ratchet.errors import ConflictError, IntegrityError, StoreError

ATTEMPTS = 100
"""How often something is tried again where others keep moving the pointer that it goes by."""
T = TypeVar("T")


class Finding(NamedTuple):
    """One promise that a store rests on, and whether it was kept when it was tried."""

    promise: str
    kept: bool


class Store(ABC):
    """Objects by relative name. Every write is atomic: whole or absent."""

    place: str
    """Where it is: an absolute folder, or `s3://bucket/prefix`."""
    unfit: str
    """What to do about a place that does not keep a store's promises."""

    def __new__(cls, place: str | Path, **options: Any) -> Self:
        """Choose the kind of store by its place."""
        if cls is not Store:
            return super().__new__(cls)
        if str(place).startswith("s3://"):
            from ratchet.store.s3 import S3Store

            return super().__new__(S3Store)  # type: ignore[return-value]
        from ratchet.store.local import LocalStore

        return super().__new__(LocalStore)  # type: ignore[return-value]

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.place,))

    @property
    def where(self) -> str:
        """The place, for people."""
        return self.place

    @abstractmethod
    def probe(self) -> list[Finding]:
        """Try every promise on objects that are removed again. Raises StoreError where nothing can be tried."""

    def prove(self) -> list[Finding]:
        """Like `probe`, but raise StoreError where a promise is not kept."""
        findings = self.probe()
        broken = [finding.promise for finding in findings if not finding.kept]
        if broken:
            raise StoreError(
                f"store {self.where}",
                seen=f"{len(broken)} of {len(findings)} promises broken",
                rule=f"it must hold that {'; that '.join(broken)}",
                remedy=self.unfit,
            )
        return findings

    @abstractmethod
    def exists(self, name: str) -> bool:
        """Whether a whole object or published folder of that name is there."""

    @abstractmethod
    def read(self, name: str) -> bytes:
        """Return the bytes of an object. Raises IntegrityError where it is missing or damaged."""

    @abstractmethod
    def open(self, name: str) -> BinaryIO:
        """Open an object for reading in pieces, seekable. Raises IntegrityError where it is missing."""

    @abstractmethod
    def create(self, name: str, data: bytes) -> bool:
        """Write `data` as `name` if nothing is there. Returns whether this call wrote it; existing content stays."""

    @abstractmethod
    def create_file(self, name: str, source: Path) -> bool:
        """Like `create`, with the content of a local file, which may be larger than memory.

        The file may become the object itself: nobody writes to it afterwards, and whoever made it may remove it.
        """

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

    @abstractmethod
    def pointer(self, name: str) -> str | None:
        """Return the value of a pointer, or None where it was never set."""

    @abstractmethod
    def swap(self, name: str, expected: str | None, value: str) -> None:
        """Move a pointer from `expected` to `value`. Raises ConflictError where it no longer is `expected`."""

    def settled(self, pointer: str, act: Callable[[str | None], T], what: str) -> T:
        """Return what `act` makes of the value of a pointer; where another moves the pointer meanwhile, it acts anew.

        Whoever moved it may have deleted what was being read, or written, for the value before: what `act` runs into
        counts only where the pointer still has that value.

        Args:
            pointer: its name.
            act: is given the value, reads what it leads to, and may itself `swap` it.
            what: what is being done, for the error.

        Raises:
            ConflictError: the pointer moved during every attempt.
        """
        for attempt in range(ATTEMPTS):
            value = self.pointer(pointer)
            try:
                return act(value)
            except (ConflictError, IntegrityError, FileNotFoundError) as error:
                if not isinstance(error, ConflictError) and self.pointer(pointer) == value:
                    raise
            # Drawn at random, so that writers do not stay in step.
            time.sleep(random.uniform(0, 0.01 * min(attempt, 20)))
        raise ConflictError(
            pointer,
            rule=f"it moved {ATTEMPTS} times while {what}",
            remedy="do it again when the other writers are done",
        )

    @abstractmethod
    def publish_folder(self, local: Path, name: str) -> str:
        """Copy a finished local folder into the store as `name`, if absent.

        Hidden files and empty folders are not part of it. Readers see nothing of it or all of it; of publishers that
        race, one wins whole.

        Returns:
            The digest (`folder_digest`) of the folder that is there now.
        """

    @abstractmethod
    def folder(self, name: str) -> Path:
        """A local folder with the files of a published folder, to be read and left as it is.

        It is the folder itself on a local store, and on S3 a kept copy, verified at every call against what was
        published. What it ought to be is known by its user alone: compare `folder_digest` of it with a digest that
        was kept elsewhere. Raises IntegrityError where the folder is missing, or on S3 damaged.
        """

    @abstractmethod
    def names(self, prefix: str) -> list[str]:
        """List the objects, and the files of published folders, under `prefix`, sorted: to show, never to decide what
        a dataset is."""

    @abstractmethod
    def children(self, prefix: str) -> list[str]:
        """List the next part of the names under `prefix`, sorted: of `a/b/c` under `a` that is `b`."""

    @abstractmethod
    def written(self, name: str) -> datetime | None:
        """When an object was written, UTC, on S3 to the second; None where it is missing. To show, never to decide."""

    @abstractmethod
    def delete(self, name: str) -> int:
        """Remove an object, pointer or published folder with all its versions, unfinished uploads and local copies.

        For what merely begins with the name there is `delete_all`.

        Returns:
            How many things were removed; 0 where nothing was there.
        """

    @abstractmethod
    def delete_all(self, prefix: str) -> int:
        """Like `delete`, for everything whose name lies under `prefix`, hidden leftovers of crashed writers too."""

    @abstractmethod
    def _lock_file(self, name: str) -> Path:
        """Local file that stands for the lock on `name`."""

    @contextlib.contextmanager
    def locked(self, name: str) -> Iterator[None]:
        """Hold an exclusive lock on `name` among the processes of this machine that use the same home.

        It keeps them from doing the same work at once. It keeps out no other machine: what must not happen twice is a
        `create` or a `swap`.
        """
        path = self._lock_file(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield


def checked(name: str) -> str:
    """Return `name` as it is stored. Raises IntegrityError for one that leaves the root, or has an empty part."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name:
        raise IntegrityError(name, rule="names stay under the store's root", remedy="use a relative name without ..")
    return "" if name in ("", ".") else str(path)


def missing(name: str) -> IntegrityError:
    """The error for an object that is not there."""
    return IntegrityError(name, rule="it must be in the store", remedy="run the stage that writes it")


def file_digest(path: Path) -> str:
    """SHA-256 of a local file, read in pieces."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def listing(folder: Path) -> dict[str, str]:
    """SHA-256 of every file of a folder by its relative name; hidden files do not count."""
    return {
        str(path.relative_to(folder)): file_digest(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".")
    }


def listing_digest(files: dict[str, str]) -> str:
    """Digest of a folder by its `listing`."""
    return digest_bytes(canonical_json(files).encode())


def folder_digest(folder: Path) -> str:
    """SHA-256 over the relative names and contents of all files of a folder; hidden files do not count."""
    return listing_digest(listing(folder))
