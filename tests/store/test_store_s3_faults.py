"""What breaks between the store and S3, broken on purpose in front of a real server: clear errors, bounded retries,
nothing lost, nothing half-visible."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from s3_proxy import Proxy, Seen, running_proxy
from seaweed_server import BUCKET, READER_KEY, READER_SECRET, Seaweed

from ratchet.errors import ConflictError, IntegrityError, StoreError
from ratchet.store import Store, folder_digest
from ratchet.store.bucket import Patience
from ratchet.store.s3 import S3Store

QUICK = Patience(connect_s=1.0, answer_s=1.0, attempts=3, pause_s=0.02, longest_pause_s=0.1, whole_s=10.0)
DATA = os.urandom(50_000)


@pytest.fixture
def direct(s3_place: str, tmp_path: Path) -> S3Store:
    """The store as another process sees it, past the proxy: it keeps the endpoint that it was first used with."""
    store = S3Store(s3_place, cache=tmp_path / "other")
    assert store.names("") == []
    return store


@pytest.fixture
def proxy(seaweed: Seaweed) -> Iterator[Proxy]:
    """A proxy in front of the server; harmless until told."""
    with running_proxy(seaweed.url) as running:
        yield running


@pytest.fixture
def store(direct: S3Store, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> S3Store:
    """A store behind the proxy, proven fit while that was harmless."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.url)
    store = S3Store(direct.place, cache=tmp_path / "cache", patience=QUICK)
    store.create("there", b"before")
    proxy.seen.clear()
    return store


def writes(seen: Seen) -> bool:
    """Whether a request is a write of an object."""
    return seen.method == "PUT"


def gets(seen: Seen) -> bool:
    """Whether a request reads an object."""
    return seen.method == "GET" and "list-type" not in seen.path


@pytest.mark.parametrize("harm", ["busy", "drop", "cut request", "lose answer", "keep half"])
def test_a_create_that_is_disturbed_once_wins_once(store: S3Store, direct: S3Store, proxy: Proxy, harm) -> None:
    proxy.once(harm, writes)
    assert store.create("new", DATA)
    assert direct.read("new") == DATA
    assert not store.create("new", b"other")


@pytest.mark.parametrize("harm", ["busy", "drop", "cut request", "lose answer", "keep half"])
def test_a_swap_that_is_disturbed_once_moves_the_pointer_once(
    store: S3Store, direct: S3Store, proxy: Proxy, harm
) -> None:
    store.swap("ref", None, "one" * 100)
    proxy.once(harm, writes)
    store.swap("ref", "one" * 100, "two" * 100)
    assert direct.pointer("ref") == "two" * 100


def test_a_create_whose_answer_got_lost_does_not_win_over_another(
    store: S3Store, direct: S3Store, proxy: Proxy
) -> None:
    """The rival writes the very same bytes: only the number of the write tells the two apart."""

    def rival(seen: Seen):
        if not writes(seen) or len([one for one in proxy.seen if writes(one)]) > 1:
            return "none"
        assert direct.create("new", DATA)
        return "drop"

    proxy.harm = rival
    assert not store.create("new", DATA)


def test_a_swap_whose_answer_got_lost_does_not_undo_another(store: S3Store, direct: S3Store, proxy: Proxy) -> None:
    store.swap("ref", None, "one")

    def rival(seen: Seen):
        if not writes(seen) or len([one for one in proxy.seen if writes(one)]) > 2:
            return "none"
        direct.swap("ref", "one", "rival")
        return "drop"

    proxy.seen.clear()
    proxy.harm = lambda seen: rival(seen) if direct.pointer("ref") == "one" else "none"
    with pytest.raises(ConflictError, match="rival"):
        store.swap("ref", "one", "two")
    assert direct.pointer("ref") == "rival"


@pytest.mark.parametrize("harm", ["busy", "drop", "cut answer"])
def test_a_read_that_is_disturbed_once_is_read_again(store: S3Store, direct: S3Store, proxy: Proxy, harm) -> None:
    direct.create("data", DATA)
    proxy.once(harm, gets)
    assert store.read("data") == DATA
    proxy.once(harm, gets)
    with store.open("data") as handle:
        assert handle.read() == DATA


@pytest.mark.parametrize("harm", ["drop", "cut request"])
def test_an_upload_that_is_always_cut_is_not_seen_and_ends_in_a_clear_error(
    store: S3Store, direct: S3Store, proxy: Proxy, tmp_path: Path, harm
) -> None:
    (tmp_path / "file").write_bytes(DATA)
    proxy.always(harm, writes)
    began = time.monotonic()
    with pytest.raises(
        StoreError, match=r"must carry out put_object, and did not in 3 attempts.*it goes on where it stopped"
    ) as told:
        store.create_file("file", tmp_path / "file")
    assert time.monotonic() - began < QUICK.whole_s
    assert f"s3://{BUCKET}/" in str(told.value)
    assert "secret" not in str(told.value)
    assert not direct.exists("file")
    proxy.always("none")
    assert store.create_file("file", tmp_path / "file")
    assert direct.read("file") == DATA


def test_what_a_server_kept_only_half_of_is_never_taken_for_whole(
    store: S3Store, direct: S3Store, proxy: Proxy
) -> None:
    proxy.always("keep half", writes)
    with pytest.raises(StoreError, match="keep all of the 50000 bytes"):
        store.create("new", DATA)
    for act in (direct.read, direct.open):
        with pytest.raises(IntegrityError, match="written with 50000 bytes"):
            act("new")
    proxy.always("none")
    assert store.create("new", DATA), "it is put right by whoever writes it next"
    assert direct.read("new") == DATA


def test_a_forbidden_write_says_what_is_missing_and_is_not_tried_again(
    store: S3Store, direct: S3Store, proxy: Proxy
) -> None:
    proxy.always("deny", writes)
    with pytest.raises(StoreError, match=r"403 AccessDenied.*put_object must be allowed.*AWS_ACCESS_KEY_ID"):
        store.create("new", DATA)
    assert len([seen for seen in proxy.seen if writes(seen)]) == 1
    assert not direct.exists("new")


def test_who_may_only_read_reads_and_is_refused_by_the_server(
    s3_place: str, direct: S3Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    direct.create("new", DATA)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", READER_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", READER_SECRET)
    reader = S3Store(s3_place, cache=tmp_path / "cache", patience=QUICK)
    assert reader.read("new") == DATA
    assert reader.names("") == ["new"]
    with pytest.raises(StoreError, match="403"):
        reader.create("other", b"1")


def test_a_wrong_secret_is_told_from_a_missing_bucket_and_from_no_credentials(
    s3_place: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    nowhere = S3Store("s3://no-such-bucket/x", cache=tmp_path, patience=QUICK)
    with pytest.raises(StoreError, match=r"NoSuchBucket.*make the bucket no-such-bucket"):
        nowhere.read("a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(StoreError, match=r"403.*AWS_SECRET_ACCESS_KEY"):
        S3Store(s3_place, cache=tmp_path, patience=QUICK).read("a")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    with pytest.raises(StoreError, match="set AWS_ACCESS_KEY_ID"):
        S3Store(s3_place, cache=tmp_path, patience=QUICK).read("a")


def test_a_slow_server_is_waited_for_within_bounds(store: S3Store, proxy: Proxy) -> None:
    proxy.delay_s = 1.5
    proxy.once("wait", gets)
    assert store.read("there") == b"before"
    proxy.always("wait", gets)
    proxy.seen.clear()
    began = time.monotonic()
    with pytest.raises(StoreError, match=r"ReadTimeoutError.*did not in 3 attempts over \d"):
        store.read("there")
    assert 3.0 <= time.monotonic() - began < 8.0
    assert len(proxy.seen) == 3


def test_a_slow_write_that_was_done_after_all_is_found_to_be_ones_own(
    store: S3Store, direct: S3Store, proxy: Proxy
) -> None:
    proxy.delay_s = 1.2
    proxy.once("wait", writes)
    assert store.create("new", DATA)
    assert direct.read("new") == DATA


def test_a_server_that_is_not_there_is_named(tmp_path: Path, s3_place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    with pytest.raises(StoreError, match=r"http://127.0.0.1:9 must carry out"):
        S3Store(s3_place, cache=tmp_path, patience=QUICK).create("a", b"1")


@pytest.mark.parametrize("ignored", ["if-none-match", "if-match"])
def test_an_endpoint_that_ignores_conditional_writes_is_refused_before_anything_is_written(
    s3_place: str, proxy: Proxy, direct: S3Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ignored: str
) -> None:
    proxy.always("strip", lambda seen: any(name.lower() == ignored for name in seen.headers))
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.url)
    store = S3Store(s3_place, cache=tmp_path / "cache", patience=QUICK)
    for act in (lambda: store.create("new", b"1"), lambda: store.swap("ref", None, "1")):
        with pytest.raises(StoreError, match=r"not written over.*use an endpoint that honours conditional writes"):
            act()
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "a").write_bytes(b"1")
    with pytest.raises(StoreError, match="honours conditional writes"):
        store.publish_folder(tmp_path / "made", "folder")
    listed = direct.bucket.call("list_object_versions", "", Prefix=direct.prefix)
    assert not listed.get("Versions"), "neither data nor leftovers of the probe"


def test_a_disturbed_probe_does_not_refuse_a_fit_endpoint(
    s3_place: str, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy.once("lose answer", writes)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.url)
    assert S3Store(s3_place, cache=tmp_path, patience=QUICK).create("new", b"1")


@pytest.mark.parametrize("harm", ["drop", "deny"])
def test_a_folder_is_not_there_until_its_last_file_is(
    store: S3Store, direct: S3Store, proxy: Proxy, tmp_path: Path, harm
) -> None:
    for number in range(5):
        (tmp_path / "made").mkdir(exist_ok=True)
        (tmp_path / "made" / f"{number}").write_bytes(DATA)
    proxy.always(harm, lambda seen: writes(seen) and seen.path.endswith("/3"))
    with pytest.raises(StoreError):
        store.publish_folder(tmp_path / "made", "folder")
    assert not direct.exists("folder")
    assert direct.names("") == ["there"]
    proxy.always("none")
    assert store.publish_folder(tmp_path / "made", "folder") == folder_digest(tmp_path / "made")
    assert folder_digest(direct.folder("folder")) == folder_digest(tmp_path / "made")


def test_a_store_behind_the_usual_constructor_waits_longer_than_a_restart_takes(s3_place: str) -> None:
    store = Store(s3_place)
    assert isinstance(store, S3Store)
    pauses = [
        min(store.patience.pause_s * 2**n, store.patience.longest_pause_s) for n in range(store.patience.attempts - 1)
    ]
    assert 0.5 * sum(pauses) > 15.0
