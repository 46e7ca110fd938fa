"""Parquet files of the intake: how they are written, and read back verified, whole or in pieces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from ratchet.contracts.canonical import digest_bytes
from ratchet.intake.published import StoredFile, content, opened
from ratchet.store import Store

if TYPE_CHECKING:
    import pyarrow as pa

GROUP_BYTES = 2 << 20
"""Size of a row group before compression, about: what a reader of a few rows must hold at once."""
_BUFFER_ROWS = 1 << 16
_DIFFERENT = ("digest", "document", "content", "text", "arguments", "call_id")
"""Columns whose values are nearly all different, or long: a dictionary of them costs time and saves no room."""


def write(table: pa.Table, path: Path) -> None:
    """Write a table as a Parquet file. The same rows give the same bytes, however the table was put together."""
    import pyarrow.parquet as pq

    rows = max(1, min(len(table), len(table) * GROUP_BYTES // max(1, table.nbytes)))
    with pq.ParquetWriter(
        path,
        table.schema,
        compression="zstd",
        use_dictionary=[name for name in table.column_names if name not in _DIFFERENT],
        write_statistics=["digest"] if "digest" in table.column_names else False,
    ) as file:
        # Put together group by group: memory that was used just before is far cheaper than as much again.
        for start in range(0, len(table), rows):
            file.write_table(table.slice(start, rows).combine_chunks(), row_group_size=rows)


def write_all(tables: Iterator[pa.Table], schema: pa.Schema, path: Path) -> int:
    """Write tables one after the other into one file with `schema`; returns the number of rows. Memory is bounded."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    total, waiting, rows = 0, [], 0
    with pq.ParquetWriter(path, schema, compression="zstd") as file:
        for table in tables:
            waiting.append(conform(table, schema))
            rows += len(table)
            if rows >= _BUFFER_ROWS:
                file.write_table(pa.concat_tables(waiting).combine_chunks())
                total, waiting, rows = total + rows, [], 0
        if waiting:
            file.write_table(pa.concat_tables(waiting).combine_chunks())
    return total + rows


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a table with exactly the columns of `schema`: one that it lacks, being older, is null throughout."""
    import pyarrow as pa

    return pa.table(
        [
            table[field.name].cast(field.type) if field.name in table.column_names else pa.nulls(len(table), field.type)
            for field in schema
        ],
        schema=schema,
    )


def read(store: Store, file: StoredFile, columns: Sequence[str] | None = None) -> pa.Table:
    """Return a file that a manifest names as a table. Raises IntegrityError where it is not what the manifest names."""
    import pyarrow.parquet as pq

    # Threads cost more than they save on files of this size.
    table = pq.ParquetFile(BytesIO(content(store, file))).read(columns=columns, use_threads=False)
    return table if columns is None else table.select(columns)


def pieces_of(store: Store, file: StoredFile, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """Yield a file that a manifest names as one table per row group. Raises IntegrityError as `read`."""
    import pyarrow.parquet as pq

    with opened(store, file) as handle:
        whole = pq.ParquetFile(handle)
        for group in range(whole.num_row_groups):
            yield whole.read_row_group(group, columns=columns)


def local_digest(path: Path) -> str:
    """SHA-256 of a local Parquet file, which is small enough for memory."""
    return digest_bytes(path.read_bytes())
