"""An excerpt of the rights ledger: the events of some grants in full, every other line as its digest alone.

Who holds it can fold the rights of those grants at any head, and see that their lines stand unchanged in one chain,
and learns nothing of the other grants but how many lines they have.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from datetime import datetime

from ratchet.contracts.canonical import canonical_json
from ratchet.errors import IntegrityError
from ratchet.rights.chain import GENESIS, Broken, decode
from ratchet.rights.events import Event, Right
from ratchet.rights.fold import fold
from ratchet.rights.ledger import Ledger

REMEDY = "have the version exported again"


def excerpt(ledger: Ledger, grant_ids: Collection[str]) -> Iterator[bytes]:
    """Yield the lines of an excerpt. Raises IntegrityError naming a line of the ledger that was changed."""
    for raw, event in ledger.raw_lines():
        yield raw if event.grant_id in grant_ids else _closed(json.loads(raw)["digest"])


class Excerpt:
    """An excerpt, read and verified."""

    def __init__(self, data: bytes, source: str) -> None:
        """Read it. Raises IntegrityError naming the first line that does not fit the chain."""
        self.source = source
        self._heads: list[str] = []
        self._events: list[tuple[int, Event]] = []
        previous = GENESIS
        for number, raw in enumerate(data.splitlines(keepends=True)):
            previous = self._take(raw, number, previous)
            self._heads.append(previous)

    def as_of(self, grant_id: str, head: str, at: datetime) -> Right:
        """As `Ledger.as_of`."""
        if head not in (GENESIS, *self._heads):
            raise IntegrityError(
                self.source, seen=head, rule="this must once have been the head of the ledger", remedy=REMEDY
            )
        known = 0 if head == GENESIS else self._heads.index(head) + 1
        return fold(grant_id, [event for number, event in self._events if number < known], at)

    def _take(self, raw: bytes, number: int, previous: str) -> str:
        try:
            digest = json.loads(raw).get("digest")
            if isinstance(digest, str) and raw == _closed(digest):
                return digest
            stated, event = decode(raw, number, previous)
        except (Broken, ValueError, AttributeError) as error:
            raise IntegrityError(
                f"{self.source} line {number + 1}", rule=f"the chain must be unbroken, but {error}", remedy=REMEDY
            ) from None
        self._events.append((number, event))
        return stated


def _closed(digest: str) -> bytes:
    return canonical_json({"digest": digest}).encode() + b"\n"
