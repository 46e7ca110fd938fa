"""Cutting: a file of any size into pieces that are read one by one, with the digest of the whole.

What is larger than `PIECE_BYTES`, is JSON Lines and of a format whose lines stand alone is cut between lines; offsets
and numbers stay those of the whole. Everything else is read whole, up to `WHOLE_BYTES`. Gzip, Zstandard and Parquet
are unpacked on the way: offsets are then those of the text. No more than one piece is held at a time.
"""

from __future__ import annotations

import codecs
import hashlib
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from ratchet.intake.containers import container_of, open_rows
from ratchet.intake.formats import named, recognise
from ratchet.intake.jsontext import count_lines, looks_like_lines
from ratchet.intake.judging import KEPT_CONTENT_BYTES, Piece, unreadable
from ratchet.intake.records import Unreadable
from ratchet.intake.sniff import HEAD_BYTES

PIECE_BYTES = 16 << 20
"""Size of a piece, about: what a worker holds at a time, with the rows that come of it."""
WHOLE_BYTES = 256 << 20
"""Largest source that is read whole."""
LINE_BYTES = 64 << 20
"""Longest line that is read."""
_BLOCK = 1 << 20
Refusal = tuple[str, str]
"""Code and reason for which a source is not read."""
_SUFFIXES = (".gz", ".gzip", ".zst", ".zstd")


@dataclass
class Whole:
    """A source as it turned out once all of it was seen."""

    name: str
    format: str | None = None
    """Format it was read as; None where it was refused."""
    size: int = 0
    """Bytes of the file."""
    digest: str = ""
    """SHA-256 of the file."""


class Cutter:
    """Cuts one file into pieces while it reads it, once, from front to back."""

    def __init__(self, path: Path, name: str, format: str = "auto") -> None:
        """Take a local file; `name` is for the reports, and `format` is `auto` or the name of a format."""
        self.path = path
        self.whole = Whole(name)
        self._format = format
        self._hash = hashlib.sha256()
        self._packed = False

    def pieces(self) -> Iterator[Piece]:
        """Yield the pieces in order; afterwards `whole` is filled in.

        Raises:
            IntakeError: it cannot be read.
        """
        try:
            with self.path.open("rb") as file:
                refusal = yield from self._cut(file)
                for _ in self._blocks(file):
                    continue
                self.whole.digest = self._hash.hexdigest()
        except OSError as error:
            raise unreadable(self.whole.name, error) from None
        if refusal:
            code, reason = refusal
            kept = not self._packed and self.whole.size <= KEPT_CONTENT_BYTES
            yield Piece(
                self.whole.name, None, self.path if kept else b"", length=self.whole.size, code=code, reason=reason,
                digest=self.whole.digest,
            )  # fmt: skip

    def _cut(self, file: BinaryIO) -> Generator[Piece, None, Refusal | None]:
        self._packed = container_of(file.read(4)) is not None
        file.seek(0)
        if not self._packed:
            return (yield from self._text(self._blocks(file)))
        try:
            with self.path.open("rb") as other:
                return (yield from self._text(open_rows(other)))
        except Unreadable as error:
            return error.code, error.reason

    def _blocks(self, file: BinaryIO) -> Iterator[bytes]:
        while block := file.read(_BLOCK):
            self._hash.update(block)
            self.whole.size += len(block)
            yield block

    def _text(self, blocks: Iterator[bytes]) -> Generator[Piece, None, Refusal | None]:
        head, ended = _gather(blocks, PIECE_BYTES)
        name = self.whole.name
        plain = next((name.removesuffix(suffix) for suffix in _SUFFIXES if name.endswith(suffix)), name)
        formats = recognise(head, plain) if self._format == "auto" else [self._format]
        if len(formats) != 1:
            reason = f"it could be {' or '.join(formats)}" if formats else "no reader recognises it"
            return "ambiguous_format" if formats else "unrecognised_format", f"{reason}; name its format"
        piece = Piece(name, formats[0], b"" if self._packed else self.path)
        alone = getattr(named(formats[0]), "LINES", False)
        utf16 = head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        if not ended and alone and not utf16 and looks_like_lines(head[:HEAD_BYTES]):
            yield from _lines(piece, chain([head], blocks))
        else:
            rest, ended = (b"", True) if ended else _gather(blocks, WHOLE_BYTES - len(head))
            if not ended:
                remedy = "write one record a line" if alone else "split it"
                return "too_large", f"more than {WHOLE_BYTES >> 20} MiB cannot be read whole as {formats[0]}; {remedy}"
            yield replace(piece, place=head + rest if self._packed else self.path, length=len(head) + len(rest))
        (self.whole.format,) = formats
        return None


def _gather(blocks: Iterator[bytes], size: int) -> tuple[bytes, bool]:
    """Return the first blocks, more than `size` bytes, and False; or all there are, and True."""
    found, total = [], 0
    for block in blocks:
        found.append(block)
        total += len(block)
        if total > size:
            return b"".join(found), False
    return b"".join(found), True


def _lines(piece: Piece, blocks: Iterator[bytes]) -> Iterator[Piece]:
    """Cut lines into pieces of about `PIECE_BYTES`. A line that is too long is set aside without its content."""
    in_file = isinstance(piece.place, Path)
    kept: list[bytes] = []
    size = offset = number = 0
    for block in blocks:
        if not offset and not kept and block.startswith(codecs.BOM_UTF8):
            block, offset = block[3:], 3
            piece = replace(piece, anomalies=("byte_order_mark",))
        kept.append(block)
        size += len(block)
        if size < PIECE_BYTES or (b"\n" not in block and size <= LINE_BYTES):
            continue
        broken = next((at for at in range(len(kept) - 1, -1, -1) if b"\n" in kept[at]), None)
        if broken is not None:
            last, rest = kept[broken], kept[broken + 1 :]
            cut = last.rfind(b"\n") + 1
            whole = [*kept[:broken], last[:cut]]
            end = sum(map(len, whole))
            # What lies in a file is not put together here: a worker reads it there.
            place = piece.place if in_file else b"".join(whole)
            yield replace(piece, place=place, offset=offset, length=end, number=number, lines=True, last=False)
            offset, number = offset + end, number + count_lines(*whole)
            kept = [b"".join([last[cut:], *rest])]
        else:
            seen, length, after = _skip_line(b"".join(kept), blocks)
            reason = f"it is longer than {LINE_BYTES >> 20} MiB"
            yield replace(
                piece, format=None, place=b"", offset=offset, length=length, number=number, code="line_too_long",
                reason=reason, digest=seen,
            )  # fmt: skip
            offset, number = offset + length + 1, number + 1
            kept = [after]
        size = len(kept[0])
    data = b"".join(kept)
    if data:
        place = piece.place if in_file else data
        yield replace(piece, place=place, offset=offset, length=len(data), number=number, lines=True)


def _skip_line(start: bytes, blocks: Iterator[bytes]) -> tuple[str, int, bytes]:
    """Read a line to its end without holding it; returns its digest, its length, and what follows its line break."""
    seen = hashlib.sha256(start)
    length = len(start)
    for block in blocks:
        line, broken, rest = block.partition(b"\n")
        seen.update(line)
        length += len(line)
        if broken:
            return seen.hexdigest(), length, rest
    return seen.hexdigest(), length, b""
