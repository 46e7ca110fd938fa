"""The rights ledger: an append-only, hash-chained file of events.

Each line is canonical JSON of `{seq, previous, event, digest}`, where `digest` is SHA-256 over the other three and
`previous` is the digest of the line before (64 zeros for the first). A line is appended under a file lock and synced;
an anchor beside the file keeps the number and digest of the last acknowledged line, so that cutting lines off the end
is noticed too. The whole chain is verified when the ledger is opened, later lines when they are first seen. A last
line without its newline was never acknowledged (a crash while appending) and is dropped by the next append.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ratchet.contracts.canonical import canonical_json, digest
from ratchet.contracts.manifest import Manifest
from ratchet.errors import ConflictError, IntegrityError, RightsError
from ratchet.rights.events import Event, Right, fold, utc

GENESIS = "0" * 64
RESTORE = "restore the ledger from its backup; nothing is trained under a ledger that was changed"


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
        self._digests: list[str] = []
        self._events: list[Event] = []
        self._by_grant: dict[str, list[Event]] = {}
        self._offset = 0
        self.refresh()

    @classmethod
    def at_home(cls, home: str | Path) -> Ledger:
        """Open the ledger of a state root: `<home>/rights/ledger.jsonl`."""
        return cls(Path(home) / "rights" / "ledger.jsonl")

    @property
    def head(self) -> str:
        """Digest of the last line; 64 zeros for an empty ledger."""
        return self._digests[-1] if self._digests else GENESIS

    @property
    def events(self) -> tuple[Event, ...]:
        """All events, in order."""
        return tuple(self._events)

    def __contains__(self, grant_id: str) -> bool:
        return grant_id in self._by_grant

    def has_head(self, head: str) -> bool:
        """Whether `head` is, or once was, the head of this very chain."""
        return head == GENESIS or head in self._digests

    def effective(self, grant_id: str, at: datetime) -> Right:
        """Return the right at a time: the fold of the grant's events. An unknown grant permits nothing."""
        return fold(grant_id, self._by_grant.get(grant_id, ()), at)

    def history(self, grant_id: str) -> tuple[Event, ...]:
        """Return the events of one grant, in order."""
        return tuple(self._by_grant.get(grant_id, ()))

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
            line = {"seq": len(self._digests), "previous": self.head, "event": event.model_dump(mode="json")}
            line["digest"] = digest(line)
            with open(self.path, "r+b" if self.path.exists() else "w+b") as file:
                file.truncate(self._offset)
                file.seek(self._offset)
                file.write(canonical_json(line).encode() + b"\n")
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
            raise self._broken(len(self._digests), "lines that were there before are gone")
        if known > self._offset:
            with open(self.path, "rb") as file:
                file.seek(self._offset)
                for raw in file:
                    if not raw.endswith(b"\n"):
                        break
                    self._take(raw)
        if anchor is not None:
            self._check_anchor(anchor)

    def _take(self, raw: bytes) -> None:
        number = len(self._digests) + 1
        try:
            line: dict[str, Any] = json.loads(raw)
            stated = line.pop("digest")
            fits = line["seq"] == number - 1 and line["previous"] == self.head
            event = Event.model_validate(line["event"])
        except (ValueError, KeyError, TypeError, AttributeError, ValidationError) as error:
            raise self._broken(number, f"it is no ledger line ({type(error).__name__})") from None
        if not fits:
            raise self._broken(number, "it does not follow the line before it")
        if digest(line) != stated:
            raise self._broken(number, "its content does not match its digest")
        self._digests.append(stated)
        self._events.append(event)
        self._by_grant.setdefault(event.grant_id, []).append(event)
        self._offset += len(raw)

    def _admit(self, event: Event) -> None:
        known = self._by_grant.get(event.grant_id)
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
        if event.kind == "narrow":
            self._admit_narrowing(event, fold(event.grant_id, known, max(event.at, first.at)))

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
        if count > len(self._digests):
            raise self._broken(len(self._digests) + 1, f"the ledger had {count} lines and now has fewer")
        if count and self._digests[count - 1] != stated:
            raise self._broken(count, "it is not the line that was acknowledged")

    def _set_anchor(self) -> None:
        temporary = self._anchor.with_suffix(".head.new")
        with open(temporary, "wb") as file:
            file.write(canonical_json({"count": len(self._digests), "digest": self.head}).encode())
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
