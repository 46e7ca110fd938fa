"""Zip archives of logs, read within stated bounds: stored, deflated and Zstandard entries (methods 0, 8 and 93).

Python's `zipfile` gives the directory, and refuses Zstandard before 3.14; here every entry is unpacked no further than
the size that it states, and checked by its checksum. An archive whose directory is lost (a crash, a cut copy) is read
by its local headers, as far as it goes. Refused: archives whose entries state more than `MAX_RATIO` times its size
(bombs, overlapping ones too), or that hold too many.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO

from ratchet.intake.containers import FREE_BYTES, MAX_RATIO
from ratchet.intake.records import Unreadable

MAX_ENTRIES = 500_000
"""Entries of one archive."""
MAX_ENTRY_BYTES = 256 << 20
"""Unpacked size of one entry: it is held in memory."""
LOCAL = b"PK\x03\x04"
"""What every entry, and so every archive that has one, begins with."""
_HEADER = struct.Struct("<4s5H3I2H")
_STORED, _DEFLATED, _ZSTD = 0, 8, 93


@dataclass(frozen=True)
class Entry:
    """One file of an archive."""

    name: str
    method: int
    encrypted: bool
    at: int
    """Offset of its header in the archive."""
    packed: int
    size: int
    checksum: int


class Archive:
    """The entries of a zip archive by name; of two with one name, the later one counts."""

    def __init__(self, data: bytes) -> None:
        """Read the directory. Raises Unreadable for a bomb, and for what has no entry at all."""
        self._data = data
        self.anomalies: tuple[str, ...] = ()
        try:
            with zipfile.ZipFile(BytesIO(data)) as opened:
                found = [
                    Entry(
                        info.filename, info.compress_type, bool(info.flag_bits & 1), info.header_offset,
                        info.compress_size, info.file_size, info.CRC,
                    )
                    for info in opened.infolist()
                ]  # fmt: skip
        except (zipfile.BadZipFile, struct.error, UnicodeDecodeError, NotImplementedError, ValueError, OverflowError):
            found = list(_by_headers(data))
            self.anomalies = ("truncated_archive",)
        if len(found) > MAX_ENTRIES:
            raise Unreadable("zip_bomb", f"the archive has more than {MAX_ENTRIES} entries")
        if sum(entry.size for entry in found) > max(FREE_BYTES, MAX_RATIO * len(data)):
            raise Unreadable("zip_bomb", f"its entries state more than {MAX_RATIO} times the size of the archive")
        if not found:
            raise Unreadable("bad_archive", "the archive has no entry that can be found")
        self.entries = {entry.name: entry for entry in found}

    def packed(self, name: str) -> bytes:
        """Return an entry as it stands in the archive."""
        entry = self.entries[name]
        header = self._data[entry.at : entry.at + _HEADER.size]
        if len(header) < _HEADER.size or not header.startswith(LOCAL):
            return b""
        start = entry.at + _HEADER.size + sum(struct.unpack("<2H", header[26:30]))
        return self._data[start : start + entry.packed]

    def read(self, name: str) -> bytes:
        """Return an entry unpacked.

        Raises:
            Unreadable: it is encrypted, too big, damaged, cut off, or packed by another method.
        """
        entry = self.entries[name]
        if entry.encrypted:
            raise Unreadable("encrypted_entry", "an entry of the archive is encrypted")
        if entry.size > MAX_ENTRY_BYTES:
            raise Unreadable("entry_too_big", f"an entry of the archive states more than {MAX_ENTRY_BYTES} bytes")
        packed = self.packed(name)
        if len(packed) < entry.packed:
            raise Unreadable("truncated", "an entry of the archive is cut off")
        content = _unpack(packed, entry.method, entry.size)
        if len(content) != entry.size or zlib.crc32(content) != entry.checksum:
            raise Unreadable("bad_entry", "an entry of the archive does not have the size and checksum that it states")
        return content


def _unpack(packed: bytes, method: int, size: int) -> bytes:
    """Return at most one byte more than `size`."""
    import pyarrow as pa

    try:
        if method == _STORED:
            return packed
        if method == _DEFLATED:
            return zlib.decompressobj(-zlib.MAX_WBITS).decompress(packed, size + 1)
        if method == _ZSTD:
            with pa.CompressedInputStream(BytesIO(packed), "zstd") as stream:
                content: bytes = stream.read(size + 1)
                return content
    except (zlib.error, OSError) as error:
        raise Unreadable("bad_entry", f"an entry of the archive is damaged ({type(error).__name__})") from None
    raise Unreadable("unknown_compression", f"an entry of the archive is packed by method {method}, not 0, 8 or 93")


def _by_headers(data: bytes) -> Iterator[Entry]:
    """Yield the entries whose local headers follow one another, up to where they are cut."""
    at = data.find(LOCAL)
    while 0 <= at <= len(data) - _HEADER.size:
        found = _HEADER.unpack_from(data, at)
        if found[0] != LOCAL:
            return
        _, _, flags, method, _, _, checksum, packed, size, named, extra = found
        start = at + _HEADER.size + named + extra
        name = data[at + _HEADER.size : at + _HEADER.size + named].decode("utf-8", "replace")
        end = start + packed
        if flags & 8 and not packed:
            # Sizes stand behind the content: the first descriptor that states its own distance is it.
            mark = data.find(b"PK\x07\x08", start)
            while mark >= 0 and data[mark + 8 : mark + 12] != struct.pack("<I", mark - start):
                mark = data.find(b"PK\x07\x08", mark + 1)
            if mark < 0 or mark + 16 > len(data):
                return
            checksum, packed, size = struct.unpack_from("<3I", data, mark + 4)
            end = mark + 16
        yield Entry(name, method, bool(flags & 1), at, packed, size, checksum)
        at = end
