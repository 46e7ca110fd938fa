"""Placing: a writer's local files become objects of the store, each created if absent and read back.

An object that is there already is what a run before left, or a racing writer of the same content: it is held against
what was to be written. Sealed content differs from run to run, and is compared unsealed.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ratchet.contracts.canonical import digest_bytes
from ratchet.intake.keys import folder_of
from ratchet.intake.published import StoredFile, changed, verify
from ratchet.intake.sealed import Key
from ratchet.intake.staging import Aside, Staged
from ratchet.store import Store

KINDS = ("trajectories", "index", "events")
_AT_ONCE = 8
"""Originals that are written and read back at a time, a frame of each in memory."""


class Placing:
    """The objects of one writer; each is written and read back once, however often the pointer's race is run."""

    def __init__(self, store: Store, tenant: str, grant_id: str) -> None:
        """Place objects of a grant."""
        self._store, self._tenant, self._folder = store, tenant, folder_of(grant_id)
        self._written = set[str]()
        self._placed: dict[str, StoredFile] = {}
        self._originals = set[str]()

    def parts(self, batch: str, kind: str, staged: list[Staged]) -> tuple[StoredFile, ...]:
        """Place the parts of a batch of one of `KINDS`. Raises IntegrityError for one that does not read back."""
        return tuple(self._part(self._name(kind, batch, number), kind, one) for number, one in enumerate(staged))

    def aside(self, batch: str, staged: list[Aside], key: Key) -> tuple[StoredFile, ...]:
        """Place the quarantine of a batch. Raises IntegrityError for a file that does not read back."""
        return tuple(
            self._aside(self._name("quarantine", batch, number), one, key) for number, one in enumerate(staged)
        )

    def originals(self, sealed: Mapping[str, tuple[str, Path | None]], key: Key) -> None:
        """Place originals, given by name with digest and sealed file, or None where one must be there already.

        Raises:
            IntegrityError: one does not read back, or was sealed with another key.
        """
        left = [(name, *about, key) for name, about in sealed.items() if name not in self._originals]
        # There can be thousands, and each waits for the disk or the network.
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for _ in pool.map(lambda about: self._original(*about), left):
                continue

    def undo(self) -> None:
        """Delete all that was written: only for a grant of which nothing may be there."""
        for name in self._written:
            self._store.delete(name)

    def _part(self, name: str, kind: str, staged: Staged) -> StoredFile:
        if name not in self._placed:
            self._write(name, staged.files[kind])
            file = StoredFile(name=name, digest=staged.digest_of[kind], rows=staged.rows_of[kind])
            verify(self._store, file)
            self._placed[name] = file
        return self._placed[name]

    def _aside(self, name: str, aside: Aside, key: Key) -> StoredFile:
        if name not in self._placed:
            self._write(name, aside.path)
            found = self._store.read(name)
            if not aside.same(found, key, name):
                raise changed(name)
            self._placed[name] = StoredFile(name=name, digest=digest_bytes(found), rows=len(aside.entries))
        return self._placed[name]

    def _original(self, name: str, digest: str, sealed: Path | None, key: Key) -> None:
        if sealed:
            self._write(name, sealed)
        with self._store.open(name) as handle:
            key.verify(handle, digest, name)
        self._originals.add(name)

    def _write(self, name: str, path: Path) -> None:
        self._written.add(name)
        self._store.create_file(name, path)

    def _name(self, kind: str, batch: str, number: int) -> str:
        return f"{self._tenant}/{kind}/{self._folder}/{batch}-{number}.parquet"
