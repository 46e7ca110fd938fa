"""Rows of spans as exports hold them: one a value, or many in a page; what cannot be read costs itself alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ratchet.intake.jsontext import Value, values
from ratchet.intake.records import Rejected, Unreadable
from ratchet.intake.spans.model import Span


def spans_in(
    data: bytes,
    page_of: Callable[[dict[str, Any]], Any],
    read: Callable[[Any, bytes, Value], Iterable[Span]],
) -> Iterator[Span | Rejected]:
    """Yield the spans of an export, in order.

    Args:
        data: the source.
        page_of: gives the rows of a value that is a page; anything but a list where it is a row itself.
        read: makes the spans of a row from it, its own bytes and the value that it stood in; may raise Unreadable.
    """
    for item in values(data):
        if isinstance(item, Rejected):
            yield item
            continue
        page = page_of(item.value)
        for row in page if isinstance(page, list) else [item.value]:
            raw = item.raw if row is item.value else json.dumps(row, ensure_ascii=False).encode()
            try:
                yield from read(row, raw, item)
            except Unreadable as error:
                yield Rejected(item.number, item.offset, raw, error.code, error.reason)
