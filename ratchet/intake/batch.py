"""A batch in the making: parts are kept once, spilled to local files, and published together or not at all.

Until `publish` nothing is written to the store: what is kept lies under `<home>/scratch/intake`, originals sealed. A
writer that was killed leaves its scratch folder, which the next writer of the home removes. Publication writes the
files, reads them back, creates the manifest and moves the pointer by compare-and-swap; a publisher that lost the race
drops what the winner brought and tries again. Names come from the plain content, so that the same batch, made again
after a crash, completes what is there.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any, Self

from ratchet.contracts.canonical import canonical_json, digest
from ratchet.errors import ConflictError, RightsError
from ratchet.intake import published, summaries
from ratchet.intake.digests import DigestSet, packed
from ratchet.intake.handover import FiledPart, Part, Tables, fresh_rows, select
from ratchet.intake.keys import Keys, folder_of
from ratchet.intake.placing import KINDS, Placing
from ratchet.intake.published import BatchManifest, Source
from ratchet.intake.scratch import Scratch
from ratchet.intake.sealed import Key
from ratchet.intake.staging import Aside, Staged
from ratchet.rights.events import utc
from ratchet.store import Store

SPILL_BYTES = 32 << 20
"""Size of the rows that a writer holds before it writes them to a local file."""


class BatchWriter:
    """What one ingest brings for one tenant under one grant. Use it as a context, so that its scratch is removed."""

    def __init__(self, store: Store, keys: Keys, *, tenant: str, grant_id: str) -> None:
        """Read what the store knows already.

        Raises:
            RightsError: what came under the grant was erased.
            IntegrityError: a file is not what its manifest names.
        """
        self.store, self.keys, self.tenant, self.grant_id = store, keys, tenant, grant_id
        self._pointer, self._folder = published.pointer(tenant), folder_of(grant_id)
        self._placing = Placing(store, tenant, grant_id)
        self._scratch = Scratch(keys.home, tenant, grant_id)
        self._originals: dict[str, tuple[str, Path | None]] = {}
        """Digest, and the sealed file where the store has none, by name."""
        self._waiting: list[Tables] = []
        self._bytes = 0
        self._staged: list[Staged] = []
        self._aside: list[Aside] = []
        self._entries: list[dict[str, Any]] = []
        self._own, self._own_aside = DigestSet(), set[tuple[str, str]]()
        self._known, self._known_aside = DigestSet(), set[tuple[str, str]]()
        self._numbers = count()
        self._head: str | None = None
        self._newest: list[BatchManifest] = []
        try:
            published.settled(store, tenant, self._catch_up)
        except BaseException:
            self.close()
            raise

    @property
    def stored(self) -> int:
        """Trajectories that are new and are, or were, published with the batch."""
        return sum(len(staged.digests) for staged in self._staged) + sum(len(index) for _, index, _ in self._waiting)

    def raw(self, original: bytes | Path, digest: str, sealed: Path | None = None) -> str:
        """Keep an original, sealed with the grant's key.

        Args:
            original: its bytes, or a file that holds them.
            digest: SHA-256 of the bytes.
            sealed: a file with its sealed form, to be taken over, where there is one already.

        Returns:
            Its name in the store, for the batch's sources.

        Raises:
            IntakeError: the file does not have that digest any more.
        """
        name = f"{self.tenant}/raw/{self._folder}/{digest}"
        if name not in self._originals:
            place = None if self.store.exists(name) else self._scratch.folder / f"{digest}.sealed"
            if place and sealed:
                os.replace(sealed, place)
            elif place:
                self._key.seal_file(original, digest, place)
            self._originals[name] = (digest, place)
        return name

    def add(self, part: Part | FiledPart) -> int:
        """Keep what is new of a part; returns the number of its trajectories that neither store nor batch had."""
        new = self._adopt(part) if isinstance(part, FiledPart) else self._hold(part)
        for entry in part.quarantine:
            key = (entry["digest"], entry["code"])
            if key not in self._known_aside and key not in self._own_aside:
                self._own_aside.add(key)
                self._entries.append(entry)
                self._bytes += len(entry["content_base64"] or "") + len(entry["reason"])
        if self._bytes >= SPILL_BYTES:
            self._spill()
        return new

    def publish(self, at: datetime, sources: Sequence[Source]) -> str | None:
        """Publish what was kept.

        Args:
            at: now, with a zone.
            sources: what the batch was read from.

        Returns:
            The batch's name, or None where nothing was new: then nothing was written.

        Raises:
            RightsError: what came under the grant was erased meanwhile.
            ConflictError: others moved the pointer each time that this batch was about to.
            IntegrityError: what was written does not read back, or a file is not what its manifest names.
        """
        self._spill()

        def publish_after(head: str | None) -> str | None:
            self._catch_up(head)
            if not self._staged and not self._aside:
                return None
            return self._publish_after(head, at, tuple(sources))

        try:
            return self.store.settled(self._pointer, publish_after, "this batch was being published")
        except RightsError:
            # The erasure may have been through before the last of these were written.
            self._placing.undo()
            raise

    def close(self) -> None:
        """Remove the scratch folder. Again is no error."""
        self._scratch.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @cached_property
    def _key(self) -> Key:
        return self.keys.get(self.tenant, self.grant_id)

    def _hold(self, part: Part) -> int:
        """Keep what is new of a part in memory; returns the number of its trajectories."""
        if not part.trajectories["digest"].equals(part.index["digest"]):
            raise ValueError("trajectories and index of a part must have the same digests in the same order")
        digests = packed(part.index["digest"])
        kept = fresh_rows(digests, self._known.seen(digests) | self._own.seen(digests))
        if kept.any():
            new = select((part.trajectories, part.index, part.events), kept)
            self._own.add(digests[kept])
            self._waiting.append(new)
            self._bytes += sum(table.nbytes for table in new)
        return int(kept.sum())

    def _adopt(self, part: FiledPart) -> int:
        """Keep what is new of a part whose rows lie in files; returns the number of its trajectories."""
        # What came before it stays before it.
        self._spill_rows()
        found: Staged | None = Staged.adopted(part, self._scratch.folder, next(self._numbers))
        for known in (self._known, self._own):
            found = found.without(known, self._scratch.folder) if found else None
        if found is None:
            return 0
        self._own.add(found.digests)
        self._staged.append(found)
        return len(found.digests)

    def _spill_rows(self) -> None:
        if self._waiting:
            self._staged.append(Staged.of(self._waiting, self._scratch.folder, next(self._numbers)))
            self._waiting = []

    def _spill(self) -> None:
        """Write what is held in memory to local files."""
        self._spill_rows()
        if self._entries:
            self._aside.append(Aside.of(self._entries, self._key, self._scratch.folder, next(self._numbers)))
            self._entries = []
        self._bytes = 0

    def _catch_up(self, head: str | None) -> None:
        """Learn what was published up to `head`, and drop it from what is kept."""
        if head == self._head:
            return
        newest = published.recent(self.store, self.tenant, head)
        names = [manifest.name for manifest in newest]
        follows = self._head is not None and self._head in names
        news = newest[names.index(self._head) + 1 :] if self._head is not None and follows else newest
        everything = news if follows else published.everything(self.store, newest)
        if any(manifest.erased and manifest.grant_id == self.grant_id for manifest in everything):
            raise RightsError(
                f"grant {self.grant_id!r}",
                rule="what came in under it was erased, and nothing more may come",
                remedy="obtain a new grant under a new id and ingest again",
            )
        if not follows:
            self._known, self._known_aside = DigestSet(), set()
        for block in summaries.digests(self.store, news, before=not follows):
            self._known.add(block)
        for table in summaries.aside_keys(self.store, news, before=not follows):
            rows = zip(*(table[name].to_pylist() for name in ("grant_id", "digest", "code")), strict=True)
            self._known_aside |= {(digest, code) for grant, digest, code in rows if grant == self.grant_id}
        self._head, self._newest = head, newest
        folder = self._scratch.folder
        staged = [one.without(self._known, folder) for one in self._staged]
        self._staged = [one for one in staged if one]
        aside = [one.without(self._known_aside, self._key, folder) for one in self._aside]
        self._aside = [one for one in aside if one]

    def _publish_after(self, head: str | None, at: datetime, sources: tuple[Source, ...]) -> str:
        plain = {
            **{kind: [staged.digest_of[kind] for staged in self._staged] for kind in KINDS},
            "quarantine": [aside.digest for aside in self._aside],
        }
        batch = digest({"grant": self.grant_id, "files": plain, "sources": [one.model_dump() for one in sources]})
        # Nobody sees either before the manifest names both.
        with ThreadPoolExecutor(1) as beside:
            originals = beside.submit(self._placing.originals, self._originals, self._key) if self._originals else None
            files = {kind: self._placing.parts(batch, kind, self._staged) for kind in KINDS}
            if self._aside:
                files["quarantine"] = self._placing.aside(batch, self._aside, self._key)
            if originals:
                originals.result()
        summary = None
        if len(self._newest) >= summaries.EVERY:
            summary = summaries.write(self.store, self.tenant, self._newest, self._scratch.folder)
        manifest = BatchManifest(
            tenant=self.tenant,
            batch=batch,
            parent=head,
            grant_id=self.grant_id,
            ingested_at=utc(at).isoformat(),
            files={kind: found for kind, found in files.items() if found},
            sources=sources,
            summary=summary,
        )
        name = manifest.name
        self.store.create_same(published.manifest_place(self.tenant, name), canonical_json(manifest).encode())
        try:
            self.store.swap(self._pointer, head, name)
        except ConflictError:
            if summary:
                summaries.remove(self.store, summary)
            raise
        if summary and self._newest[0].summary:
            summaries.remove(self.store, self._newest[0].summary)
        return batch
