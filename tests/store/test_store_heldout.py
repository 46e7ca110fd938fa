"""The held-out part of a home's store: sealed for who has the key, refused by name for training; locally and on S3."""

from __future__ import annotations

import pickle
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from ratchet.errors import HeldoutError, IntegrityError, StoreError
from ratchet.store import Store, open_store
from ratchet.store.heldout import KEY

NAME = "heldout/experiments/a/tasks.jsonl"
SECRET = b'{"prompt": "the task that decides"}'


@pytest.fixture
def home(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with its store on each backend."""
    monkeypatch.setenv("RATCHET_STORE", place)
    return tmp_path / "home"


@pytest.fixture
def sealed(home: Path) -> Store:
    """The home's store with one held-out object and one open one."""
    store = open_store(home)
    store.create(NAME, SECRET)
    store.create("experiments/a/lock.json", b"{}")
    return store


def test_a_held_out_object_is_read_back_and_says_nothing_to_who_reads_past_the_store(
    sealed: Store, place: str, home: Path
) -> None:
    assert sealed.read(NAME) == SECRET
    assert sealed.open(NAME).read() == SECRET
    assert open_store(home).read(NAME) == SECRET
    raw = Store(place).read(NAME)
    assert b"task that decides" not in raw
    assert b"prompt" not in raw
    assert Store(place).read("experiments/a/lock.json") == b"{}"


def test_it_is_written_once_like_any_other(sealed: Store, tmp_path: Path) -> None:
    assert not sealed.create(NAME, b"other")
    assert not sealed.create_same(NAME, SECRET)
    file = tmp_path / "file"
    file.write_bytes(SECRET)
    assert not sealed.create_file(NAME, file)
    assert sealed.create_file(f"{NAME}.copy", file)
    assert sealed.read(f"{NAME}.copy") == SECRET


@pytest.mark.parametrize(
    "ask",
    [
        lambda store: store.read(NAME),
        lambda store: store.read(f"./{NAME}"),
        lambda store: store.open(NAME),
        lambda store: store.exists(NAME),
        lambda store: store.names("heldout"),
        lambda store: store.children("heldout/experiments"),
        lambda store: store.written(NAME),
        lambda store: store.pointer(NAME),
        lambda store: store.swap(NAME, None, "x"),
        lambda store: store.folder("heldout/experiments"),
        lambda store: store.create("heldout/experiments/a/other", b"x"),
        lambda store: store.publish_folder(Path(), "heldout/folder"),
        lambda store: store.delete(NAME),
        lambda store: store.delete_all("heldout"),
        lambda store: store.delete_all(""),
        lambda store: pickle.loads(pickle.dumps(store)).read(NAME),
    ],
)
def test_a_store_for_training_refuses_it_by_name_whatever_is_asked(
    sealed: Store, home: Path, ask: Callable[[Store], object]
) -> None:
    training = open_store(home, training=True)
    assert training.read("experiments/a/lock.json") == b"{}"
    with pytest.raises(HeldoutError, match=r"heldout.*opened for training"):
        ask(training)
    assert sealed.read(NAME) == SECRET


def test_another_process_with_the_key_reads_it(sealed: Store) -> None:
    assert pickle.loads(pickle.dumps(sealed)).read(NAME) == SECRET


def test_an_object_that_was_changed_or_moved_to_another_name_is_not_opened(sealed: Store, place: str) -> None:
    raw, other = Store(place), "heldout/experiments/b/tasks.jsonl"
    data = raw.read(NAME)
    raw.create(other, data)
    with pytest.raises(IntegrityError, match=f"{other}.*sealed under this name"):
        sealed.read(other)
    for harmed in (data[:-1], data[:-1] + bytes([data[-1] ^ 1]), b"", SECRET):
        raw.delete(NAME)
        raw.create(NAME, harmed)
        with pytest.raises(IntegrityError, match=NAME):
            sealed.read(NAME)


def test_the_key_of_another_home_opens_nothing(sealed: Store, tmp_path: Path, home: Path) -> None:
    other = open_store(tmp_path / "other")
    other.create("heldout/own", b"x")
    with pytest.raises(IntegrityError, match=r"sealed with another key than .*other"):
        other.read(NAME)
    (home / KEY).unlink()
    with pytest.raises(IntegrityError, match=r"heldout\.key.*restore"):
        open_store(home).read(NAME)


def test_the_key_is_made_once_and_for_its_owner_alone(sealed: Store, home: Path) -> None:
    key = (home / KEY).read_text()
    assert stat.S_IMODE((home / KEY).stat().st_mode) == 0o600
    open_store(home).create("heldout/more", b"x")
    assert (home / KEY).read_text() == key
    (home / KEY).write_text(key[:-2])
    with pytest.raises(IntegrityError, match="64 hex digits"):
        open_store(home).read(NAME)


def test_nothing_that_moves_is_kept_there(sealed: Store, tmp_path: Path) -> None:
    for ask in (
        lambda: sealed.swap("heldout/pointer", None, "x"),
        lambda: sealed.pointer("heldout/pointer"),
        lambda: sealed.publish_folder(tmp_path, "heldout/folder"),
    ):
        with pytest.raises(StoreError, match="written once"):
            ask()
