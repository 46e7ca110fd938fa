"""Objects on S3: large ones in parts, folders in the cache, and deletion with all versions and unfinished uploads."""

from __future__ import annotations

import io
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from seaweed_server import BUCKET

from ratchet.errors import IntegrityError
from ratchet.store import folder_digest, objects
from ratchet.store.s3 import S3Store

SIZE = 11 << 20


@pytest.fixture
def store(s3_place: str, tmp_path: Path) -> S3Store:
    """A fresh store."""
    return S3Store(s3_place, cache=tmp_path / "cache")


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of the smallest size that S3 takes, so that 11 MiB are large."""
    monkeypatch.setattr(objects, "PART", 5 << 20)
    monkeypatch.setattr(objects, "LARGE", 5 << 20)


@pytest.fixture
def versioned(s3_versioned_place: str, tmp_path: Path) -> S3Store:
    """A store in a bucket that keeps versions."""
    return S3Store(s3_versioned_place, cache=tmp_path / "cache")


def traces(store: S3Store) -> list[str]:
    """Every version, marker and upload of the store, and everything in its cache."""
    found = store.bucket.call("list_object_versions", "", Prefix=store.prefix)
    uploads = store.bucket.call("list_multipart_uploads", "", Prefix=store.prefix)
    entries = [*found.get("Versions", ()), *found.get("DeleteMarkers", ()), *uploads.get("Uploads", ())]
    cached = [str(path) for path in (store.cache / "folders").rglob("*") if path.is_file()]
    return [entry["Key"].removeprefix(store.prefix) for entry in entries] + cached


def large(tmp_path: Path, number: int = 0) -> Path:
    path = tmp_path / f"large{number}"
    path.write_bytes(bytes([number]) * 1000 + os.urandom(SIZE - 1000))
    return path


@pytest.mark.usefixtures("small_parts")
def test_a_large_file_is_written_in_parts_and_read_whole_or_in_pieces(store: S3Store, tmp_path: Path) -> None:
    source = large(tmp_path)
    assert store.create_file("deep/file", source)
    data = source.read_bytes()
    assert store.read("deep/file") == data
    with store.open("deep/file") as handle:
        handle.seek(-7, io.SEEK_END)
        assert handle.read() == data[-7:]
        handle.seek(6 << 20)
        assert handle.read(100) == data[6 << 20 : (6 << 20) + 100]
    assert store.names("") == ["deep/file"]
    assert not store.create_file("deep/file", large(tmp_path, 1))
    assert not store.create("deep/file", b"small")
    assert len(traces(store)) == 2
    assert store.delete("deep/file") == 2
    assert traces(store) == []


@pytest.mark.usefixtures("small_parts")
def test_of_many_large_files_one_wins_whole_and_no_other_leaves_a_trace(store: S3Store, tmp_path: Path) -> None:
    sources, barrier = [large(tmp_path, number) for number in range(6)], threading.Barrier(6)

    def create(number: int) -> bool:
        barrier.wait()
        return store.create_file("file", sources[number])

    with ThreadPoolExecutor(6) as pool:
        won = list(pool.map(create, range(6)))
    assert won.count(True) == 1
    assert store.read("file") == sources[won.index(True)].read_bytes()
    assert len(traces(store)) == 2


def test_a_file_grows_no_memory(store: S3Store, tmp_path: Path) -> None:
    """An object that is read in pieces is fetched in pieces."""
    store.create("file", bytes(8 << 20))
    fetched: list[str] = []
    get = store.bucket.get

    def counted(key: str, **parameters: str):
        fetched.append(parameters.get("Range", "all"))
        return get(key, **parameters)

    store.bucket.get = counted  # type: ignore[method-assign]
    with store.open("file") as handle:
        handle.seek(4 << 20)
        assert handle.read(10) == bytes(10)
    assert fetched == [f"bytes={4 << 20}-{(5 << 20) - 1}"]


def test_an_object_that_changes_while_it_is_read_is_not_mixed(store: S3Store) -> None:
    store.create("file", b"a" * (3 << 20))
    with store.open("file") as handle:
        assert handle.read(10) == b"a" * 10
        store.bucket.call("put_object", "", Key=f"{store.prefix}file", Body=b"b" * (3 << 20))
        with pytest.raises(IntegrityError, match="must not change while it is read"):
            handle.read()


def test_content_that_was_changed_in_the_bucket_is_refused(store: S3Store) -> None:
    store.create("file", b"content")
    head = store.bucket.call("head_object", "", Key=f"{store.prefix}file")
    store.bucket.call("put_object", "", Key=f"{store.prefix}file", Body=b"changed", Metadata=head["Metadata"])
    with pytest.raises(IntegrityError, match="of digest"):
        store.read("file")


def made(folder: Path) -> Path:
    folder.mkdir()
    for name in ("a", "b", "c"):
        (folder / name).write_bytes(name.encode() * 100)
    return folder


def test_a_copy_in_the_cache_that_was_changed_is_fetched_anew(store: S3Store, tmp_path: Path) -> None:
    digest = store.publish_folder(made(tmp_path / "made"), "models/one")
    kept = store.folder("models/one")
    (kept / "a").write_bytes(b"changed")
    (kept / "more").write_bytes(b"came")
    assert store.folder("models/one") == kept
    assert folder_digest(kept) == digest
    assert [path.name for path in kept.parent.iterdir()] == [kept.name]


@pytest.mark.parametrize("harm", ["changed", "gone"])
def test_a_published_file_that_was_harmed_in_the_bucket_is_refused(store: S3Store, tmp_path: Path, harm: str) -> None:
    digest = store.publish_folder(made(tmp_path / "made"), "models/one")
    key = f"{store.prefix}models/one/.files-{digest}/b"
    if harm == "changed":
        store.bucket.call("put_object", "", Key=key, Body=b"other")
    else:
        store.bucket.call("delete_object", "", Key=key)
    with pytest.raises(IntegrityError, match="models/one"):
        store.folder("models/one")
    assert not [path for path in store.cache.rglob("*") if path.is_file() and path.suffix != ".lock"]


def test_many_readers_of_one_folder_get_one_copy(store: S3Store, tmp_path: Path) -> None:
    digest = store.publish_folder(made(tmp_path / "made"), "models/one")
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: store.folder("models/one"), range(8)))
    assert [folder_digest(path) for path in found] == [digest]


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("all_of_it", [False, True])
def test_nothing_that_was_deleted_is_left_in_a_bucket_with_versions(
    versioned: S3Store, tmp_path: Path, all_of_it: bool
) -> None:
    store = versioned
    store.create("t/kept-beside", b"kept")
    for value in ("one", "two", "three"):
        store.swap("t/x/ref", store.pointer("t/x/ref"), value)
    store.create("t/x/object", b"1")
    store.bucket.call("delete_object", "", Key=f"{store.prefix}t/x/object")
    store.create("t/x/object", b"2")
    store.create_file("t/x/large", large(tmp_path))
    store.publish_folder(made(tmp_path / "made"), "t/x/folder")
    store.folder("t/x/folder")
    for name in ("object", ".body-large-abandoned"):
        key = f"{store.prefix}t/x/{name}"
        upload = store.bucket.call("create_multipart_upload", "", Key=key)["UploadId"]
        store.bucket.call("upload_part", "", Key=key, UploadId=upload, PartNumber=1, Body=b"planted")
    assert len(traces(store)) > 15
    if all_of_it:
        assert store.delete_all("t/x") > 12
    else:
        for name in ("ref", "object", "large", "folder"):
            assert store.delete(f"t/x/{name}") > 0
            assert not store.exists(f"t/x/{name}")
    assert traces(store) == ["t/kept-beside"]


def test_a_bucket_with_versions_keeps_the_promises_too(versioned: S3Store) -> None:
    assert all(finding.kept for finding in versioned.probe())
    assert traces(versioned) == []


def test_more_objects_than_one_page_are_listed_and_deleted(store: S3Store) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: store.create(f"many/{number:04}", b""), range(1010)))
    assert store.names("") == [f"many/{number:04}" for number in range(1010)]
    assert len(store.children("many")) == 1010
    assert store.delete_all("many") == 1010
    assert traces(store) == []


def test_a_place_without_a_bucket_is_refused_and_one_without_a_prefix_is_not() -> None:
    assert S3Store(f"s3://{BUCKET}").prefix == ""
    assert S3Store(f"s3://{BUCKET}/a/b/").prefix == "a/b/"
