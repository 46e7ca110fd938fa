"""Whether an S3 endpoint keeps what the store rests on, found by really trying it.

Some look-alikes silently ignore `If-None-Match` and `If-Match`: there, every one of many racing writers "wins", and
what was published is written over. Such an endpoint is refused before anything is written to it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from ratchet.store.base import Finding
from ratchet.store.bucket import Absent, Bucket, Unmet

RACERS = 4
TRIES = 3
OTHER_ETAG = '"0123456789abcdef0123456789abcdef"'


def probe(bucket: Bucket, prefix: str, delete: Callable[[str], object]) -> list[Finding]:
    """Try every promise on objects under `prefix`, and remove them.

    Args:
        bucket: the bucket.
        prefix: key under which the probe may write.
        delete: removes the object of a key with all its versions.

    Returns:
        Every promise with its outcome.

    Raises:
        StoreError: the bucket cannot be reached or refuses the caller.
    """
    for _ in range(TRIES):
        findings, conclusive = _once(bucket, f"{prefix}{uuid.uuid4().hex}", delete)
        if conclusive or all(finding.kept for finding in findings):
            break
    return findings


def _once(bucket: Bucket, key: str, delete: Callable[[str], object]) -> tuple[list[Finding], bool]:
    """Every promise with its outcome, and whether something was written that should not have been.

    That proves an endpoint unfit at once. What was not written may be a write whose answer got lost: that is no proof.
    """
    raced = f"{key}-race"

    def put(at: str, data: bytes, **condition: str) -> str | None:
        """ETag of what was written, or None where the condition kept it from being written."""
        try:
            answer = bucket.call("put_object", at, Key=at, Body=data, Metadata={"ratchet-probe": "1"}, **condition)
        except (Unmet, Absent):
            return None
        return str(answer["ETag"])

    try:
        first = put(key, b"first", IfNoneMatch="*")
        over = put(key, b"second", IfNoneMatch="*")
        stale = put(key, b"third", IfMatch=OTHER_ETAG)
        moved = put(key, b"fourth", IfMatch=first) if first and not over and not stale else None
        data, answer = bucket.get(key)
        with ThreadPoolExecutor(RACERS) as pool:
            won = list(pool.map(lambda number: put(raced, b"%d" % number, IfNoneMatch="*"), range(RACERS)))
        findings = [
            Finding("a new object is created (If-None-Match)", first is not None),
            Finding("an object that is there is not written over (If-None-Match)", over is None),
            Finding("an object that is another by now is not written over (If-Match)", stale is None),
            Finding("an object that is still the same is written over (If-Match)", moved is not None),
            Finding("what was written is read back", data == b"fourth"),
            Finding("metadata is read back", answer.get("Metadata", {}).get("ratchet-probe") == "1"),
            Finding(f"of {RACERS} writers that race for a new object one wins", sum(map(bool, won)) == 1),
        ]
        return findings, bool(over or stale or sum(map(bool, won)) > 1)
    finally:
        delete(key)
        delete(raced)
