"""The store: whole or absent, one winner, and nothing outside its root."""

import multiprocessing
import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ratchet.errors import ConflictError, IntegrityError
from ratchet.store import Store, folder_digest

RACERS = 16


def _create(root: str, number: int, start, wins) -> None:
    store = Store(root)
    start.wait()
    for turn in range(20):
        if store.create(f"objects/{turn}", f"{number}".encode()):
            wins.put((turn, number))


def _swap(root: str, number: int, start, wins) -> None:
    store = Store(root)
    start.wait()
    for turn in range(20):
        try:
            store.swap(f"refs/{turn}", None, f"{number}")
        except ConflictError:
            continue
        wins.put((turn, number))


@pytest.mark.parametrize(("act", "folder"), [(_create, "objects"), (_swap, "refs")])
def test_of_many_processes_one_wins_and_its_content_stays(tmp_path: Path, act, folder: str) -> None:
    context = multiprocessing.get_context("fork")
    start, wins = context.Event(), context.Queue()
    racers = [context.Process(target=act, args=(str(tmp_path), number, start, wins)) for number in range(RACERS)]
    for racer in racers:
        racer.start()
    start.set()
    won = dict(wins.get(timeout=60) for _ in range(20))
    for racer in racers:
        racer.join(60)
        assert racer.exitcode == 0
    assert wins.empty()
    store = Store(tmp_path)
    assert {turn: int(store.read(f"{folder}/{turn}")) for turn in range(20)} == won
    assert store.names("") == sorted(f"{folder}/{turn}" for turn in range(20))


def test_of_many_threads_one_wins(tmp_path: Path) -> None:
    store, barrier = Store(tmp_path), threading.Barrier(RACERS)

    def create(number: int) -> bool:
        barrier.wait()
        return store.create("object", f"{number}".encode())

    with ThreadPoolExecutor(RACERS) as pool:
        won = list(pool.map(create, range(RACERS)))
    assert sum(won) == 1
    assert store.read("object") == f"{won.index(True)}".encode()


def test_a_counter_by_compare_and_swap_loses_no_step(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.swap("count", None, "0")

    def step(number: int) -> None:
        while True:
            seen = store.pointer("count")
            try:
                return store.swap("count", seen, str(int(seen or 0) + 1))
            except ConflictError:
                continue

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(step, range(40)))
    assert store.pointer("count") == "40"


def test_a_swap_from_what_no_longer_is_names_both_values(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.swap("ref", None, "a")
    with pytest.raises(ConflictError, match=r"ref is 'a'.*expected to be 'b'"):
        store.swap("ref", "b", "c")
    assert store.pointer("ref") == "a"
    assert store.pointer("never") is None


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/etc/passwd", "a/b/../../../x"])
@pytest.mark.parametrize("act", ["read", "exists", "pointer", "create", "swap", "publish"])
def test_no_name_leaves_the_root(tmp_path: Path, name: str, act: str) -> None:
    store = Store(tmp_path / "root")
    (tmp_path / "x").write_text("outside")
    acts = {
        "read": lambda: store.read(name),
        "exists": lambda: store.exists(name),
        "pointer": lambda: store.pointer(name),
        "create": lambda: store.create(name, b"in"),
        "swap": lambda: store.swap(name, None, "in"),
        "publish": lambda: store.publish_folder(tmp_path, name),
    }
    with pytest.raises(IntegrityError, match="under the store's root"):
        acts[act]()
    assert (tmp_path / "x").read_text() == "outside"


def test_a_link_inside_the_root_does_not_lead_outside(tmp_path: Path) -> None:
    store = Store(tmp_path / "root")
    (tmp_path / "outside").mkdir()
    store.root.mkdir()
    (store.root / "door").symlink_to(tmp_path / "outside")
    with pytest.raises(IntegrityError):
        store.create("door/x", b"in")


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(IntegrityError, match="nowhere"):
        Store(tmp_path).read("nowhere")


def test_content_is_written_once(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert store.create_same("a/b", b"1")
    assert not store.create_same("a/b", b"1")
    with pytest.raises(ConflictError, match="a/b"):
        store.create_same("a/b", b"2")
    assert store.read("a/b") == b"1"


class Crash(BaseException):
    """Not an Exception, as the end of a process is not."""


@pytest.mark.parametrize("moment", ["link", "replace", "rename"])
def test_a_crash_before_the_last_step_leaves_nothing_visible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    store, made = Store(tmp_path / "root"), tmp_path / "made"
    made.mkdir()
    (made / "f").write_text("1")
    act = {
        "link": lambda: store.create("a/b", b"1"),
        "replace": lambda: store.swap("a/b", None, "1"),
        "rename": lambda: store.publish_folder(made, "a/b"),
    }[moment]

    def crash(*_: object) -> None:
        raise Crash

    with monkeypatch.context() as broken:
        broken.setattr(os, moment, crash)
        # A killed process cleans nothing up.
        broken.setattr(os, "unlink", lambda path: None)
        with pytest.raises(Crash):
            act()
    assert not store.exists("a/b")
    assert store.names("") == store.names("a") == []
    act()
    assert store.exists("a/b")


def test_a_folder_is_published_whole_and_once(tmp_path: Path) -> None:
    store, made = Store(tmp_path / "root"), tmp_path / "made"
    (made / "deep").mkdir(parents=True)
    (made / "a").write_bytes(b"1")
    (made / "deep" / "b").write_bytes(b"2")
    first = store.publish_folder(made, "folder")
    assert first == folder_digest(made) == store.publish_folder(made, "folder")
    (made / "a").write_bytes(b"other")
    assert store.publish_folder(made, "folder") == first
    assert store.read("folder/a") == b"1"
    assert store.names("") == ["folder/a", "folder/deep/b"]


def test_publishers_that_race_publish_one_folder(tmp_path: Path) -> None:
    store, barrier = Store(tmp_path / "root"), threading.Barrier(8)
    for number in range(8):
        (tmp_path / f"made{number}").mkdir()
        for name in ("a", "b"):
            (tmp_path / f"made{number}" / name).write_text(f"{number}")

    def publish(number: int) -> str:
        barrier.wait()
        return store.publish_folder(tmp_path / f"made{number}", "folder")

    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(publish, range(8)))
    assert len(found) == 1
    assert store.read("folder/a") == store.read("folder/b")
    assert [path.name for path in store.root.iterdir()] == ["folder"]


def test_the_digest_of_a_folder_moves_with_names_and_contents(tmp_path: Path) -> None:
    def folder(name: str, **files: str) -> str:
        (tmp_path / name).mkdir()
        for path, text in files.items():
            (tmp_path / name / path).write_text(text)
        return folder_digest(tmp_path / name)

    assert len({folder("a", x="1"), folder("b", y="1"), folder("c", x="2"), folder("d", x="1", y=""), folder("e")}) == 5
    shutil.copytree(tmp_path / "a", tmp_path / "copy")
    assert folder_digest(tmp_path / "copy") == folder_digest(tmp_path / "a")


def test_a_lock_is_held_by_one(tmp_path: Path) -> None:
    store, inside, most = Store(tmp_path), 0, 0

    def enter(_: int) -> None:
        nonlocal inside, most
        with store.locked("name"):
            inside += 1
            most = max(most, inside)
            inside -= 1

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(enter, range(200)))
    assert most == 1
