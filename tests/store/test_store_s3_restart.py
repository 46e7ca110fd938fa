"""The server, or the publisher, is killed in the middle of a publication: nothing lost, nothing half-visible."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from seaweed_server import Seaweed, running_seaweed

from ratchet.errors import StoreError
from ratchet.store import folder_digest
from ratchet.store.bucket import Patience
from ratchet.store.s3 import S3Store

HASTY = Patience(connect_s=1.0, answer_s=2.0, attempts=2, pause_s=0.05, longest_pause_s=0.1, whole_s=5.0)
FILES = 12


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Seaweed]:
    """A server of this test's own, which it may kill."""
    with running_seaweed(tmp_path / "seaweed") as running:
        for name, value in running.environment().items():
            monkeypatch.setenv(name, value)
        yield running


@pytest.fixture
def place(server: Seaweed) -> str:
    """Where the store is."""
    return server.fresh_place()


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A folder that takes a while to publish."""
    folder = tmp_path / "made"
    folder.mkdir()
    for number in range(FILES):
        (folder / f"{number}").write_bytes(os.urandom(200_000))
    return folder


def publish_all(store: S3Store, made: Path, done: list[str]) -> None:
    """A publication as the loop does it: a folder, what names it, and a pointer that counts, again and again."""
    for number in range(4):
        digest = store.publish_folder(made, f"folder{number}")
        store.create_same(f"manifest{number}", digest.encode())
        store.swap("ref", store.pointer("ref"), f"{number}")
        done.append(f"folder{number}")


def whole(store: S3Store, made: Path) -> None:
    """Everything that is visible is whole, and what names something names something that is there."""
    for number in range(4):
        if store.exists(f"folder{number}"):
            assert folder_digest(store.folder(f"folder{number}")) == folder_digest(made)
        else:
            assert not store.exists(f"manifest{number}")
            assert store.pointer("ref") in (None, *(f"{before}" for before in range(number)))


def test_a_publication_outlasts_a_server_that_is_killed_and_started_again(
    server: Seaweed, place: str, made: Path, tmp_path: Path
) -> None:
    store, done = S3Store(place, cache=tmp_path / "cache"), []
    store.create("before", b"kept")
    rng = random.Random(seed := random.randrange(10**6))
    print(f"seed {seed}")
    with ThreadPoolExecutor(1) as pool:
        publication = pool.submit(publish_all, store, made, done)
        for _ in range(2):
            time.sleep(rng.uniform(0.05, 0.6))
            server.kill()
            time.sleep(rng.uniform(0.0, 1.0))
            server.start()
        publication.result(timeout=120)
    assert len(done) == 4
    other = S3Store(place, cache=tmp_path / "other")
    whole(other, made)
    assert other.pointer("ref") == "3"
    assert other.read("before") == b"kept"


def test_a_publication_that_gave_up_is_completed_by_the_next(
    server: Seaweed, place: str, made: Path, tmp_path: Path
) -> None:
    store, done = S3Store(place, cache=tmp_path / "cache", patience=HASTY), []
    store.create("before", b"kept")
    killer = threading.Timer(0.3, server.kill)
    killer.start()
    with pytest.raises(StoreError, match="it goes on where it stopped"):
        publish_all(store, made, done)
    killer.join()
    server.start()
    whole(S3Store(place, cache=tmp_path / "other"), made)
    patient = S3Store(place, cache=tmp_path / "cache")
    publish_all(patient, made, [])
    whole(patient, made)
    assert patient.pointer("ref") == "3"


def _publish(place: str, cache: Path, made: Path) -> None:
    publish_all(S3Store(place, cache=cache), made, [])


@pytest.mark.parametrize("moment_s", [0.4, 0.8, 1.2])
def test_a_publisher_that_is_killed_leaves_nothing_half_visible(
    server: Seaweed, place: str, made: Path, tmp_path: Path, moment_s: float
) -> None:
    publisher = multiprocessing.get_context("fork").Process(target=_publish, args=(place, tmp_path / "cache", made))
    publisher.start()
    time.sleep(moment_s)
    assert publisher.pid is not None
    os.kill(publisher.pid, signal.SIGKILL)
    publisher.join()
    store = S3Store(place, cache=tmp_path / "other")
    whole(store, made)
    _publish(place, tmp_path / "cache", made)
    whole(store, made)
    assert store.pointer("ref") == "3"
