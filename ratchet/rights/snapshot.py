"""A snapshot of a long ledger: what its first lines leave standing, so that opening it does not fold them again.

The file is named by its own SHA-256 and holds one JSON line (number of lines, their bytes and the SHA-256 over them),
the 32-byte digests of the lines, and an Arrow table with one row per grant, sorted by grant id. It is a cache: it opens
only beside a ledger whose beginning has the very hash that it names, and a damaged one is passed over.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

from ratchet.contracts.canonical import canonical_json, digest_bytes
from ratchet.rights.events import Event
from ratchet.rights.fold import Standing

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CHUNK = 1 << 22


@dataclass
class Row:
    """What is known of one grant: its standing, the time of its latest event, and its lines as (offset, number)."""

    standing: Standing | None = None
    last_at: datetime = EPOCH
    lines: list[tuple[int, int]] = field(default_factory=list)

    def take(self, event: Event, offset: int, seq: int) -> None:
        """Add one event."""
        self.lines.append((offset, seq))
        self.last_at = max(self.last_at, event.at)
        if self.standing is not None:
            self.standing.take(event)
        elif event.kind == "grant":
            self.standing = Standing.of(event)


@dataclass(frozen=True)
class Snapshot:
    """The first `count` lines of a ledger."""

    count: int
    size: int
    """Bytes of those lines."""
    sha256: str
    """Over those bytes."""
    digests: bytes = field(repr=False)
    """32 bytes per line."""
    grants: Any = field(repr=False)
    """Arrow table: one row per grant, sorted by `grant_id`."""

    def __contains__(self, grant_id: str) -> bool:
        return self._place(grant_id) is not None

    def row(self, grant_id: str) -> Row | None:
        """Return what is known of one grant, or None."""
        place = self._place(grant_id)
        return None if place is None else _row(self.grants.slice(place, 1).to_pylist()[0])

    def rows(self, tenant: str | None = None) -> Iterator[tuple[str, Row]]:
        """Yield (grant id, row) of all grants, or of those of a tenant, sorted by id."""
        for batch in self.grants.to_batches(max_chunksize=20_000):
            for item in batch.to_pylist():
                if tenant in (None, item["tenant"]):
                    yield item["grant_id"], _row(item)

    def _place(self, grant_id: str) -> int | None:
        column = self.grants["grant_id"]
        place = bisect_left(column, grant_id, key=lambda item: item.as_py())
        return place if place < len(column) and column[place].as_py() == grant_id else None

    @classmethod
    def made(cls, ledger: Path, size: int, digests: bytes, rows: dict[str, Row]) -> Self:
        """Make the snapshot of the first `size` bytes of a ledger, which were verified."""
        import pyarrow as pa

        columns: dict[str, list[Any]] = {name: [] for name in _SCHEMA}
        for grant_id in sorted(rows):
            for name, value in _columns(grant_id, rows[grant_id]).items():
                columns[name].append(value)
        schema = pa.schema([(name, getattr(pa, kind)()) for name, kind in _SCHEMA.items()])
        table = pa.table(columns, schema=schema)
        return cls(len(digests) // 32, size, prefix_sha256(ledger, size), digests, table)

    def save(self, folder: Path, stem: str) -> Path:
        """Write the file and remove shorter ones beside it."""
        import pyarrow as pa

        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.grants.schema) as writer:
            writer.write_table(self.grants)
        opening = canonical_json({"count": self.count, "size": self.size, "sha256": self.sha256}).encode() + b"\n"
        data = opening + self.digests + sink.getvalue().to_pybytes()
        target = folder / f"{stem}.{self.count}.{digest_bytes(data)}.snapshot"
        temporary = folder / f".{target.name}.{os.getpid()}"
        temporary.write_bytes(data)
        os.replace(temporary, target)
        for count, other in _found(folder, stem):
            if count < self.count:
                with contextlib.suppress(FileNotFoundError):
                    other.unlink()
        return target


def load(ledger: Path) -> Snapshot | None:
    """Return the longest sound snapshot beside a ledger, or None. Whether the ledger begins so is for the caller."""
    for _, path in sorted(_found(ledger.parent, ledger.stem), reverse=True):
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            continue
        if digest_bytes(data) == path.name.split(".")[-2]:
            return _opened(data)
    return None


def prefix_sha256(path: Path, size: int) -> str:
    """SHA-256 over the first `size` bytes of a file; of all of it where it is shorter."""
    state = hashlib.sha256()
    with open(path, "rb") as file:
        while size > 0 and (chunk := file.read(min(size, _CHUNK))):
            state.update(chunk)
            size -= len(chunk)
    return state.hexdigest()


_SCHEMA = {
    "grant_id": "string", "tenant": "string", "granted_at": "int64", "purposes": "string", "base_models": "string",
    "ends": "int64", "withdrawn": "int64", "held": "bool_", "last_at": "int64", "lines": "string",
}  # fmt: skip


def _found(folder: Path, stem: str) -> list[tuple[int, Path]]:
    names = [path for path in folder.glob(f"{stem}.*.snapshot") if len(path.name.split(".")) == 4]
    return [(int(path.name.split(".")[1]), path) for path in names if path.name.split(".")[1].isdigit()]


def _opened(data: bytes) -> Snapshot:
    import pyarrow as pa

    end = data.index(b"\n") + 1
    opening = json.loads(data[:end])
    digests = end + 32 * opening["count"]
    with pa.ipc.open_stream(pa.py_buffer(data)[digests:]) as reader:
        table = reader.read_all().combine_chunks()
    return Snapshot(opening["count"], opening["size"], opening["sha256"], data[end:digests], table)


def _columns(grant_id: str, row: Row) -> dict[str, Any]:
    standing = row.standing
    return {
        "grant_id": grant_id,
        "tenant": standing and standing.tenant,
        "granted_at": standing and _micros(standing.granted_at),
        "purposes": standing and canonical_json(sorted(standing.purposes)),
        "base_models": standing and canonical_json(sorted(standing.base_models)),
        "ends": standing and _micros(standing.ends),
        "withdrawn": standing and _micros(standing.withdrawn),
        "held": standing and standing.held,
        "last_at": _micros(row.last_at),
        "lines": canonical_json(row.lines),
    }


def _row(item: dict[str, Any]) -> Row:
    standing = None
    if item["tenant"] is not None:
        standing = Standing(
            tenant=item["tenant"],
            granted_at=_time(item["granted_at"]),
            purposes=frozenset(json.loads(item["purposes"])),
            base_models=frozenset(json.loads(item["base_models"])),
            ends=None if item["ends"] is None else _time(item["ends"]),
            withdrawn=None if item["withdrawn"] is None else _time(item["withdrawn"]),
            held=item["held"],
        )
    lines: Sequence[Sequence[int]] = json.loads(item["lines"])
    return Row(standing, _time(item["last_at"]), [(offset, seq) for offset, seq in lines])


def _micros(at: datetime | None) -> int | None:
    return None if at is None else (at - EPOCH) // timedelta(microseconds=1)


def _time(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)
