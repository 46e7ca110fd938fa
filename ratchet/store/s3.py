"""The store on S3.

    <prefix>/<name>                          an object or pointer
    <prefix>/.../.body-<name>-<id>           body of a large object, which the object names
    <prefix>/<folder>/.folder                what a published folder holds: name and digest of every file
    <prefix>/<folder>/.files-<digest>/...    its files, under the digest of them all
    <prefix>/.probe/<id>                     what a probe wrote, while it runs

A folder is there when its `.folder` is, which is created last. Copies of folders and the locks of this machine are
kept in a local cache, `<home>/cache/store`.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

from ratchet.contracts.canonical import canonical_json
from ratchet.errors import ConflictError, IntegrityError, StoreError
from ratchet.store import versions
from ratchet.store.base import Finding, Store, checked, folder_digest, listing, listing_digest, missing
from ratchet.store.bucket import Bucket, Patience, bucket, variables
from ratchet.store.objects import Objects
from ratchet.store.probe import probe

LISTING = ".folder"
FILES = ".files-"
BODY = ".body-"
PROBE = ".probe/"
USUAL = Patience()
_proven: set[Bucket] = set()


class S3Store(Store):
    """A store under a prefix of a bucket."""

    unfit = (
        "use an endpoint that honours conditional writes (AWS S3 and SeaweedFS do), have the proxy in front of it "
        "pass these headers on, or keep the store on a local disk"
    )

    def __init__(self, place: str, *, cache: Path | None = None, patience: Patience = USUAL) -> None:
        """Name the store at `s3://bucket/prefix`; nothing is sent before the first use.

        Args:
            place: where it is. Endpoint, region and credentials come from the AWS variables of the process.
            cache: folder for copies and locks of this machine; by default one in the user's cache folder.
            patience: time limits and attempts.
        """
        self.place = place.rstrip("/")
        self.bucket_name, _, prefix = self.place.removeprefix("s3://").partition("/")
        if not self.bucket_name:
            raise StoreError(place, rule="a store on S3 has a bucket", remedy="name it as s3://bucket/prefix")
        self.prefix = f"{checked(prefix)}/" if prefix else ""
        self.cache = cache or _user_cache() / hashlib.sha256(self.place.encode()).hexdigest()[:16]
        self.patience = patience
        self._asked_with = variables()

    def __reduce__(self) -> tuple[Any, ...]:
        return (_reopen, (self.place, self.cache, self.patience))

    @property
    def bucket(self) -> Bucket:
        """The bucket, as the AWS variables stood when this store was opened."""
        return bucket(self.bucket_name, self.patience, self._asked_with)

    @property
    def where(self) -> str:
        """Place and endpoint."""
        return f"{self.place} at {self.bucket.endpoint}"

    @property
    def _objects(self) -> Objects:
        return Objects(self.bucket)

    @property
    def _writable(self) -> Objects:
        """The objects, once the endpoint has proved in this process that it keeps its promises."""
        found = self.bucket
        if found not in _proven:
            self.prove()
            _proven.add(found)
        return Objects(found)

    def probe(self) -> list[Finding]:
        """Try every promise of the endpoint; done by itself before the first write of a process."""
        found = self.bucket
        return probe(found, self.prefix + PROBE, lambda key: _remove_one(found, key))

    def exists(self, name: str) -> bool:
        """Ask for the object, then for the listing of a folder."""
        return self._objects.head(self._key(name)) is not None or self._listing(name) is not None

    def read(self, name: str) -> bytes:
        """Return the content, checked against the digest in the object's metadata."""
        found = self._objects.get(self._key(name))
        if found is None:
            raise missing(name)
        return found[0]

    def open(self, name: str) -> BinaryIO:
        """Open the object; ranges are fetched as they are read, and refused once the object has changed."""
        found = self._objects.open(self._key(name))
        if found is None:
            raise missing(name)
        return found

    def create(self, name: str, data: bytes) -> bool:
        """Write with If-None-Match."""
        return self._writable.create(self._key(name), data)

    def create_file(self, name: str, source: Path) -> bool:
        """Write with If-None-Match, a large file in parts."""
        return self._put_file(self._key(name), source)

    def pointer(self, name: str) -> str | None:
        """Return the content of the pointer's object."""
        found = self._objects.get(self._key(name))
        return None if found is None else found[0].decode()

    def swap(self, name: str, expected: str | None, value: str) -> None:
        """Write with If-Match on what was read, or with If-None-Match. Where the answer got lost and another writer
        moved the pointer on before that was noticed, it raises ConflictError though the value did stand for a while.
        """
        key, objects = self._key(name), self._writable
        found = objects.get(key)
        seen = None if found is None else found[0].decode()
        if seen == expected:
            data = value.encode()
            if objects.create(key, data) if found is None else objects.replace(key, data, found[1].etag):
                return
            seen = self.pointer(name)
        raise ConflictError(
            name, seen=seen, rule=f"it was expected to be {expected!r}", remedy="read it again and decide anew"
        )

    def publish_folder(self, local: Path, name: str) -> str:
        """Write the files under the digest of them all, then create the listing that makes them the folder."""
        there = self._listing(name)
        if there is not None:
            return listing_digest(there)
        files = listing(local)
        digest = listing_digest(files)
        for file, sha256 in files.items():
            key = self._file_key(name, digest, file)
            self._put_file(key, local / file)
            head = self._objects.head(key)
            if head is None or not head.whole or head.sha256 != sha256:
                raise IntegrityError(
                    str(local / file),
                    seen=None if head is None else head.sha256,
                    rule=f"its digest was {sha256} when it was published",
                    remedy="leave a folder alone while it is published, and publish it again",
                )
        if self._writable.create(self._key(name, LISTING), canonical_json(files).encode()):
            return digest
        winner = listing_digest(self._listed(name))
        if winner != digest:
            prefix = self._file_key(name, digest, "")
            versions.remove(self.bucket, prefix, lambda key: True)
        return winner

    def folder(self, name: str) -> Path:
        """A copy in the cache, verified at every call; fetched where it is missing or changed."""
        files = self._listed(name)
        digest = listing_digest(files)
        kept = self.cache / "folders" / checked(name) / digest
        if kept.is_dir() and folder_digest(kept) == digest:
            return kept
        kept.parent.mkdir(parents=True, exist_ok=True)
        with self.locked(f"{name}/{digest}"):
            if kept.is_dir():
                if folder_digest(kept) == digest:
                    return kept
                shutil.rmtree(kept)
            fetched = Path(tempfile.mkdtemp(prefix=".fetch-", dir=kept.parent))
            try:
                for file in files:
                    self._fetch(self._file_key(name, digest, file), fetched / file)
                if folder_digest(fetched) != digest:
                    raise IntegrityError(name, rule=f"its files must have the digest {digest}", remedy=_RESTORE)
                fetched.chmod(0o755)
                os.rename(fetched, kept)
            finally:
                shutil.rmtree(fetched, ignore_errors=True)
        return kept

    def names(self, prefix: str) -> list[str]:
        """List the bucket; a published folder is shown by what its listing names."""
        start, found = self._under(prefix), []
        for key in self._keys(start):
            rest = key.removeprefix(start)
            *folders, last = rest.split("/")
            if last == LISTING and not any(part.startswith(".") for part in folders):
                folder = key.removeprefix(self.prefix).removesuffix(f"/{LISTING}")
                found += [f"{folder}/{file}" for file in self._listed(folder)]
            elif not any(part.startswith(".") for part in (*folders, last)):
                found.append(key.removeprefix(self.prefix))
        return sorted(found)

    def children(self, prefix: str) -> list[str]:
        """List the bucket up to the next slash."""
        start = self._under(prefix)
        found = {key.removeprefix(start).rstrip("/") for key in self._keys(start, Delimiter="/")}
        if LISTING in found:
            found |= {file.partition("/")[0] for file in self._listed(prefix)}
        return sorted(part for part in found if not part.startswith("."))

    def written(self, name: str) -> datetime | None:
        """Time of the last change, as the server says."""
        head = self._objects.head(self._key(name)) or self._objects.head(self._key(name, LISTING))
        return None if head is None else head.at

    def delete(self, name: str) -> int:
        """Remove every version and unfinished upload of the object or folder, and the copies in the cache."""
        key = self._key(name)
        folder, _, last = key.rpartition("/")
        body = f"{folder}/{BODY}{last}-" if folder else f"{BODY}{last}-"
        shutil.rmtree(self.cache / "folders" / checked(name), ignore_errors=True)
        count = _remove_one(self.bucket, key)
        # The body's name ends in an id without a hyphen: `a-b` is not taken for a body of `a`.
        count += versions.remove(self.bucket, body, lambda other: "-" not in other.removeprefix(body))
        for hidden in (LISTING, FILES):
            count += versions.remove(self.bucket, self._key(name, hidden), lambda other: True)
        return count

    def delete_all(self, prefix: str) -> int:
        """Remove every version and unfinished upload under the prefix, and the copies in the cache."""
        shutil.rmtree(self.cache / "folders" / checked(prefix), ignore_errors=True)
        count = versions.remove(self.bucket, self._under(prefix), lambda key: True)
        return count + (self.delete(prefix) if checked(prefix) else 0)

    def _lock_file(self, name: str) -> Path:
        return self.cache / "locks" / f"{hashlib.sha256(checked(name).encode()).hexdigest()}.lock"

    def _key(self, *parts: str) -> str:
        return self.prefix + checked("/".join(parts))

    def _file_key(self, name: str, digest: str, file: str) -> str:
        return f"{self._key(name, FILES)}{digest}/{file}"

    def _under(self, prefix: str) -> str:
        return f"{self._key(prefix)}/" if checked(prefix) else self.prefix

    def _put_file(self, key: str, source: Path) -> bool:
        folder, _, last = key.rpartition("/")
        return self._writable.create_file(key, source, f"{folder}/{BODY}{last}" if folder else BODY + last)

    def _listing(self, name: str) -> dict[str, str] | None:
        found = self._objects.get(self._key(name, LISTING))
        if found is None:
            return None
        files: dict[str, str] = json.loads(found[0])
        return files

    def _listed(self, name: str) -> dict[str, str]:
        found = self._listing(name)
        if found is None:
            raise missing(name)
        return found

    def _fetch(self, key: str, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        content = self._objects.open(key)
        if content is None:
            raise IntegrityError(key, rule="a published folder has all its files", remedy=_RESTORE)
        with content, target.open("wb") as file:
            shutil.copyfileobj(content, file, 8 << 20)

    def _keys(self, prefix: str, **parameters: str) -> Iterator[str]:
        more: dict[str, str] = {}
        while True:
            page = self.bucket.call("list_objects_v2", prefix, Prefix=prefix, **parameters, **more)
            yield from (entry["Key"] for entry in page.get("Contents", ()))
            yield from (entry["Prefix"] for entry in page.get("CommonPrefixes", ()))
            if not page.get("IsTruncated"):
                return
            more = {"ContinuationToken": page["NextContinuationToken"]}


_RESTORE = "restore it from a version or a backup of the bucket, or make it again under another name"


def _remove_one(found: Bucket, key: str) -> int:
    return versions.remove(found, key, lambda other: other == key, exact=True)


def _user_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ratchet" / "store"


def _reopen(place: str, cache: Path, patience: Patience) -> S3Store:
    return S3Store(place, cache=cache, patience=patience)
