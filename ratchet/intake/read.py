"""Reading what was ingested: the index for everybody, the content for those who hold an authorised dataset.

Only what manifests name is opened. The trajectories of a dataset are streamed from the parts of its own grants, in
the order of its records: of each part only the row groups that can hold one of them are read, one at a time.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from ratchet.contracts.trajectory import Trajectory
from ratchet.errors import IntakeError, IntegrityError
from ratchet.intake import published, summaries
from ratchet.intake.keys import Keys
from ratchet.intake.published import BatchManifest, StoredFile
from ratchet.intake.rows import schema
from ratchet.intake.staging import opened_entries
from ratchet.rights import AuthorisedDataset
from ratchet.store import Store

if TYPE_CHECKING:
    import pandas as pd

_NULLABLE = {"submitted": "boolean", "ok_calls": "Int64"}


def index(store: Store, tenant: str) -> pd.DataFrame:
    """Return one row per trajectory of a tenant, in the order of intake.

    Columns are those of `rows.INDEX_COLUMNS`, then `batch` and `ingested_at` (UTC). Empty, with the same columns, where
    nothing was ingested.

    Raises:
        IntegrityError: a file is not what its manifest names.
    """
    import pyarrow as pa

    def look(head: str | None) -> list[pa.Table]:
        return list(summaries.index_tables(store, published.recent(store, tenant, head)))

    found = published.settled(store, tenant, look)
    whole = pa.concat_tables([schema(summaries.SUMMARY_INDEX_COLUMNS).empty_table(), *found])
    frame: pd.DataFrame = whole.to_pandas()
    return frame.astype(_NULLABLE)


def records(store: Store, tenant: str, **filters: Any) -> list[tuple[str, str]]:
    """Return (trajectory digest, grant id) of a tenant's trajectories, as `rights.authorise` takes them.

    Args:
        store: the store.
        tenant: whose.
        filters: a column of the index and the value, or the collection of values, that it must have.

    Raises:
        IntakeError: the index has no such column.
    """
    frame = index(store, tenant)
    for column, wanted in filters.items():
        if column not in frame.columns:
            raise IntakeError(
                "filter", seen=column, rule="the index has no such column", remedy=f"use {', '.join(frame.columns)}"
            )
        if column == "seed":
            wanted = {str(seed) for seed in wanted} if _many(wanted) else str(wanted)
        frame = frame[frame[column].isin(list(wanted)) if _many(wanted) else frame[column] == wanted]
    return list(zip(frame["digest"], frame["grant_id"], strict=True))


def trajectories(store: Store, dataset: AuthorisedDataset) -> Iterator[Trajectory]:
    """Yield the trajectories of an authorised dataset, in the order of its records: the only door to content.

    Raises:
        IntegrityError: one is not in the store, or its content is not what its digest names.
    """
    grants = dict(dataset.records)
    places = published.settled(store, dataset.tenant, lambda head: _places(store, dataset, head))
    missing = sorted(grants.keys() - {name for place in places for name in place.names})
    if missing:
        raise IntegrityError(
            f"trajectory {missing[0]}",
            rule=f"it must be in the store of {dataset.tenant!r} ({len(missing)} of {len(grants)} are not)",
            remedy="authorise the records that are there",
        )
    last = None
    for name, document, place in heapq.merge(*(_documents(store, place) for place in places), key=itemgetter(0)):
        if name == last:
            continue
        last = name
        trajectory = Trajectory.model_validate_json(document)
        extra = trajectory.ratchet
        if trajectory.digest != name or (extra.tenant, extra.grant_id) != (dataset.tenant, grants[name]):
            raise IntegrityError(
                f"trajectory {name} in {place}",
                rule="its content, tenant and grant must be those it was authorised by",
                remedy="restore the store from a backup",
            )
        yield trajectory


def original(store: Store, keys: Keys, tenant: str, grant_id: str, digest: str) -> Iterator[bytes]:
    """Yield an original that was ingested, in pieces, for a steward.

    Args:
        store: the store.
        keys: the keys of the home that ingested it.
        tenant: whose it is.
        grant_id: the grant that it came in under.
        digest: SHA-256 of the original, as a batch's sources name it.

    Raises:
        IntakeError: no batch names it.
        RightsError: the grant's key was destroyed.
        IntegrityError: its key is missing or another one, or it was changed.
    """
    names = {
        source.raw
        for manifest in published.chain(store, tenant)
        for source in manifest.sources
        if manifest.grant_id == grant_id and source.digest == digest and source.raw is not None
    }
    if not names:
        raise IntakeError(
            f"original {digest}",
            rule=f"a batch of grant {grant_id!r} of {tenant!r} must have stored it",
            remedy="look its digest up in the batch's sources; one that holds a secret is not stored",
        )
    (name,) = names
    key = keys.existing(tenant, grant_id)
    with store.open(name) as handle:
        yield from key.unseal(handle, digest, name)


def quarantined(store: Store, manifests: Sequence[BatchManifest], keys: Keys | None = None) -> list[dict[str, Any]]:
    """Return every quarantine entry that these manifests name, oldest first.

    An entry holds code, reason, source, number, offset, digest, bytes, and `content_base64`: the piece, where it was
    kept and keys are given.

    Raises:
        RightsError: the key of a grant was destroyed.
        IntegrityError: a file is not what its manifest names, or its key is missing or another one.
    """
    found = []
    for manifest in manifests:
        files = manifest.files.get("quarantine", ())
        key = keys.existing(manifest.tenant, manifest.grant_id) if keys and files else None
        for file in files:
            found += opened_entries(published.content(store, file), key, file.name)
    return found


class _Place(NamedTuple):
    """A part with rows of a dataset."""

    file: StoredFile
    groups: dict[int, dict[str, int]]
    """By row group: digest and row."""

    @property
    def names(self) -> list[str]:
        return [name for rows in self.groups.values() for name in rows]


def _places(store: Store, dataset: AuthorisedDataset, head: str | None) -> list[_Place]:
    """Find the rows of a dataset in the parts of the batches that hold them, each part verified."""
    import pyarrow as pa
    import pyarrow.compute as pc

    newest = published.recent(store, dataset.tenant, head)
    wanted = [name for name, _ in dataset.records]
    batches: set[str] = set()
    for table in summaries.index_tables(store, newest, ["digest", "batch"]):
        batches.update(table.filter(pc.is_in(table["digest"], value_set=pa.array(wanted)))["batch"].to_pylist())
    files = [
        file
        for manifest in published.everything(store, newest)
        if manifest.batch in batches
        for file in manifest.files.get("trajectories", ())
    ]
    found = [_Place(file, _groups(store, file, wanted)) for file in files]
    return [place for place in found if place.groups]


def _groups(store: Store, file: StoredFile, wanted: Sequence[str]) -> dict[int, dict[str, int]]:
    """Find sorted digests in a part: only row groups whose range holds one are looked into."""
    import pyarrow.parquet as pq

    groups = {}
    with published.opened(store, file) as handle:
        part = pq.ParquetFile(handle)
        column = part.schema_arrow.get_field_index("digest")
        for number in range(part.num_row_groups):
            range_of = part.metadata.row_group(number).column(column).statistics
            inside = wanted[bisect_left(wanted, range_of.min) : bisect_right(wanted, range_of.max)]
            if not inside:
                continue
            chosen = set(inside)
            names = part.read_row_group(number, columns=["digest"])["digest"].to_pylist()
            rows = {name: row for row, name in enumerate(names) if name in chosen}
            if rows:
                groups[number] = rows
    return groups


def _documents(store: Store, place: _Place) -> Iterator[tuple[str, str, str]]:
    """Yield digest, document and file of a part's rows, sorted by digest."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for number, rows in place.groups.items():
        try:
            with store.open(place.file.name) as handle:
                column = pq.ParquetFile(handle).read_row_group(number, columns=["document"])["document"]
        except pa.ArrowException:
            raise published.changed(place.file.name) from None
        for name, row in rows.items():
            yield name, column[row].as_py(), place.file.name


def _many(wanted: Any) -> bool:
    return isinstance(wanted, Collection) and not isinstance(wanted, str)
