"""An append-only log in a store: numbered entries that are written once, each naming the digest of the one before.

    <prefix>/000001.json ...    {"number": 1, "previous": "", "content": ...}
    <head>                      a pointer: number and digest of the last entry that is acknowledged

Who appends creates the next number, which only one can. A changed entry fits neither the one after it nor the head, one
that was taken out leaves a gap, and one that was taken off the end is missed by the head. An entry beyond the head was
written by somebody who did not come to move it, and counts. What is not noticed is that entries and head are written
anew together: who can do that is not kept out by a log.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import Any, NamedTuple

from ratchet.contracts.canonical import canonical_json, digest_bytes
from ratchet.errors import ConflictError, IntegrityError
from ratchet.store.base import Store

_RESTORE = "restore the log from a version or a backup of the store; it is only ever added to"


class Entry(NamedTuple):
    """One entry."""

    name: str
    content: Any
    """Plain JSON."""


class Chain:
    """The log under one prefix."""

    def __init__(self, store: Store, prefix: str, head: str) -> None:
        """Name the log; nothing is written before the first append.

        Args:
            store: where it is.
            prefix: of its entries.
            head: name of its pointer, not under `prefix`.
        """
        self.store, self.prefix, self.head = store, prefix, head

    def read(self) -> list[Entry]:
        """Return the entries in order.

        Raises:
            IntegrityError: an entry was changed or is missing, by name.
        """
        return self._read()[0]

    def append(self, content: Callable[[list[Entry]], Any | None]) -> bool:
        """Append one entry.

        Args:
            content: makes it, as plain JSON, from what is there; None for nothing to append. Called again where another
                process was first.

        Returns:
            Whether an entry was appended.
        """
        while True:
            found, last = self._read()
            made = content(found)
            if made is None:
                return False
            number = len(found) + 1
            body = {"number": number, "previous": last, "content": made}
            if self.store.create(self._name(number), canonical_json(body).encode()):
                self._acknowledge(number)
                return True

    def _read(self) -> tuple[list[Entry], str]:
        # The head is read first: another process may append, and move it on, while the entries are being read.
        acknowledged, told = _parsed(self.store.pointer(self.head))
        found: list[Entry] = []
        last = ""
        names = self.store.names(self.prefix)
        for number in range(1, max(len(names), acknowledged) + 1):
            name = self._name(number)
            if name not in names:
                seen = f"{acknowledged} entries were acknowledged" if number <= acknowledged else "later ones are there"
                raise IntegrityError(name, seen=seen, rule="no entry of a log may be missing", remedy=_RESTORE)
            data = self.store.read(name)
            try:
                body = json.loads(data)
                stated, content = (body["number"], body["previous"]), body["content"]
            except (ValueError, KeyError, TypeError):
                stated, content = (0, ""), None
            if stated != (number, last):
                changed = self._name(number - 1) if stated[0] == number and number > 1 else name
                raise IntegrityError(changed, rule="it must be as it was written: the log is chained", remedy=_RESTORE)
            last = digest_bytes(data)
            if number == acknowledged and last != told:
                raise IntegrityError(name, seen=last, rule=f"it had the digest {told}", remedy=_RESTORE)
            found.append(Entry(name, content))
        return found, last

    def _acknowledge(self, number: int) -> None:
        while True:
            seen = self.store.pointer(self.head)
            if _parsed(seen)[0] >= number:
                return
            entry = digest_bytes(self.store.read(self._name(number)))
            with contextlib.suppress(ConflictError):
                self.store.swap(self.head, seen, f"{number} {entry}")

    def _name(self, number: int) -> str:
        return f"{self.prefix}/{number:06d}.json"


def _parsed(head: str | None) -> tuple[int, str]:
    number, _, value = (head or "0 ").partition(" ")
    return int(number), value
