"""Search for a phrase in every form that a file may hold it in: escaped, encoded, compressed, in tables, databases."""

from __future__ import annotations

import base64
import gzip
import html
import io
import json
import sqlite3
import urllib.parse
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path


def needles(phrase: str) -> set[bytes]:
    """The forms of a phrase that would betray it."""
    plain = {phrase, json.dumps(phrase)[1:-1], json.dumps(json.dumps(phrase)[1:-1])[1:-1]}
    plain |= {json.dumps(phrase, ensure_ascii=False)[1:-1], html.escape(phrase), urllib.parse.quote(phrase)}
    plain |= {repr(phrase)[1:-1]}
    raw = {one.encode() for one in plain} | {phrase.encode("utf-16-le"), phrase.encode("utf-16-be")}
    return raw | {piece for one in list(raw) for piece in _in_base64(one)}


def found(root: Path, phrase: str) -> list[str]:
    """Files under `root` in which the phrase can be found, in whatever form, or whose names hold it."""
    wanted = needles(phrase)
    paths = sorted(root.rglob("*"))
    return [str(path.relative_to(root)) for path in paths if any(found_in(text, wanted) for text in _texts(path))]


def found_in(data: bytes, wanted: set[bytes]) -> bool:
    """Whether one of the needles is in bytes, as they are or opened."""
    return any(one in text for text in (data, *_opened(data)) for one in wanted)


def _texts(path: Path) -> Iterator[bytes]:
    yield path.name.encode("utf-8", "surrogateescape")
    if path.is_file():
        yield from _contents(path)


def _in_base64(data: bytes) -> Iterator[bytes]:
    """The parts of every base64 text that holds `data`, whatever stands before it."""
    for shift in range(3):
        text = base64.b64encode(b"\0" * shift + data)
        core = text[4 if shift else 0 : -4]
        yield core
        yield core.replace(b"+", b"-").replace(b"/", b"_")


def _contents(path: Path) -> Iterator[bytes]:
    data = path.read_bytes()
    yield data
    yield from _opened(data)
    if data.startswith(b"SQLite format 3\0"):
        yield from _rows(path)


def _opened(data: bytes) -> Iterator[bytes]:
    inner: list[bytes] = []
    if data.startswith(b"PAR1"):
        inner.append(_columns(data))
    elif data.startswith(b"\x1f\x8b"):
        inner.append(gzip.decompress(data))
    elif data.startswith(b"PK\x03\x04"):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            inner += [archive.read(name) for name in archive.namelist()]
    elif data[:2] in (b"\x78\x9c", b"\x78\xda"):
        inner.append(zlib.decompress(data))
    for one in inner:
        yield one
        yield from _opened(one)


def _columns(data: bytes) -> bytes:
    import pyarrow.parquet as pq

    table = pq.read_table(io.BytesIO(data))
    return "\n".join(str(value) for column in table.columns for value in column.to_pylist()).encode("utf-8", "replace")


def _rows(path: Path) -> Iterator[bytes]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        connection.text_factory = bytes
        tables = [row[0].decode() for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            for row in connection.execute(f'SELECT * FROM "{table}"'):
                for value in row:
                    if isinstance(value, bytes):
                        yield value
                        yield from _opened(value)
