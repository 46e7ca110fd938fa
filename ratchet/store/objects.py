"""Objects on S3: written under a condition, found whole or not at all, and large ones in parts.

Each object carries in its metadata its size, its SHA-256 and the number of the write that made it. With the first two a
reader refuses what is not whole, whatever the server kept; with the third a writer whose answer got lost finds out
whether it was itself that won.

A condition on the completion of a multipart upload is not atomic everywhere (of 16 racing completions SeaweedFS 4.48
lets about 5 win), that on a plain PUT is. So a large object is a small one that names the key of its body: the body is
uploaded in parts under a name that nobody else uses, and the small object decides.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import uuid
from base64 import b64encode
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from ratchet.contracts.canonical import digest_bytes
from ratchet.errors import IntegrityError, StoreError
from ratchet.store.base import missing
from ratchet.store.bucket import AGAIN, Absent, Bucket, Unmet

PART = 32 << 20
"""Bytes of a part. S3 takes 10,000 parts of 5 MiB to 5 GiB."""
LARGE = 64 << 20
"""From this size on an object is uploaded in parts."""
MOST_PARTS = 10_000
BUFFER = 1 << 20
WRITE, SIZE, SHA256, BODY = "ratchet-write", "ratchet-size", "ratchet-sha256", "ratchet-body"
IF_NEW = {"IfNoneMatch": "*"}


class Head(NamedTuple):
    """What is known of an object without its content."""

    etag: str
    size: int
    """Bytes of the content."""
    sha256: str | None
    """None for an object that another program wrote."""
    write: str | None
    body: str | None
    """Key of the body, where the object is large."""
    at: datetime
    whole: bool
    """Whether the server kept as many bytes as were sent."""

    @classmethod
    def of(cls, answer: dict[str, Any]) -> Head:
        """Read the answer to a HEAD or GET."""
        told, length = answer.get("Metadata", {}), int(answer["ContentLength"])
        body = told.get(BODY)
        size = int(told.get(SIZE, length))
        whole = body is not None or size == length
        return cls(answer["ETag"], size, told.get(SHA256), told.get(WRITE), body, answer["LastModified"], whole)


class Objects:
    """The objects of a bucket, by key."""

    def __init__(self, bucket: Bucket) -> None:
        """Work on `bucket`."""
        self.bucket = bucket

    def head(self, key: str) -> Head | None:
        """What is known of an object; None where there is none."""
        try:
            return Head.of(self.bucket.call("head_object", key, Key=key))
        except Absent:
            return None

    def get(self, key: str) -> tuple[bytes, Head] | None:
        """Content and head of an object; None where there is none. Raises IntegrityError where it is not whole."""
        try:
            data, answer = self.bucket.get(key)
        except Absent:
            return None
        head = Head.of(answer)
        if head.body is not None:
            data, _ = self.bucket.get(head.body)
        if head.sha256 is not None and digest_bytes(data) != head.sha256:
            raise _damaged(key, f"{len(data)} bytes", head)
        return data, head

    def create(self, key: str, data: bytes) -> bool:
        """Write an object if there is none. Returns whether this call wrote it."""
        return self._put(key, data, digest_bytes(data), len(data), IF_NEW)

    def replace(self, key: str, data: bytes, etag: str) -> bool:
        """Write an object over the one with this ETag. Returns False where it is another by now."""
        return self._put(key, data, digest_bytes(data), len(data), {"IfMatch": etag})

    def create_file(self, key: str, source: Path, body_key: str) -> bool:
        """Write a local file as an object if there is none, from `LARGE` on in parts under a key from `body_key`."""
        with source.open("rb") as handle:
            sha256 = hashlib.file_digest(handle, "sha256").hexdigest()
            size = handle.tell()
            if size < LARGE:
                return self._put(key, handle, sha256, size, IF_NEW)
            if self.head(key) is not None:
                return False
            place = f"{body_key}-{uuid.uuid4().hex}"
            self._upload(place, handle, size)
            if self._put(key, b"", sha256, size, IF_NEW, body=place):
                return True
            self.bucket.call("delete_object", place, Key=place)
            return False

    def open(self, key: str) -> BinaryIO | None:
        """Open an object for reading in pieces; None where there is none."""
        head = self.head(key)
        if head is None:
            return None
        if not head.whole:
            raise _damaged(key, "less", head)
        return io.BufferedReader(_Reader(self.bucket, head.body or key, head), BUFFER)

    def _put(
        self,
        key: str,
        data: bytes | BinaryIO,
        sha256: str,
        size: int,
        condition: dict[str, str],
        body: str | None = None,
    ) -> bool:
        """Write under a condition, until the server has the whole of it. Returns False where the condition is unmet."""
        write, md5 = uuid.uuid4().hex, _md5(data)
        metadata = {WRITE: write, SIZE: str(size), SHA256: sha256} | ({BODY: body} if body else {})
        content = {"Body": data, "ContentMD5": b64encode(md5.digest()).decode(), "Metadata": metadata}
        creating = condition == IF_NEW
        for _ in range(self.bucket.patience.attempts):
            try:
                answer = self.bucket.call("put_object", key, Key=key, **content, **condition)
            except Absent:
                return False
            except Unmet:
                # By somebody else's object, or by our own of an attempt whose answer got lost: its number says.
                answer = {}
            # An ETag that is no MD5 (encrypted buckets) says nothing: then the length must.
            if answer.get("ETag", "").strip('"') == md5.hexdigest():
                return True
            head = self.head(key)
            ours = head is not None and head.write == write
            if head is not None and head.whole:
                return ours
            if not (creating or ours):
                return False
            # A server kept a part of what it was sent: nobody takes that for whole, so it is put right.
            condition = IF_NEW if head is None else {"IfMatch": head.etag}
        raise StoreError(
            f"s3://{self.bucket.name}/{key}",
            rule=f"the server must keep all of the {size} bytes that it is sent",
            remedy=AGAIN,
        )

    def _upload(self, key: str, handle: BinaryIO, size: int) -> None:
        part_size = max(PART, -(-size // MOST_PARTS))
        upload = self.bucket.call("create_multipart_upload", key, Key=key)["UploadId"]
        parts: list[dict[str, str | int]] = []
        position = 0
        handle.seek(0)
        while position < size:
            piece = handle.read(part_size)
            md5 = b64encode(_md5(piece).digest()).decode()
            answer = self.bucket.call(
                "upload_part", key, Key=key, UploadId=upload, PartNumber=len(parts) + 1, Body=piece, ContentMD5=md5
            )
            parts.append({"PartNumber": len(parts) + 1, "ETag": answer["ETag"]})
            position += len(piece)
        # After a lost answer the upload is absent because it is complete: the length says so.
        with contextlib.suppress(Absent):
            self.bucket.call(
                "complete_multipart_upload", key, Key=key, UploadId=upload, MultipartUpload={"Parts": parts}
            )
        head = self.head(key)
        if head is None or head.size != size:
            raise StoreError(
                f"s3://{self.bucket.name}/{key}",
                seen=None if head is None else f"{head.size} bytes",
                rule=f"the server must keep all of the {size} bytes that it is sent",
                remedy=AGAIN,
            )


class _Reader(io.RawIOBase):
    """Reads ranges of one object, as it was when it was opened."""

    def __init__(self, bucket: Bucket, key: str, head: Head) -> None:
        self._bucket, self._key, self._head, self._position = bucket, key, head, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._head.size}[whence]
        self._position = max(0, start + offset)
        return self._position

    def readinto(self, buffer: Any) -> int:
        end = min(self._position + len(buffer), self._head.size)
        if end <= self._position:
            return 0
        same = {} if self._head.body else {"IfMatch": self._head.etag}
        try:
            data, _ = self._bucket.get(self._key, Range=f"bytes={self._position}-{end - 1}", **same)
        except Absent:
            raise missing(self._key) from None
        except Unmet:
            raise IntegrityError(
                self._key, rule="it must not change while it is read", remedy="read it again from the start"
            ) from None
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)


def _md5(data: bytes | BinaryIO) -> hashlib._Hash:
    """MD5 is what S3 checks an upload by; it protects from accidents, not from people."""
    if isinstance(data, bytes):
        return hashlib.md5(data, usedforsecurity=False)
    data.seek(0)
    return hashlib.file_digest(data, lambda: hashlib.md5(usedforsecurity=False))  # type: ignore[arg-type]


def _damaged(key: str, seen: str, head: Head) -> IntegrityError:
    return IntegrityError(
        key,
        seen=seen,
        rule=f"it was written with {head.size} bytes of digest {head.sha256}",
        remedy="write it again, which puts it right, or restore it from a version or a backup",
    )
