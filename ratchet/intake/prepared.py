"""Records made ready for the store before they are searched: document, digest and rows, and the text to be searched.

What they were decoded to is let go then: of the many records that are searched together only bytes and rows are held.
A search that finds something throws the rows away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ratchet.contracts.canonical import digest_bytes
from ratchet.intake.canon import canonical_bytes
from ratchet.intake.jsontext import REASONS
from ratchet.intake.opened import opened
from ratchet.intake.plain import document_of
from ratchet.intake.records import Record, Rejected, Unreadable
from ratchet.intake.rows import EventRow, event_rows, index_row


@dataclass(frozen=True, slots=True)
class Row:
    """What of a record is stored."""

    digest: str
    written: bytes = field(repr=False)
    """The document as canonical JSON."""
    index: dict[str, Any] = field(repr=False)
    """Its row of the index, without what the source says about its place."""
    events: list[EventRow] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Refused:
    """Why a record is not stored."""

    code: str
    reason: str
    foreign: bool = False
    """Whether it claims to be somebody else's: then nothing of it may be kept."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A piece of a source, ready to be stored or set aside."""

    number: int
    offset: int
    raw: bytes = field(repr=False)
    text: bytes = field(repr=False)
    """What is searched."""
    row: Row | Refused
    anomalies: tuple[str, ...]
    dropped: tuple[str, ...]


def prepared(items: Sequence[Record | Rejected], *, stands_alone: bool, tenant: str, grant_id: str) -> list[Prepared]:
    """Make what a reader yielded ready.

    Args:
        items: records, and what is rejected.
        stands_alone: whether the bytes of a record say all that is read from it.
        tenant: whose they are.
        grant_id: the grant they come in under.
    """
    texts = [_text(item, stands_alone) for item in items]
    rows = [_row_or_refusal(item, tenant, grant_id) for item in items]
    return [
        Prepared(item.number, item.offset, item.raw, text, row, *_noted(item))
        for item, text, row in zip(items, texts, rows, strict=True)
    ]


def _noted(item: Record | Rejected) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return (item.anomalies, item.dropped) if isinstance(item, Record) else ((), ())


def _row_or_refusal(item: Record | Rejected, tenant: str, grant_id: str) -> Row | Refused:
    if isinstance(item, Rejected):
        return Refused(item.code, item.reason)
    try:
        return _row(item, tenant, grant_id)
    except Unreadable as error:
        return Refused(error.code, error.reason, error.code.startswith("foreign_"))


def _row(item: Record, tenant: str, grant_id: str) -> Row:
    """Raises Unreadable as `document_of`."""
    document = document_of(item, tenant=tenant, grant_id=grant_id)
    try:
        written = canonical_bytes(document)
    except ValueError:
        raise Unreadable("lone_surrogate", REASONS["lone_surrogate"]) from None
    digest = digest_bytes(written)
    return Row(digest, written, index_row(document, digest, {}, None), event_rows(document))


def _text(item: Record | Rejected, stands_alone: bool) -> bytes:
    """Return what is searched: the record's own bytes, opened, which hold all that a line's record can say."""
    if stands_alone and isinstance(item, Record) and item.text:
        return opened(item.text)
    text = opened(item.raw)
    if stands_alone or isinstance(item, Rejected):
        return text
    try:
        return text + b"\n" + opened(canonical_bytes([item.document, item.claims]))
    except (ValueError, RecursionError):  # no JSON: it will be rejected
        return text
