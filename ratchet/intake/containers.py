"""Containers: one Parquet, gzip or Zstandard file, opened lazily as the JSON text that the ordinary readers read.

A Parquet row becomes one line of JSON. Arrow gives every row of a file the same nested fields, filled with nulls where
a row has none, and one cannot be told from the other afterwards: a null field of an object is left out, at every
level; nulls inside lists stay. Timestamps, dates and times become ISO 8601 (naive ones stay naive), durations seconds,
maps objects, decimals a number where a double prints the same and else their text, binary its text where it is UTF-8
and else a base64 `data:` URL, JSON-typed strings (as `datasets` writes them) the value they hold.

Nothing is unpacked beyond stated bounds. What cannot be unpacked (a damaged row group, a truncated stream, a bomb)
costs itself alone: in its place stands a line that no reader takes, `{"unreadable": ..., "reason": ...}`, so that it
is quarantined beside the records around it.
"""

from __future__ import annotations

import base64
import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

from ratchet.intake.jsontext import decode_sound
from ratchet.intake.records import Unreadable

MAGIC = {"parquet": b"PAR1", "gzip": b"\x1f\x8b\x08", "zstd": b"\x28\xb5\x2f\xfd"}
"""First bytes of each container."""
CHUNK_BYTES = 1 << 20
"""About how much text one chunk holds."""
FREE_BYTES = 64 << 20
"""Text that any file may unpack to, whatever its ratio."""
MAX_RATIO = 250
"""Beyond `FREE_BYTES`: bytes of text per byte of the file. Logs reach 5 to 40, a deflate bomb 1,032."""
MAX_GROUP_BYTES = 4 << 30
"""Uncompressed size that a row group of a Parquet file may state."""
_ROWS = 128
"""Rows decoded at a time: few, since one row of a log may hold megabytes."""
_Make = Callable[[Any], Any]


def container_of(head: bytes) -> str | None:
    """Return `parquet`, `gzip` or `zstd` by the first bytes of a file, or None where it is no container."""
    return next((kind for kind, magic in MAGIC.items() if head.startswith(magic)), None)


def open_rows(source: str | Path | BinaryIO, *, size: int | None = None) -> Iterator[bytes]:
    """Yield the text of a container in chunks of about `CHUNK_BYTES`; those of Parquet end on a line's end.

    Args:
        source: a path, or a seekable binary file, which is left open.
        size: bytes of the file, where that is known.

    Raises:
        Unreadable: it is no container, or Parquet without a readable footer; nothing was yielded.
    """
    if isinstance(source, str | Path):
        with open(source, "rb") as file:
            yield from open_rows(file, size=size)
        return
    head = source.read(4)
    if size is None:
        size = source.seek(0, 2)
    source.seek(0)
    kind = container_of(head)
    if kind is None:
        raise Unreadable("bad_container", "it is neither Parquet nor gzip nor Zstandard")
    yield from _bounded(_parquet(source) if kind == "parquet" else _stream(source, kind), size)


def unpack(data: bytes) -> Iterator[bytes]:
    """Yield the text of a container that is in memory; see `open_rows`."""
    return open_rows(BytesIO(data), size=len(data))


def _bounded(chunks: Iterator[bytes], size: int) -> Iterator[bytes]:
    allowed, total = max(FREE_BYTES, MAX_RATIO * size), 0
    for chunk in chunks:
        total += len(chunk)
        if total > allowed:
            yield _unreadable("rest of the file", f"it unpacks to more than {MAX_RATIO} times its size")
            return
        yield chunk


def _unreadable(what: str, reason: str) -> bytes:
    # The line break before it closes a line that was cut.
    return ("\n" + json.dumps({"unreadable": what, "reason": reason}) + "\n").encode()


def _stream(file: BinaryIO, kind: str) -> Iterator[bytes]:
    import pyarrow as pa

    # A read that meets the damage loses what it had so far: `read1` returns before, and Arrow's reads are kept short.
    stream: Any = gzip.GzipFile(fileobj=file, mode="rb") if kind == "gzip" else pa.CompressedInputStream(file, "zstd")
    read = stream.read1 if kind == "gzip" else stream.read
    amount = CHUNK_BYTES if kind == "gzip" else 1 << 14
    try:
        while chunk := read(amount):
            yield chunk
    except (OSError, EOFError, zlib.error) as error:
        yield _unreadable("rest of the file", f"the {kind} stream is damaged or truncated ({type(error).__name__})")


def _parquet(file: BinaryIO) -> Iterator[bytes]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.ParquetFile(file, pre_buffer=False)
        groups = table.metadata.num_row_groups
        make = _maker(pa.struct(list(table.schema_arrow)))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise Unreadable("bad_container", f"its Parquet footer cannot be read ({type(error).__name__})") from None
    for group in range(groups):
        if table.metadata.row_group(group).total_byte_size > MAX_GROUP_BYTES:
            yield _unreadable(f"row group {group}", f"it states more than {MAX_GROUP_BYTES} bytes")
            continue
        done = 0
        try:
            for batch in table.iter_batches(batch_size=_ROWS, row_groups=[group], use_threads=False):
                yield from _lines(batch, make, f"row group {group}, row ", done)
                done += batch.num_rows
        except (pa.ArrowException, OSError, ValueError) as error:
            yield _unreadable(f"row group {group} from row {done}", f"it is damaged ({type(error).__name__})")


def _lines(batch: Any, make: _Make, where: str, first: int) -> Iterator[bytes]:
    """Yield the rows of a batch as lines; where one cannot be decoded, the others are."""
    try:
        lines = [_line(make(row)) for row in batch.to_pylist()]
    except (ValueError, OverflowError, ArithmeticError):
        lines = [_row(batch.slice(at, 1), make, f"{where}{first + at}") for at in range(batch.num_rows)]
    chunk, size = [], 0
    for line in lines:
        chunk.append(line)
        size += len(line)
        if size >= CHUNK_BYTES:
            yield b"".join(chunk)
            chunk, size = [], 0
    if chunk:
        yield b"".join(chunk)


def _row(batch: Any, make: _Make, where: str) -> bytes:
    try:
        return _line(make(batch.to_pylist()[0]))
    except (ValueError, OverflowError, ArithmeticError) as error:
        return _unreadable(where, f"a value has no JSON form ({type(error).__name__})").lstrip(b"\n")


def _line(row: Any) -> bytes:
    return (json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n").encode()


def _maker(kind: Any) -> _Make:
    """Return the function that turns a Python value of an Arrow type into plain JSON."""
    import pyarrow as pa

    types = pa.types
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return _maker(kind.value_type)
    if isinstance(kind, pa.JsonType):
        return _from_json
    if isinstance(kind, pa.BaseExtensionType):
        return str if isinstance(kind, pa.UuidType) else _maker(kind.storage_type)
    if types.is_struct(kind):
        fields = {kind.field(at).name: _maker(kind.field(at).type) for at in range(kind.num_fields)}
        if len(fields) != kind.num_fields:
            raise Unreadable("bad_container", "two columns or fields have the same name")
        return lambda value: {name: fields[name](item) for name, item in value.items() if item is not None}
    if types.is_map(kind):
        return _map(_maker(kind.key_type), _maker(kind.item_type))
    if hasattr(kind, "value_type"):  # every other kind of list
        make = _maker(kind.value_type)
        return lambda value: [None if item is None else make(item) for item in value]
    return _plain


def _map(make_key: _Make, make: _Make) -> _Make:
    def made(pairs: list[tuple[Any, Any]]) -> dict[str, Any]:
        result = {}
        for key, value in pairs:
            name = make_key(key)
            name = name if isinstance(name, str) else json.dumps(name)
            if name in result:
                raise ValueError("a map holds the same key twice")
            result[name] = None if value is None else make(value)
        return result

    return made


def _from_json(text: str) -> Any:
    value = decode_sound(text)
    return text if value is None else value


def _plain(value: Any) -> Any:
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Decimal):
        if value == value.to_integral_value() and value.as_tuple().exponent == 0:
            return int(value)
        return float(value) if repr(float(value)) == str(value) else str(value)
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return f"data:application/octet-stream;base64,{base64.b64encode(value).decode()}"
    return value
