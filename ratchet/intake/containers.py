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
from collections.abc import Iterator
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
_ROWS = 128
"""Rows decoded at a time: few, since one row of a log may hold megabytes."""


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
        # Pages are read as they are needed: a row group may be as big as the file.
        table = pq.ParquetFile(file, pre_buffer=False, buffer_size=CHUNK_BYTES)
        groups = table.metadata.num_row_groups
        twice = _named_twice(pa.struct(list(table.schema_arrow)))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise Unreadable("bad_container", f"its Parquet footer cannot be read ({type(error).__name__})") from None
    if twice:
        raise Unreadable("bad_container", "two columns, or two fields of an object, have the same name")
    for group in range(groups):
        done = 0
        try:
            for batch in table.iter_batches(batch_size=_ROWS, row_groups=[group], use_threads=False):
                yield from _chunks(_lines(batch, f"row group {group}, row ", done))
                done += batch.num_rows
        except (pa.ArrowException, OSError, ValueError) as error:
            yield _unreadable(f"row group {group} from row {done}", f"it is damaged ({type(error).__name__})")


def _named_twice(kind: Any) -> bool:
    children = [kind.field(at) for at in range(kind.num_fields)]
    names = [child.name for child in children]
    return len(set(names)) != len(names) or any(_named_twice(child.type) for child in children)


def _chunks(lines: Iterator[bytes]) -> Iterator[bytes]:
    chunk, size = [], 0
    for line in lines:
        chunk.append(line)
        size += len(line)
        if size >= CHUNK_BYTES:
            yield b"".join(chunk)
            chunk, size = [], 0
    if chunk:
        yield b"".join(chunk)


def _lines(batch: Any, where: str, first: int) -> Iterator[bytes]:
    """Yield the rows of a batch as lines; where one cannot be decoded, the others are."""
    try:
        rows = _values(batch.to_struct_array())
    except (ValueError, OverflowError, ArithmeticError):
        for at in range(batch.num_rows):
            yield _row(batch.slice(at, 1), f"{where}{first + at}")
        return
    for row in rows:
        yield _line(row)


def _row(batch: Any, where: str) -> bytes:
    try:
        return _line(_values(batch.to_struct_array())[0])
    except (ValueError, OverflowError, ArithmeticError) as error:
        return _unreadable(where, f"a value has no JSON form ({type(error).__name__})").lstrip(b"\n")


def _line(row: Any) -> bytes:
    return (json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n").encode()


def _values(array: Any) -> list[Any]:
    """Return the values of an array as plain JSON, column by column: far faster than value by value."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind, types = array.type, pa.types
    if types.is_struct(kind):
        return _objects(array)
    if types.is_string(kind) or types.is_large_string(kind):
        texts: list[Any] = array.to_numpy(zero_copy_only=False).tolist()
        return texts
    if types.is_dictionary(kind):
        return _values(array.dictionary_decode())
    if types.is_run_end_encoded(kind):
        return _values(pc.run_end_decode(array))
    if isinstance(kind, pa.JsonType):
        return [None if text is None else _from_json(text) for text in _values(array.storage)]
    if isinstance(kind, pa.BaseExtensionType) and not isinstance(kind, pa.UuidType):
        return _values(array.storage)
    if types.is_map(kind):
        entry = pa.struct([("key", kind.key_type), ("value", kind.item_type)])
        return [_object(pairs) for pairs in _values(array.cast(pa.list_(entry)))]
    if hasattr(kind, "value_type"):  # every kind of list
        return _lists(_values(array.flatten()), pc.list_value_length(array).to_pylist())
    return [_plain(value) for value in array.to_pylist()]


def _objects(array: Any) -> list[Any]:
    names = [array.type.field(at).name for at in range(array.type.num_fields)]
    columns = [_values(child) for child in array.flatten()]
    if not columns:
        return [{} if valid else None for valid in array.is_valid().to_pylist()]
    rows: list[Any] = [
        {name: value for name, value in zip(names, values, strict=True) if value is not None}
        for values in zip(*columns, strict=True)
    ]
    if array.null_count:
        rows = [row if valid else None for row, valid in zip(rows, array.is_valid().to_pylist(), strict=True)]
    return rows


def _lists(flat: list[Any], lengths: list[int | None]) -> list[Any]:
    made: list[Any] = []
    at = 0
    for length in lengths:
        made.append(None if length is None else flat[at : at + length])
        at += length or 0
    return made


def _object(pairs: list[dict[str, Any]] | None) -> dict[str, Any] | None:
    """Return the object that the entries of a map make."""
    if pairs is None:
        return None
    result: dict[str, Any] = {}
    for pair in pairs:
        name = pair["key"] if isinstance(pair["key"], str) else json.dumps(pair["key"])
        if name in result:
            raise ValueError("a map holds the same key twice")
        result[name] = pair.get("value")
    return result


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
    return value if isinstance(value, str | int | float | None) else str(value)
