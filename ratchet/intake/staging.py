"""What a writer has spilled: local files that are still its own, and how rows are dropped from them again."""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ratchet.contracts.canonical import digest
from ratchet.intake import tables
from ratchet.intake.digests import DigestSet, packed
from ratchet.intake.handover import FiledPart, Tables
from ratchet.intake.published import changed
from ratchet.intake.rows import QUARANTINE_COLUMNS, table
from ratchet.intake.sealed import Key

if TYPE_CHECKING:
    import pyarrow as pa

    from ratchet.intake.digests import Digests


@dataclass(frozen=True)
class Staged:
    """Trajectories, index and events in three local files."""

    number: int
    """Which it is of its writer."""
    files: dict[str, Path]
    digest_of: dict[str, str]
    """SHA-256 of the files, by kind."""
    rows_of: dict[str, int]
    digests: Digests
    """Of the trajectories, in the order of the index."""

    @classmethod
    def of(cls, found: Sequence[Tables], folder: Path, number: int) -> Staged:
        """Write the tables of several parts, one after the other, as one file of each kind."""
        import pyarrow as pa

        trajectories, index, events = (pa.concat_tables(column) for column in zip(*found, strict=True))
        digests = packed(index["digest"])
        made = {"trajectories": trajectories.sort_by("digest"), "index": index, "events": events}
        files = {kind: folder / f"{kind}-{number}.parquet" for kind in made}
        for kind, content in made.items():
            tables.write(content, files[kind])
        digest_of = {kind: tables.local_digest(path) for kind, path in files.items()}
        return cls(number, files, digest_of, {kind: len(content) for kind, content in made.items()}, digests)

    @classmethod
    def adopted(cls, part: FiledPart, folder: Path, number: int) -> Staged:
        """Take over the files of a part, and write its index beside them."""
        made = {kind: folder / f"{kind}-{number}.parquet" for kind in ("trajectories", "index", "events")}
        os.replace(part.trajectories.path, made["trajectories"])
        os.replace(part.events.path, made["events"])
        tables.write(part.index, made["index"])
        digest_of = {"trajectories": part.trajectories.digest, "events": part.events.digest}
        rows_of = {"trajectories": part.trajectories.rows, "index": len(part.index), "events": part.events.rows}
        digest_of["index"] = tables.local_digest(made["index"])
        return cls(number, made, digest_of, rows_of, packed(part.index["digest"]))

    def without(self, known: DigestSet, folder: Path) -> Staged | None:
        """Return it without the trajectories that are known; None where nothing is left, of its files neither."""
        import pyarrow.parquet as pq

        kept = ~known.seen(self.digests)
        if kept.all():
            return self
        if not kept.any():
            for path in self.files.values():
                path.unlink()
            return None
        trajectories, index, events = (pq.read_table(self.files[kind]) for kind in ("trajectories", "index", "events"))
        chosen = index.filter(kept)["digest"].combine_chunks()
        remaining = (_among(trajectories, chosen), _among(index, chosen), _among(events, chosen))
        return Staged.of([remaining], folder, self.number)


@dataclass(frozen=True)
class Aside:
    """Quarantine entries in a local file, what is kept of their content sealed."""

    number: int
    """Which it is of its writer."""
    path: Path
    digest: str
    """SHA-256 of the plain entries: sealing the same again gives other bytes."""
    entries: list[tuple[str, str]]
    """Digest and code of each."""

    @classmethod
    def of(cls, entries: Sequence[dict[str, Any]], key: Key, folder: Path, number: int) -> Aside:
        """Write entries (`batch.Part.quarantine`) as one file."""
        rows = []
        for entry in entries:
            kept = entry["content_base64"]
            sealed = None if kept is None else key.seal_bytes(base64.b64decode(kept), entry["digest"])
            rows.append({**entry, "content": sealed})
        path = folder / f"quarantine-{number}.parquet"
        tables.write(table(rows, QUARANTINE_COLUMNS), path)
        return cls(number, path, _plain_digest(entries), [(entry["digest"], entry["code"]) for entry in entries])

    def without(self, known: set[tuple[str, str]], key: Key, folder: Path) -> Aside | None:
        """Return it without the entries that are known; None where nothing is left."""
        if known.isdisjoint(self.entries):
            return self
        entries = opened_entries(self.path.read_bytes(), key, str(self.path))
        left = [entry for entry in entries if (entry["digest"], entry["code"]) not in known]
        return Aside.of(left, key, folder, self.number) if left else None

    def same(self, stored: bytes, key: Key, name: str) -> bool:
        """Whether a stored file holds the same entries. Raises IntegrityError where it cannot be unsealed."""
        return _plain_digest(opened_entries(stored, key, name)) == self.digest


def opened_entries(data: bytes, key: Key | None, name: str) -> list[dict[str, Any]]:
    """Return the entries of a quarantine file.

    Args:
        data: the file.
        key: of its grant; without one the content stays closed, and `content_base64` is None.
        name: what the file is called in errors.

    Raises:
        IntegrityError: an entry was sealed with another key, or the file was changed.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        entries = pq.read_table(BytesIO(data)).to_pylist()
    except (pa.ArrowException, OSError):
        raise changed(name) from None
    for entry in entries:
        sealed = entry.pop("content")
        plain = None if sealed is None or key is None else key.unseal_bytes(sealed, entry["digest"], name)
        entry["content_base64"] = None if plain is None else base64.b64encode(plain).decode()
    return entries


def _plain_digest(entries: Sequence[dict[str, Any]]) -> str:
    fields = [*(name for name in QUARANTINE_COLUMNS if name != "content"), "content_base64"]
    return digest([{name: entry[name] for name in fields} for entry in entries])


def _among(rows: pa.Table, digests: pa.Array) -> pa.Table:
    import pyarrow.compute as pc

    return rows.filter(pc.is_in(rows["digest"], value_set=digests))
