"""Judging: a piece of a source read, searched and turned into rows. What a worker process does.

Each record becomes a trajectory, with its anomalies, or a quarantine entry with reason, source, offset and digest. Of
a record that holds a secret or is another tenant's no content is kept. Secrets and personal data are looked for in
many records together.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ratchet.contracts.canonical import digest_bytes
from ratchet.errors import IntakeError
from ratchet.intake import personal
from ratchet.intake.formats import Format, named
from ratchet.intake.handover import FiledPart, Part, filed
from ratchet.intake.jsontext import Lines
from ratchet.intake.prepared import Prepared, Refused, Row, prepared
from ratchet.intake.records import Record, Rejected
from ratchet.intake.rows import INDEX_COLUMNS, EventRows, documents_table, table
from ratchet.intake.secrets import SecretScanner

KEPT_CONTENT_BYTES = 1 << 20
"""Longest rejected piece whose content is kept in quarantine beside its reason."""
GROUP_BYTES = 24 << 20
"""How much of a source is searched and turned into tables at a time: all of a piece that was cut between lines, since
every search has its price, however little is searched."""
DECODED_BYTES = 64 << 10
"""How much of a source is held decoded at a time: what stays near the processor, and not each small record alone."""


@dataclass(frozen=True)
class Rules:
    """What holds for everything that one ingest reads."""

    tenant: str
    grant_id: str
    canaries: tuple[str, ...] = ()
    quarantine_personal: bool = False
    """Whether records with personal data are set aside; else they are stored and flagged."""
    personal_engine: str = "shapes"
    """`shapes`, or `presidio` to look for names and places too."""


@dataclass(frozen=True)
class Piece:
    """Some of a source: all of it, or whole lines."""

    name: str
    """Name of the source, for the reports."""
    format: str | None
    """How it is read; None to reject it whole as `code` for `reason`."""
    place: Path | bytes
    """The file that it is in, or its bytes."""
    offset: int = 0
    """Where it begins in the source."""
    length: int = 0
    """Its bytes, where it is in a file."""
    number: int = 0
    """Records of the source before it."""
    lines: bool = False
    """Whether it was cut out between lines."""
    last: bool = True
    """Whether the source ends with it."""
    anomalies: tuple[str, ...] = ()
    code: str = ""
    reason: str = ""
    digest: str = ""
    """SHA-256 of what is rejected whole, which may be more than `place` holds."""

    def data(self) -> bytes:
        """Return the bytes. Raises IntakeError where the file has become shorter, or cannot be read."""
        if isinstance(self.place, bytes):
            data = self.place
        else:
            try:
                with self.place.open("rb") as file:
                    file.seek(self.offset)
                    data = file.read(self.length)
            except OSError as error:
                raise unreadable(self.name, error) from None
            if len(data) != self.length:
                raise IntakeError(
                    self.name,
                    rule="it must not change while it is being read",
                    remedy="ingest it again when it is finished; what was published before stays",
                )
        if not self.lines:
            return data
        cut = Lines(data)
        cut.anomalies, cut.last = self.anomalies, self.last
        return cut


@dataclass
class Tally:
    """What was seen, counted."""

    read: int = 0
    """Records, readable or not."""
    secrets: int = 0
    """Records in which a secret was found."""
    flagged: int = 0
    """Records in which personal data was found."""
    reasons: Counter[str] = field(default_factory=Counter)
    anomalies: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    personal: Counter[str] = field(default_factory=Counter)
    """Distinct values of personal data in a record, by kind, over all records."""

    def add(self, other: Tally) -> None:
        """Count what another counted as well."""
        self.read += other.read
        self.secrets += other.secrets
        self.flagged += other.flagged
        for name in ("reasons", "anomalies", "dropped", "personal"):
            getattr(self, name).update(getattr(other, name))


@dataclass
class Outcome:
    """What a piece came to."""

    parts: list[Part] | list[FiledPart]
    tally: Tally
    clean: bool
    """Whether the piece may be stored as it is: no secret is in it, no other tenant's record, nothing set aside for
    the personal data in it."""


class Judge:
    """Reads pieces under the rules of one ingest."""

    def __init__(self, rules: Rules, folder: Path) -> None:
        """Load the rules of the scanners, about a second; the rows of big pieces go to files in a folder."""
        self.rules, self._folder = rules, folder
        self._scanner = SecretScanner(rules.canaries)
        self._personal = _engine(rules.personal_engine)

    def named(self, names: Sequence[str]) -> list[str]:
        """Return names of files, or what stands for those in which a secret is."""
        return [self._scanner.named(name) for name in names]

    def judge(self, piece: Piece) -> Outcome:
        """Read a piece. Raises IntakeError where it cannot be read."""
        data = piece.data()
        outcome = Outcome([], Tally(), True)
        if piece.format is None:
            whole = Rejected(0, 0, data, piece.code, piece.reason)
            rows = self._searched(self._prepared([whole], stands_alone=True), piece, outcome)
            entry = rows.quarantine[0]
            entry.update(digest=piece.digest, bytes=piece.length)
            if isinstance(piece.place, bytes):
                entry["content_base64"] = None
            outcome.parts = [rows.part()]
            return outcome
        reader = named(piece.format)
        stands_alone = getattr(reader, "LINES", False)
        if not stands_alone and (self._scanner.found(data) or self._scanner.packed(data)):
            outcome.clean = False
        parts: list[Part] = []
        decoded: list[Record | Rejected] = []
        group: list[Prepared] = []
        size = held = 0
        for item in _read(reader, data, piece.name):
            decoded.append(item)
            size += len(item.raw)
            if size >= DECODED_BYTES:
                group += self._prepared(decoded, stands_alone)
                decoded, size, held = [], 0, held + size
                if held >= GROUP_BYTES:
                    parts.append(self._searched(group, piece, outcome).part())
                    held = 0
        group += self._prepared(decoded, stands_alone)
        if group:
            parts.append(self._searched(group, piece, outcome).part())
        outcome.parts = filed(parts, self._folder)
        return outcome

    def _prepared(self, items: Sequence[Record | Rejected], stands_alone: bool) -> list[Prepared]:
        return prepared(items, stands_alone=stands_alone, tenant=self.rules.tenant, grant_id=self.rules.grant_id)

    def _searched(self, items: list[Prepared], piece: Piece, outcome: Outcome) -> _Rows:
        """Search items together, and return the rows of what is stored and what is set aside; the list is emptied."""
        rows = _Rows(piece)
        texts = [item.text for item in items]
        together = b"\n".join(texts)
        secrets = self._scanner.among(texts, together)
        # A reason may name a field of the record; of what a secret is in, it is not kept anyway.
        persons = self._personal(texts, together)
        tally = outcome.tally
        tally.read += len(items)
        for at, item in enumerate(items):
            found = persons.get(at, Counter())
            if at in secrets:
                tally.secrets += 1
                reason = f"a secret was found by {', '.join(sorted(secrets[at]))}"
                self._set_aside(rows, tally, item, "secret", reason, content=False)
                outcome.clean = False
                continue
            if found:
                tally.flagged += 1
                tally.personal.update(found)
                if self.rules.quarantine_personal:
                    reason = f"personal data was found: {', '.join(sorted(found))}"
                    self._set_aside(rows, tally, item, "personal_data", reason, content=False)
                    outcome.clean = False
                    continue
            if isinstance(item.row, Refused):
                own = not item.row.foreign
                self._set_aside(rows, tally, item, item.row.code, item.row.reason, content=own)
                outcome.clean = outcome.clean and own
                continue
            rows.add(item, item.row, " ".join(sorted(found)))
            tally.anomalies.update(item.anomalies)
            tally.dropped.update(item.dropped)
        items.clear()
        return rows

    def _set_aside(self, rows: _Rows, tally: Tally, item: Prepared, code: str, reason: str, *, content: bool) -> None:
        tally.reasons[code] += 1
        kept = base64.b64encode(item.raw).decode() if content and len(item.raw) <= KEPT_CONTENT_BYTES else None
        if code != "secret" and self._scanner.text(reason):
            reason = "withheld: a secret is in it"
        rows.quarantine.append(
            {
                "code": code,
                "reason": reason,
                "source": rows.piece.name,
                "number": rows.piece.number + item.number,
                "offset": rows.piece.offset + item.offset,
                "digest": digest_bytes(item.raw),
                "bytes": len(item.raw),
                "content_base64": kept,
            }
        )


class _Rows:
    """The rows of one part in the making."""

    def __init__(self, piece: Piece) -> None:
        self.piece = piece
        self.quarantine: list[dict[str, Any]] = []
        self._documents: dict[str, bytes] = {}
        self._index: list[dict[str, Any]] = []
        self._events = EventRows()

    def add(self, item: Prepared, row: Row, kinds: str) -> None:
        """Add a trajectory, unless it is here already."""
        if row.digest in self._documents:
            return
        self._documents[row.digest] = row.written
        place = {
            "source": f"{self.piece.name}#{self.piece.number + item.number}",
            "offset": self.piece.offset + item.offset,
            "format": self.piece.format,
            "personal": kinds,
        }
        self._index.append({**row.index, **place})
        self._events.add(row.events, row.digest)

    def part(self) -> Part:
        return Part(
            trajectories=documents_table(list(self._documents), list(self._documents.values())),
            index=table(self._index, INDEX_COLUMNS),
            events=self._events.table(),
            quarantine=self.quarantine,
        )


def unreadable(name: str, error: Exception) -> IntakeError:
    """Return the error of a source that cannot be read."""
    return IntakeError(
        name,
        rule=f"it must be readable ({getattr(error, 'strerror', None) or type(error).__name__})",
        remedy="mend it and ingest again; what was published before stays",
    )


def _engine(name: str) -> Callable[[Sequence[bytes], bytes], dict[int, Counter[str]]]:
    if name == "presidio":
        from ratchet.intake import presidio

        return lambda texts, _: presidio.among(texts)
    return personal.among


def _read(reader: Format, data: bytes, name: str) -> Iterator[Record | Rejected]:
    """Read a piece; readers are plug-ins, and one that fails costs what it failed on and not the rest."""
    number = 0
    try:
        for item in reader.read(data, name):
            yield item
            number += 1
    except Exception as error:
        reason = f"its reader failed after {number} records ({type(error).__name__})"
        yield Rejected(number, 0, bytes(data), "reader_failed", reason)
