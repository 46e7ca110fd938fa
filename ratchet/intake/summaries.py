"""Summaries: everything before a manifest in three files, so that a chain of thousands is read in a few steps.

    <tenant>/summaries/<generation>/<random>/{chain.jsonl,index.parquet,aside.parquet}

Each 64th manifest names one, and a tombstone does, which is how an erasure rewrites the chain at once. The generation
counts tombstones: what a publisher that was killed left in an earlier one goes with the next erasure. A publisher that
lost the race removes its own, and the winner the one that its own has replaced.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ratchet.contracts.canonical import canonical_json
from ratchet.intake import tables
from ratchet.intake.digests import packed
from ratchet.intake.published import BatchManifest, StoredFile, Summary, delete_all, everything, verify
from ratchet.intake.rows import ASIDE_COLUMNS, INDEX_COLUMNS, schema
from ratchet.store import Store

if TYPE_CHECKING:
    import pyarrow as pa

    from ratchet.intake.digests import Digests

EVERY = 64
"""A manifest names a summary where this many came since the last one."""
SUMMARY_INDEX_COLUMNS = {**INDEX_COLUMNS, "batch": "string", "ingested_at": "timestamp[us, tz=UTC]"}
"""Columns of the index with what a batch says of all its rows."""


def write(
    store: Store,
    tenant: str,
    newest: list[BatchManifest],
    folder: Path,
    *,
    without: str | None = None,
) -> Summary:
    """Write the summary of all manifests so far, and read it back.

    Args:
        store: the store.
        tenant: whose.
        newest: the manifests as `published.recent` gives them.
        folder: local folder for files in the making.
        without: a grant of which nothing may be in it but an earlier tombstone.

    Raises:
        IntegrityError: a file is not what its manifest names, or what was written does not read back.
    """
    kept = [one for one in everything(store, newest) if one.erased or one.grant_id != without]
    generation = sum(one.erased for one in kept) + (without is not None)
    place = f"{tenant}/summaries/{generation}/{secrets.token_hex(16)}"
    lines = "".join(canonical_json(one) + "\n" for one in kept).encode()
    before = newest[0].summary if newest else None
    index = _without(_index_of(store, before, newest), without)
    aside = _without(_aside_of(store, before, newest), without)
    made = {"chain": folder / "chain.jsonl", "index": folder / "index.parquet", "aside": folder / "aside.parquet"}
    made["chain"].write_bytes(lines)
    rows = {
        "chain": len(kept),
        "index": tables.write_all(index, schema(SUMMARY_INDEX_COLUMNS), made["index"]),
        "aside": tables.write_all(aside, schema(ASIDE_COLUMNS), made["aside"]),
    }
    return Summary(**{kind: _stored(store, f"{place}/{path.name}", path, rows[kind]) for kind, path in made.items()})


def index_tables(store: Store, newest: list[BatchManifest], columns: Sequence[str] = ()) -> Iterator[pa.Table]:
    """Yield the whole index, in the order of intake, with these columns of `SUMMARY_INDEX_COLUMNS`, or all of them."""
    yield from _index_of(store, newest[0].summary if newest else None, newest, columns)


def aside_keys(store: Store, newest: list[BatchManifest], *, before: bool = True) -> Iterator[pa.Table]:
    """Yield grant, digest and code of all quarantine entries; without `before` only those of `newest` itself."""
    yield from _aside_of(store, newest[0].summary if newest and before else None, newest)


def digests(store: Store, newest: list[BatchManifest], *, before: bool = True) -> Iterator[Digests]:
    """Yield blocks of the digests of all trajectories; without `before` only those of `newest` itself."""
    found = _index_of(store, newest[0].summary if newest and before else None, newest, ["digest"])
    yield from (packed(table["digest"]) for table in found)


def remove(store: Store, summary: Summary) -> None:
    """Delete a summary that no manifest which a reader opens names any more."""
    delete_all(store, summary.chain.name.rpartition("/")[0])


def remove_earlier(store: Store, tenant: str, newest: list[BatchManifest]) -> None:
    """Delete the summaries of all generations before the present one, whoever left them there."""
    summary = newest[0].summary if newest else None
    for generation in range(int(summary.chain.name.split("/")[2]) if summary else 0):
        delete_all(store, f"{tenant}/summaries/{generation}")


def _stored(store: Store, name: str, path: Path, rows: int) -> StoredFile:
    file = StoredFile(name=name, digest=tables.local_digest(path), rows=rows)
    store.create_file(name, path)
    path.unlink()
    verify(store, file)
    return file


def _index_of(
    store: Store, before: Summary | None, newest: list[BatchManifest], columns: Sequence[str] = ()
) -> Iterator[pa.Table]:
    import pyarrow as pa

    full = schema({name: SUMMARY_INDEX_COLUMNS[name] for name in columns or SUMMARY_INDEX_COLUMNS})
    stored = [name for name in full.names if name not in ("batch", "ingested_at")] if columns else None
    if before:
        for piece in tables.pieces_of(store, before.index, columns or None):
            yield tables.conform(piece, full)
    for manifest in newest:
        at = datetime.fromisoformat(manifest.ingested_at)
        for file in manifest.files.get("index", ()):
            table = tables.read(store, file, stored)
            for name, value in (("batch", manifest.batch), ("ingested_at", at)):
                if name in full.names:
                    table = table.append_column(name, pa.repeat(pa.scalar(value, full.field(name).type), len(table)))
            yield tables.conform(table, full)


def _aside_of(store: Store, before: Summary | None, newest: list[BatchManifest]) -> Iterator[pa.Table]:
    import pyarrow as pa

    if before:
        yield from tables.pieces_of(store, before.aside)
    for manifest in newest:
        for file in manifest.files.get("quarantine", ()):
            keys = tables.read(store, file, ["digest", "code"])
            yield keys.add_column(0, "grant_id", pa.repeat(pa.scalar(manifest.grant_id), len(keys)))


def _without(found: Iterator[pa.Table], grant_id: str | None) -> Iterator[pa.Table]:
    import pyarrow.compute as pc

    for table in found:
        yield table if grant_id is None else table.filter(pc.not_equal(table["grant_id"], grant_id))
