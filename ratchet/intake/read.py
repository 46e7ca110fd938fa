"""Reading what was ingested: the index for everybody, the content for those who hold an authorised dataset."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any

from ratchet.contracts.trajectory import Trajectory
from ratchet.errors import IntakeError, IntegrityError
from ratchet.intake import published
from ratchet.intake.published import BatchManifest
from ratchet.intake.rows import INDEX_COLUMNS
from ratchet.rights import AuthorisedDataset
from ratchet.store import Store

if TYPE_CHECKING:
    import pandas as pd


def index(store: Store, tenant: str) -> pd.DataFrame:
    """Return one row per trajectory of a tenant, in the order of intake.

    Columns are those of `rows.INDEX_COLUMNS`, then `batch` and `ingested_at` (UTC). Empty, with the same columns, where
    nothing was ingested.

    Raises:
        IntegrityError: a file is not what its manifest names.
    """
    import pandas as pd
    import pyarrow.parquet as pq

    frames = []
    for manifest in published.chain(store, tenant):
        if "index" in manifest.files:
            frame = pq.read_table(BytesIO(published.content(store, manifest.files["index"]))).to_pandas()
            frame = frame.astype({"submitted": "boolean", "ok_calls": "Int64"})
            frames.append(frame.assign(batch=manifest.batch, ingested_at=pd.Timestamp(manifest.ingested_at)))
    if not frames:
        return pd.DataFrame(columns=[*INDEX_COLUMNS, "batch", "ingested_at"])
    return pd.concat(frames, ignore_index=True) if len(frames) > 1 else frames[0]


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
    documents: dict[str, bytes] = {}
    for manifest in published.chain(store, dataset.tenant):
        here = _digests_of(store, manifest)
        if not grants.keys() & set(here):
            continue
        stored = published.lines(store, manifest.files["trajectories"])
        documents |= {name: line for name, line in zip(here, stored, strict=True) if name in grants}
    missing = sorted(grants.keys() - documents.keys())
    if missing:
        raise IntegrityError(
            f"trajectory {missing[0]}",
            rule=f"it must be in the store of {dataset.tenant!r} ({len(missing)} of {len(grants)} are not)",
            remedy="authorise the records that are there",
        )
    for name, grant_id in dataset.records:
        trajectory = Trajectory.model_validate_json(documents[name])
        extra = trajectory.ratchet
        if trajectory.digest != name or (extra.tenant, extra.grant_id) != (dataset.tenant, grant_id):
            raise IntegrityError(
                f"trajectory {name}",
                rule="its content, tenant and grant must be those it was authorised by",
                remedy="restore the store from a backup",
            )
        yield trajectory


def digests(store: Store, manifests: Sequence[BatchManifest]) -> set[str]:
    """Return the digests of all trajectories that these manifests name."""
    return {name for manifest in manifests for name in _digests_of(store, manifest)}


def _digests_of(store: Store, manifest: BatchManifest) -> list[str]:
    import pyarrow.parquet as pq

    if "index" not in manifest.files:
        return []
    data = published.content(store, manifest.files["index"])
    names: list[str] = pq.read_table(BytesIO(data), columns=["digest"])["digest"].to_pylist()
    return names


def _many(wanted: Any) -> bool:
    return isinstance(wanted, Collection) and not isinstance(wanted, str)
