"""Gathering: every record of the sources judged, before anything is stored.

Each record becomes a trajectory, with its anomalies, or a quarantine entry with reason, source, offset and digest. Of
a record that holds a secret or is another tenant's no content is kept, and of a source in which one was found no
original.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from ratchet.contracts.canonical import digest_bytes
from ratchet.contracts.trajectory import Trajectory
from ratchet.intake.formats import Format, named, recognise
from ratchet.intake.published import Source
from ratchet.intake.records import Record, Rejected, Unreadable
from ratchet.intake.secrets import SecretScanner
from ratchet.intake.validate import trajectory_of

KEPT_CONTENT_BYTES = 1 << 20
"""Longest rejected piece whose content is kept in quarantine beside its reason."""


class Gathering:
    """What was read for one tenant under one grant, not yet compared with the store."""

    def __init__(
        self, tenant: str, grant_id: str, scanner: SecretScanner, progress: Callable[[int], object] | None = None
    ) -> None:
        """Start with nothing; `progress` is called with 1 for every record."""
        self.tenant, self.grant_id = tenant, grant_id
        self._scanner, self._progress = scanner, progress
        self.trajectories: dict[str, tuple[Trajectory, dict[str, Any]]] = {}
        """By digest, with `source`, `offset` and `format` of the record."""
        self.quarantine: dict[tuple[str, str], dict[str, Any]] = {}
        """Entries by (digest of the piece, code)."""
        self.sources: list[Source] = []
        self.originals: dict[str, bytes] = {}
        """Originals that may be stored, by name in the store."""
        self.read = self.duplicates = self.secrets = 0
        self.reasons: Counter[str] = Counter()
        self.anomalies: Counter[str] = Counter()
        self.formats: Counter[str] = Counter()

    def source(self, data: bytes, name: str, format: str = "auto") -> None:
        """Take in one source.

        Args:
            data: its bytes.
            name: its name, for the reports.
            format: `auto`, or the name of its format.
        """
        candidates = recognise(data, name) if format == "auto" else [format]
        if len(candidates) != 1:
            self._refuse(data, name, candidates)
            return
        (format,) = candidates
        self.formats[format] += 1
        # The original is kept where no secret and no other tenant's record is in it.
        clean = not self._scanner.raw(data)
        before = len(self.trajectories)
        for item in _read(named(format), data, name):
            clean = self._take(item, name, format) and clean
            if self._progress:
                self._progress(1)
        digest = digest_bytes(data)
        raw = f"{self.tenant}/raw/{digest}" if clean and len(self.trajectories) > before else None
        self.sources.append(Source(name=name, digest=digest, format=format, raw=raw))
        if raw:
            self.originals[raw] = data

    def _refuse(self, data: bytes, name: str, candidates: list[str]) -> None:
        """Set aside a source that no reader, or more than one, recognises."""
        code = "ambiguous_format" if candidates else "unrecognised_format"
        reason = f"it could be {' or '.join(candidates)}" if candidates else "no reader recognises it"
        self._take(Rejected(0, 0, data, code, f"{reason}; name its format"), name, "unrecognised")
        self.formats["unrecognised"] += 1
        self.sources.append(Source(name=name, digest=digest_bytes(data), format=None, raw=None))

    def _take(self, item: Record | Rejected, name: str, format: str) -> bool:
        """Keep or set aside one piece; returns whether its content may be stored by this tenant at all."""
        self.read += 1
        value = [item.document, item.claims] if isinstance(item, Record) else None
        found = self._scanner.record(item.raw, value)
        if found:
            self.secrets += 1
            self._set_aside(item, name, "secret", f"a secret was found by {', '.join(sorted(found))}", content=False)
            return False
        if isinstance(item, Rejected):
            self._set_aside(item, name, item.code, item.reason, content=True)
            return True
        try:
            trajectory = trajectory_of(item, tenant=self.tenant, grant_id=self.grant_id)
        except Unreadable as error:
            own = not error.code.startswith("foreign_")
            self._set_aside(item, name, error.code, error.reason, content=own)
            return own
        self.anomalies.update(item.anomalies)
        digest = trajectory.digest
        if digest in self.trajectories:
            self.duplicates += 1
        else:
            place = {"source": f"{name}#{item.number}", "offset": item.offset, "format": format}
            self.trajectories[digest] = (trajectory, place)
        return True

    def _set_aside(self, item: Record | Rejected, name: str, code: str, reason: str, *, content: bool) -> None:
        piece = digest_bytes(item.raw)
        self.reasons[code] += 1
        kept = base64.b64encode(item.raw).decode() if content and len(item.raw) <= KEPT_CONTENT_BYTES else None
        entry = {
            "code": code,
            "reason": reason,
            "source": name,
            "number": item.number,
            "offset": item.offset,
            "digest": piece,
            "bytes": len(item.raw),
            "content_base64": kept,
        }
        self.quarantine.setdefault((piece, code), entry)


def _read(reader: Format, data: bytes, name: str) -> Iterator[Record | Rejected]:
    """Read a source; readers are plug-ins, and one that fails costs its source and not the others."""
    number = 0
    try:
        for item in reader.read(data, name):
            yield item
            number += 1
    except Exception as error:
        reason = f"its reader failed after {number} records ({type(error).__name__})"
        yield Rejected(number, 0, data, "reader_failed", reason)
