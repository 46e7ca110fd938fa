"""What a worker hands to the writer: the rows of some records in memory or, where they are many, in files.

Files spare both processes most of the work: nothing is sent through a pipe, and the writer has only to name as its own
what is finished already. Little comes as tables, so that a thousand small sources do not become a thousand files.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ratchet.intake import tables
from ratchet.intake.digests import packed

if TYPE_CHECKING:
    import pyarrow as pa

    from ratchet.intake.digests import Digests

Tables = tuple["pa.Table", "pa.Table", "pa.Table"]
"""Trajectories, index and events."""

FILED_BYTES = 16 << 20
"""Size of the rows of a piece from which they become files."""


@dataclass(frozen=True)
class Part:
    """Some records of a source, judged.

    The three tables have the columns of `rows.TRAJECTORY_COLUMNS`, `rows.INDEX_COLUMNS` and `rows.EVENT_COLUMNS`;
    trajectories and index have the same digests in the same order.
    """

    trajectories: pa.Table
    index: pa.Table
    events: pa.Table
    quarantine: list[dict[str, Any]] = field(default_factory=list)
    """Entries with code, reason, source, number, offset, digest, bytes, and `content_base64`: the piece, or None where
    no content may be kept."""

    @property
    def nbytes(self) -> int:
        """Size of the rows."""
        return int(self.trajectories.nbytes + self.index.nbytes + self.events.nbytes)


@dataclass(frozen=True)
class Filed:
    """Rows in a Parquet file, as `staging.Staged` has them."""

    path: Path
    digest: str
    """SHA-256 of the file."""
    rows: int


@dataclass(frozen=True)
class FiledPart:
    """A `Part` in which no record is twice, and whose trajectories (sorted by digest) and events lie in files."""

    trajectories: Filed
    index: pa.Table
    events: Filed
    quarantine: list[dict[str, Any]]


def filed(parts: Sequence[Part], folder: Path) -> list[Part] | list[FiledPart]:
    """Return the parts of a piece as one whose rows lie in new files of a folder, or as they are where they are few."""
    if sum(part.nbytes for part in parts) < FILED_BYTES:
        return list(parts)
    import numpy as np
    import pyarrow as pa

    found = tuple(
        pa.concat_tables([getattr(part, kind) for part in parts]) for kind in ("trajectories", "index", "events")
    )
    digests = packed(found[1]["digest"])
    trajectories, index, events = select(
        (found[0], found[1], found[2]), fresh_rows(digests, np.zeros(len(digests), dtype=bool))
    )
    quarantine = [entry for part in parts for entry in part.quarantine]
    return [FiledPart(_file(trajectories.sort_by("digest"), folder), index, _file(events, folder), quarantine)]


def fresh_rows(digests: Digests, seen: Digests) -> Digests:
    """Return which rows are new: not seen, and the first of their digest in the block."""
    import numpy as np

    first = np.zeros(len(digests), dtype=bool)
    first[np.unique(digests, return_index=True)[1]] = True
    kept: Digests = first & ~seen
    return kept


def select(found: Tables, kept: Digests) -> Tables:
    """Return the chosen rows of trajectories and index, and their events."""
    import pyarrow as pa
    import pyarrow.compute as pc

    trajectories, index, events = found
    if kept.all():
        return found
    mask = pa.array(kept)
    chosen = index.filter(mask)
    events = events.filter(pc.is_in(events["digest"], value_set=chosen["digest"].combine_chunks()))
    if len(set(index["digest"].to_pylist())) < len(index):
        events = _each_once(events)
    return trajectories.filter(mask), chosen, events


def _each_once(events: pa.Table) -> pa.Table:
    """Drop the events of the second of two equal records."""
    seen: set[tuple[Any, ...]] = set()
    places = []
    names = ("digest", "step_id", "kind", "position")
    for place, key in enumerate(zip(*(events[name].to_pylist() for name in names), strict=True)):
        if key not in seen:
            seen.add(key)
            places.append(place)
    return events.take(places)


def _file(table: pa.Table, folder: Path) -> Filed:
    handle, name = tempfile.mkstemp(suffix=".parquet", dir=folder)
    os.close(handle)
    tables.write(table, Path(name))
    return Filed(Path(name), tables.local_digest(Path(name)), len(table))
