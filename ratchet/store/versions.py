"""Removing from S3 for good: every version, every delete marker and every unfinished upload of a key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ratchet.errors import StoreError
from ratchet.store.bucket import RIGHTS, Absent, Bucket

BATCH = 1000
"""Most keys that one request may remove."""


def remove(bucket: Bucket, prefix: str, chosen: Callable[[str], bool], *, exact: bool = False) -> int:
    """Remove what is there under a prefix.

    Args:
        bucket: the bucket.
        prefix: of the keys.
        chosen: which of them.
        exact: only the key that is the prefix is wanted, so that the listing need not be read beyond it.

    Returns:
        Number of versions, markers and uploads that were removed.

    Raises:
        StoreError: the server did not remove one.
    """
    count, batch = 0, []
    for entry in _versions(bucket, prefix):
        if chosen(entry["Key"]):
            batch.append({"Key": entry["Key"], "VersionId": entry["VersionId"]})
        elif exact:
            break
        if len(batch) == BATCH:
            count += _delete(bucket, batch)
            batch = []
    count += _delete(bucket, batch)
    for upload in _uploads(bucket, prefix):
        if chosen(upload["Key"]):
            _abort(bucket, upload)
            count += 1
    return count


def _delete(bucket: Bucket, batch: list[dict[str, str]]) -> int:
    if not batch:
        return 0
    answer = bucket.call("delete_objects", batch[0]["Key"], Delete={"Objects": batch, "Quiet": True})
    for failed in answer.get("Errors", ()):
        raise StoreError(
            f"s3://{bucket.name}/{failed.get('Key')}",
            seen=failed.get("Code"),
            rule="every version must be removed",
            remedy=RIGHTS,
        )
    return len(batch)


def _abort(bucket: Bucket, upload: dict[str, Any]) -> None:
    try:
        bucket.call("abort_multipart_upload", upload["Key"], Key=upload["Key"], UploadId=upload["UploadId"])
    except Absent:
        # Its writer ended it meanwhile; what it wrote is removed by whoever removes the key again.
        return


def _versions(bucket: Bucket, prefix: str) -> Iterator[dict[str, Any]]:
    more: dict[str, str] = {}
    while True:
        page = bucket.call("list_object_versions", prefix, Prefix=prefix, **more)
        found = [*page.get("Versions", ()), *page.get("DeleteMarkers", ())]
        yield from sorted(found, key=lambda entry: str(entry["Key"]))
        if not page.get("IsTruncated"):
            return
        more = {"KeyMarker": page["NextKeyMarker"], "VersionIdMarker": page.get("NextVersionIdMarker", "")}


def _uploads(bucket: Bucket, prefix: str) -> Iterator[dict[str, Any]]:
    more: dict[str, str] = {}
    while True:
        page = bucket.call("list_multipart_uploads", prefix, Prefix=prefix, **more)
        yield from page.get("Uploads", ())
        if not page.get("IsTruncated"):
            return
        more = {"KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page.get("NextUploadIdMarker", "")}
