"""What a reader yields: a record, or a rejected piece of the source with the reason.

A record is one trajectory-to-be as an ATIF document in plain JSON, with the anomalies that were kept and the metadata
that the source claims. Nothing is repaired silently: what cannot be kept whole is rejected whole.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ratchet.contracts.canonical import digest_bytes


@dataclass(frozen=True)
class Record:
    """One readable record of a source."""

    number: int
    """Position in the source, from 0."""
    offset: int
    """Byte offset in the source (in its UTF-8 form, where it is UTF-16)."""
    raw: bytes = field(repr=False)
    """The record's own bytes."""
    document: dict[str, Any] = field(repr=False)
    """The ATIF document, without `extra.ratchet`."""
    claims: dict[str, Any] = field(repr=False, default_factory=dict)
    """What the source says under Ratchet's own metadata; tenant and grant are never taken from it."""
    anomalies: tuple[str, ...] = ()
    """Codes of the quirks that were kept, one per occurrence."""
    dropped: tuple[str, ...] = ()
    """What of the record the stored form has no place for: dotted field names, one per occurrence."""
    text: bytes | None = field(repr=False, default=None)
    """All that `raw` says, without the escapes that it can do without, where it was decoded whole and is sound."""
    plain: bool = False
    """Whether its steps were made of the shape of `plain`, with nothing null in them."""


@dataclass(frozen=True)
class Rejected:
    """One piece of a source that cannot be kept whole."""

    number: int
    offset: int
    raw: bytes = field(repr=False)
    code: str
    """Short name of the reason, for counting."""
    reason: str
    """The reason in words, without the record's content."""

    @property
    def digest(self) -> str:
        """SHA-256 of the piece."""
        return digest_bytes(self.raw)


class Unreadable(Exception):
    """Raised inside a reader to reject the record at hand; never leaves the intake."""

    def __init__(self, code: str, reason: str) -> None:
        """Name the reason as a code and in words that do not quote the record."""
        self.code, self.reason = code, reason
        super().__init__(reason)
