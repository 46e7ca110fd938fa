"""Formats by entry point (`ratchet.formats`): one file each, with `sniff(head, name)` and `read(data, source)`.

A format is chosen only where exactly one reader recognises the source; a source that none recognises is refused, never
guessed.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Protocol, cast

from ratchet.errors import IntakeError
from ratchet.intake.records import Record, Rejected
from ratchet.intake.sniff import HEAD_BYTES


class Format(Protocol):
    """What a format module offers."""

    def sniff(self, head: bytes, name: str) -> bool:
        """Whether the source that starts with `head` is of this format."""

    def read(self, data: bytes, source: str) -> Iterator[Record | Rejected]:
        """Yield the records of the source, and what it rejects, in order."""


@cache
def formats() -> dict[str, Format]:
    """Return the registered formats by name."""
    return {name: named(name) for name in _points()}


@cache
def named(name: str) -> Format:
    """Return one format, alone loaded. Raises IntakeError for a name that is not registered."""
    known = _points()
    if name not in known:
        raise IntakeError("format", seen=name, rule=f"it must be one of {', '.join(known)}", remedy="or use `auto`")
    return cast(Format, known[name].load())


@cache
def _points() -> dict[str, EntryPoint]:
    return {point.name: point for point in sorted(entry_points(group="ratchet.formats"), key=str)}


def recognise(data: bytes, source: str) -> list[str]:
    """Return the names of the formats that recognise a source; they see its head as UTF-8 without a mark."""
    head = data[:HEAD_BYTES]
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        head = head[: len(head) // 2 * 2].decode("utf-16", "replace").encode("utf-8", "replace")
    head = head.removeprefix(codecs.BOM_UTF8)
    return [name for name, reader in formats().items() if reader.sniff(head, source)]
