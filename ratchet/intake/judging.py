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
from ratchet.intake.batch import Part
from ratchet.intake.canon import canonical_bytes
from ratchet.intake.formats import Format, named
from ratchet.intake.jsontext import REASONS, Lines
from ratchet.intake.opened import opened
from ratchet.intake.records import Record, Rejected, Unreadable
from ratchet.intake.rows import INDEX_COLUMNS, TRAJECTORY_COLUMNS, EventRows, index_row, table
from ratchet.intake.secrets import SecretScanner
from ratchet.intake.validate import trajectory_of

KEPT_CONTENT_BYTES = 1 << 20
"""Longest rejected piece whose content is kept in quarantine beside its reason."""
GROUP_BYTES = 4 << 20
"""How much of a source is searched for secrets and turned into rows at a time."""


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

    parts: list[Part]
    tally: Tally
    clean: bool
    """Whether the piece may be stored as it is: no secret is in it, no other tenant's record, nothing set aside for
    the personal data in it."""


class Judge:
    """Reads pieces under the rules of one ingest."""

    def __init__(self, rules: Rules) -> None:
        """Load the rules of the scanners: about a second."""
        self.rules = rules
        self._scanner = SecretScanner(rules.canaries)
        self._personal = _engine(rules.personal_engine)

    def judge(self, piece: Piece) -> Outcome:
        """Read a piece. Raises IntakeError where it cannot be read."""
        data = piece.data()
        outcome = Outcome([], Tally(), True)
        if piece.format is None:
            self._group([Rejected(0, 0, data, piece.code, piece.reason)], piece, outcome)
            entry = outcome.parts[0].quarantine[0]
            entry.update(digest=piece.digest, bytes=piece.length)
            if isinstance(piece.place, bytes):
                entry["content_base64"] = None
            return outcome
        reader = named(piece.format)
        stands_alone = getattr(reader, "LINES", False)
        if not stands_alone and (self._scanner.found(data) or self._scanner.packed(data)):
            outcome.clean = False
        group: list[Record | Rejected] = []
        size = 0
        for item in _read(reader, data, piece.name):
            group.append(item)
            size += len(item.raw)
            if size >= GROUP_BYTES:
                self._group(group, piece, outcome, stands_alone)
                group, size = [], 0
        if group:
            self._group(group, piece, outcome, stands_alone)
        return outcome

    def _group(
        self, items: Sequence[Record | Rejected], piece: Piece, outcome: Outcome, stands_alone: bool = True
    ) -> None:
        texts = [self._text(item, stands_alone) for item in items]
        secrets = self._scanner.among(texts)
        # A reason may name a field of the record; of what a secret is in, it is not kept anyway.
        persons = self._personal(texts)
        rows = _Rows(piece)
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
            if isinstance(item, Rejected):
                self._set_aside(rows, tally, item, item.code, item.reason, content=True)
                continue
            try:
                rows.add(item, " ".join(sorted(found)), self.rules)
            except Unreadable as error:
                own = not error.code.startswith("foreign_")
                self._set_aside(rows, tally, item, error.code, error.reason, content=own)
                outcome.clean = outcome.clean and own
                continue
            tally.anomalies.update(item.anomalies)
            tally.dropped.update(item.dropped)
        outcome.parts.append(rows.part())

    @staticmethod
    def _text(item: Record | Rejected, stands_alone: bool) -> bytes:
        """Return what is searched: the record's own bytes, opened, which hold all that a line's record can say."""
        text = opened(item.raw)
        if stands_alone or isinstance(item, Rejected):
            return text
        try:
            return text + b"\n" + opened(canonical_bytes([item.document, item.claims]))
        except (ValueError, RecursionError):  # no JSON: it will be rejected
            return text

    def _set_aside(
        self, rows: _Rows, tally: Tally, item: Record | Rejected, code: str, reason: str, *, content: bool
    ) -> None:
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
        self._documents: list[dict[str, Any]] = []
        self._index: list[dict[str, Any]] = []
        self._events = EventRows()
        self._seen: set[str] = set()

    def add(self, item: Record, kinds: str, rules: Rules) -> None:
        """Add a trajectory, unless it is here already. Raises Unreadable as `trajectory_of`."""
        trajectory = trajectory_of(item, tenant=rules.tenant, grant_id=rules.grant_id)
        try:
            written = canonical_bytes(trajectory.model_dump(exclude_none=True))
        except ValueError:
            raise Unreadable("lone_surrogate", REASONS["lone_surrogate"]) from None
        digest = digest_bytes(written)
        if digest in self._seen:
            return
        self._seen.add(digest)
        place = {
            "source": f"{self.piece.name}#{self.piece.number + item.number}",
            "offset": self.piece.offset + item.offset,
            "format": self.piece.format,
            "personal": kinds,
        }
        self._documents.append({"digest": digest, "document": written})
        self._index.append(index_row(trajectory, digest, place, None))
        self._events.add(trajectory, digest)

    def part(self) -> Part:
        return Part(
            trajectories=table(self._documents, TRAJECTORY_COLUMNS),
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


def _engine(name: str) -> Callable[[Sequence[bytes]], dict[int, Counter[str]]]:
    if name == "presidio":
        from ratchet.intake.presidio import among

        return among
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
