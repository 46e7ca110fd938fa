"""The rights ledger: an append-only, hash-chained file of events.

A line (see `chain`) is appended under a file lock and synced; an anchor beside the file keeps the number and digest of
the last acknowledged line, so that cutting lines off the end is noticed too. The whole file is verified when the ledger
is opened, later lines when they are first seen. A last line without its newline was never acknowledged (a crash while
appending) and is dropped by the next append. Of a long ledger a snapshot keeps what was folded: it is used where the
file still begins with the very bytes that were folded, and these are read again only to look at a grant's history.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

from ratchet.contracts.canonical import canonical_json
from ratchet.contracts.manifest import Manifest
from ratchet.errors import ConflictError, IntegrityError, RightsError
from ratchet.rights.chain import GENESIS, Broken, decode, encode
from ratchet.rights.events import Event, Right, utc
from ratchet.rights.fold import fold
from ratchet.rights.snapshot import Row, Snapshot, load, prefix_sha256

RESTORE = "restore the ledger from its backup; nothing is trained under a ledger that was changed"
SNAPSHOT_EVERY = 10_000
"""Lines beyond the last snapshot from which a new one is made; a tenth of the ledger where that is more."""


class Ledger:
    """Events by grant, read from and appended to one file."""

    def __init__(self, path: str | Path) -> None:
        """Open the ledger and verify it.

        Args:
            path: the JSONL file; made, with its folder, by the first append.

        Raises:
            IntegrityError: naming the first line that does not fit the chain.
        """
        self.path = Path(path)
        self._anchor = self.path.with_suffix(".head")
        self._snapshot = load(self.path)
        self._digests = bytearray()
        self._rows: dict[str, Row] = {}
        self._offset = 0
        doubted = self._begins_otherwise()
        if self._snapshot is None or doubted:
            self._snapshot, verified = None, self._snapshot
        else:
            self._digests += self._snapshot.digests
            self._offset, verified = self._snapshot.size, None
        self.refresh()
        if verified is not None:
            # The chain itself holds, so the ledger was not damaged: it was written anew, from some line on.
            seen = [
                at
                for at in range(0, len(verified.digests), 32)
                if self._digests[at : at + 32] != verified.digests[at : at + 32]
            ]
            raise self._broken(seen[0] // 32 + 1 if seen else 1, "it is not the line that was folded before")

    @classmethod
    def at_home(cls, home: str | Path) -> Ledger:
        """Open the ledger of a state root: `<home>/rights/ledger.jsonl`."""
        return cls(Path(home) / "rights" / "ledger.jsonl")

    @property
    def head(self) -> str:
        """Digest of the last line; 64 zeros for an empty ledger."""
        return self._digests[-32:].hex() if self._digests else GENESIS

    @property
    def events(self) -> tuple[Event, ...]:
        """All events, in order, read from the file: for a person or a test; a long ledger has many."""
        places = sorted(place for _, row in self._all() for place in row.lines)
        return tuple(self._read(places))

    def __len__(self) -> int:
        """Number of events."""
        return len(self._digests) // 32

    def __contains__(self, grant_id: str) -> bool:
        return grant_id in self._rows or (self._snapshot is not None and grant_id in self._snapshot)

    def has_head(self, head: str) -> bool:
        """Whether `head` is, or once was, the head of this very chain."""
        return self._position(head) is not None

    def as_of(self, grant_id: str, head: str, at: datetime) -> Right:
        """Return the right as it was seen when `head` was the head: lines appended since, whatever their time, do not
        count. Raises IntegrityError where `head` never was the head of this chain.
        """
        known = self._lines_at(head)
        row = self._row(grant_id)
        return fold(grant_id, self._read([place for place in row.lines if place[1] < known] if row else []), at)

    def raw_lines(self) -> Iterator[tuple[bytes, Event]]:
        """Every line with its newline, and its event: for an excerpt. Raises IntegrityError naming a bad line."""
        previous = GENESIS
        with open(self.path, "rb") as file:
            for seq in range(len(self)):
                raw = file.readline()
                try:
                    previous, event = decode(raw, seq, previous)
                except Broken as error:
                    raise self._broken(seq + 1, str(error)) from None
                yield raw, event

    def grants(self, tenant: str | None = None) -> list[str]:
        """Return the ids of all grants, or of those of a tenant, sorted."""
        return [grant_id for grant_id, row in self._all() if row.standing and tenant in (None, row.standing.tenant)]

    def rights(self, at: datetime, tenant: str | None = None) -> Iterator[Right]:
        """Yield the right of every grant, or of those of a tenant, at a time, sorted by grant id."""
        at = utc(at)
        for grant_id, row in self._all():
            if row.standing and tenant in (None, row.standing.tenant):
                yield self._right(grant_id, row, at)

    def effective(self, grant_id: str, at: datetime) -> Right:
        """Return the right at a time: the fold of the grant's events. An unknown grant permits nothing."""
        row = self._row(grant_id)
        return self._right(grant_id, row, utc(at)) if row else Right(grant_id=grant_id)

    def history(self, grant_id: str) -> tuple[Event, ...]:
        """Return the events of one grant, in order. Raises IntegrityError where their lines changed meanwhile."""
        row = self._row(grant_id)
        return tuple(self._read(row.lines)) if row else ()

    def append(self, event: Event) -> str:
        """Append one event, synced to disk, and return the new head.

        Raises:
            ConflictError: the grant id was granted before.
            RightsError: the event concerns an unknown grant, another tenant, or would widen the grant.
            IntegrityError: the file no longer fits its chain.
        """
        with self._locked():
            self.refresh()
            self._admit(event)
            with open(self.path, "r+b" if self.path.exists() else "w+b") as file:
                file.truncate(self._offset)
                file.seek(self._offset)
                file.write(encode(len(self), self.head, event))
                file.flush()
                os.fsync(file.fileno())
            self.refresh()
            self._set_anchor()
        return self.head

    def refresh(self) -> None:
        """Read and verify the lines that were appended since the last look. Raises IntegrityError naming a bad line."""
        # The anchor is read first: another process may append, and move it on, while the lines are being read.
        anchor = self._anchor.read_bytes() if self._anchor.exists() else None
        known = self.path.stat().st_size if self.path.exists() else 0
        if known < self._offset:
            raise self._broken(len(self), "lines that were there before are gone")
        if known > self._offset:
            with open(self.path, "rb") as file:
                file.seek(self._offset)
                for raw in file:
                    if not raw.endswith(b"\n"):
                        break
                    self._take(raw)
        if anchor is not None:
            self._check_anchor(anchor)
        folded = self._snapshot.count if self._snapshot else 0
        if len(self) - folded >= max(SNAPSHOT_EVERY, folded // 10):
            self._fold_away()

    def _take(self, raw: bytes) -> None:
        seq = len(self)
        try:
            stated, event = decode(raw, seq, self.head)
        except Broken as error:
            raise self._broken(seq + 1, str(error)) from None
        if event.grant_id not in self._rows:
            self._rows[event.grant_id] = (self._snapshot and self._snapshot.row(event.grant_id)) or Row()
        self._rows[event.grant_id].take(event, self._offset, seq)
        self._digests += bytes.fromhex(stated)
        self._offset += len(raw)

    def _begins_otherwise(self) -> bool:
        """Whether the file does not begin with what the snapshot folded."""
        if self._snapshot is None:
            return False
        size = self.path.stat().st_size if self.path.exists() else 0
        if size < self._snapshot.size:
            raise self._broken(self._snapshot.count, f"the ledger had {self._snapshot.count} lines and now has fewer")
        return prefix_sha256(self.path, self._snapshot.size) != self._snapshot.sha256

    def _fold_away(self) -> None:
        """Put all that was folded so far into a snapshot; where it cannot be written, the ledger works without."""
        made = Snapshot.made(self.path, self._offset, bytes(self._digests), dict(self._all()))
        with contextlib.suppress(OSError):
            made.save(self.path.parent, self.path.stem)
        self._snapshot, self._rows = made, {}

    def _position(self, head: str) -> int | None:
        """Number of lines when `head` was the head."""
        wanted, at = bytes.fromhex(head), -1
        while (at := self._digests.find(wanted, at + 1)) >= 0:
            if at % 32 == 0:
                return at // 32 + 1
        return 0 if head == GENESIS else None

    def _lines_at(self, head: str) -> int:
        known = self._position(head)
        if known is None:
            raise IntegrityError(
                f"{self.path}", seen=head, rule="this must once have been the head of the ledger", remedy=RESTORE
            )
        return known

    def _row(self, grant_id: str) -> Row | None:
        return self._rows.get(grant_id) or (self._snapshot.row(grant_id) if self._snapshot else None)

    def _all(self) -> Iterator[tuple[str, Row]]:
        """Every grant with what is known of it, sorted by id."""
        newer = sorted(self._rows)
        at = 0
        for grant_id, row in self._snapshot.rows() if self._snapshot else ():
            while at < len(newer) and newer[at] < grant_id:
                yield newer[at], self._rows[newer[at]]
                at += 1
            if at < len(newer) and newer[at] == grant_id:
                row, at = self._rows[grant_id], at + 1
            yield grant_id, row
        yield from ((grant_id, self._rows[grant_id]) for grant_id in newer[at:])

    def _right(self, grant_id: str, row: Row, at: datetime) -> Right:
        # What was folded holds for every time from the grant's latest event on; an earlier time is folded anew.
        if row.standing is not None and at >= row.last_at:
            return row.standing.right(grant_id, at)
        return fold(grant_id, self._read(row.lines), at)

    def _read(self, places: list[tuple[int, int]]) -> Iterator[Event]:
        """Read lines again by (offset, number), each held against the digest that it was verified by."""
        if not places:
            return
        with open(self.path, "rb") as file:
            for offset, seq in places:
                file.seek(offset)
                try:
                    stated, event = decode(file.readline(), seq, None)
                except Broken as error:
                    raise self._broken(seq + 1, str(error)) from None
                if bytes.fromhex(stated) != self._digests[32 * seq : 32 * seq + 32]:
                    raise self._broken(seq + 1, "it is not the line that was verified before")
                yield event

    def _admit(self, event: Event) -> None:
        known = self.history(event.grant_id)
        name = f"grant {event.grant_id!r}"
        if event.kind == "grant":
            if known:
                raise ConflictError(name, rule="an id is granted once", remedy="record the new grant under a new id")
            if not event.purposes or not event.base_models or event.retention_until is None:
                raise RightsError(
                    name, rule="a grant names purposes, base models and an end", remedy="state all three of them"
                )
            return
        if not known:
            raise RightsError(name, rule=f"{event.kind} needs a grant that is recorded", remedy="check the id")
        first = known[0]
        if event.tenant != first.tenant:
            raise RightsError(name, rule="it belongs to another tenant", remedy=f"act as its tenant, {first.tenant!r}")
        if event.kind == "legal_hold" and event.hold is None:
            raise RightsError(name, rule="a legal hold is placed or lifted", remedy="set hold to True or False")
        right = fold(event.grant_id, known, max(event.at, first.at))
        if event.kind == "narrow":
            self._admit_narrowing(event, right)
        if event.kind == "erase":
            # Asked under the ledger's lock, so that no hold comes between.
            right.require_ended()

    def _admit_narrowing(self, event: Event, right: Right) -> None:
        wider: list[str] = sorted({str(purpose) for purpose in event.purposes or ()} - set(right.purposes))
        if event.base_models is not None and "*" not in right.base_models:
            wider += sorted(set(event.base_models) - set(right.base_models))
        until = event.retention_until
        if until is not None and right.retention_until is not None and until > right.retention_until:
            wider.append(until.isoformat())
        if wider:
            raise RightsError(
                f"grant {event.grant_id!r}",
                rule=f"narrowing may not add {', '.join(wider)}",
                remedy="record a new grant under a new id",
            )

    def _check_anchor(self, content: bytes) -> None:
        try:
            anchor = json.loads(content)
            count, stated = int(anchor["count"]), anchor["digest"]
        except (ValueError, KeyError, TypeError):
            raise IntegrityError(
                str(self._anchor), rule="it must hold count and digest of the last line", remedy=RESTORE
            ) from None
        if count > len(self):
            raise self._broken(len(self) + 1, f"the ledger had {count} lines and now has fewer")
        if count and self._digests[32 * count - 32 : 32 * count].hex() != stated:
            raise self._broken(count, "it is not the line that was acknowledged")

    def _set_anchor(self) -> None:
        temporary = self._anchor.with_suffix(".head.new")
        with open(temporary, "wb") as file:
            file.write(canonical_json({"count": len(self), "digest": self.head}).encode())
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self._anchor)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path.with_suffix(".lock"), "w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield

    def _broken(self, number: int, what: str) -> IntegrityError:
        return IntegrityError(
            f"{self.path} line {number}", rule=f"the rights ledger is unbroken, but {what}", remedy=RESTORE
        )


def record_grants(ledger: Ledger, manifest: Manifest, at: datetime) -> list[str]:
    """Record the grants that a manifest asks for, each id once in the life of the ledger.

    An id that the ledger knows is left as it is, so that a withdrawal stays one whatever the manifest says.

    Args:
        ledger: the rights ledger.
        manifest: whose tenant and grants.
        at: when the grants begin; they end `retention_days` later.

    Returns:
        The ids that are new.

    Raises:
        RightsError: the ledger knows the id as another tenant's.
    """
    ledger.refresh()
    new: list[str] = []
    for grant in manifest.grants:
        if grant.grant_id not in ledger:
            event = Event(
                kind="grant",
                grant_id=grant.grant_id,
                tenant=manifest.tenant,
                purposes=grant.purposes,
                base_models=grant.base_models,
                retention_until=utc(at) + timedelta(days=grant.retention_days),
                by=grant.signed_by,
                at=at,
                reason=f"manifest {manifest.experiment} {manifest.digest[:12]}",
            )
            # Another process may have recorded the same id since the look above; what it recorded then stands.
            with contextlib.suppress(ConflictError):
                ledger.append(event)
                new.append(grant.grant_id)
        owner = ledger.history(grant.grant_id)[0].tenant
        if owner != manifest.tenant:
            raise RightsError(
                f"grant {grant.grant_id!r}",
                rule=f"it belongs to another tenant than {manifest.tenant!r}",
                remedy="give the grant an id of its own in the manifest",
            )
    return new
