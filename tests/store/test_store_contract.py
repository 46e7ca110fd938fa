"""What every store promises, on a folder and on S3 alike: whole or absent, one winner, nothing outside its root."""

from __future__ import annotations

import io
import multiprocessing
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ratchet.errors import ConflictError, IntegrityError
from ratchet.store import Store, folder_digest

RACERS = 16
TURNS = 5


def _create(place: str, number: int, start, wins) -> None:
    store = Store(place)
    start.wait()
    for turn in range(TURNS):
        if store.create(f"objects/{turn}", f"{number}".encode()):
            wins.put((turn, number))


def _swap(place: str, number: int, start, wins) -> None:
    store = Store(place)
    start.wait()
    for turn in range(TURNS):
        try:
            store.swap(f"refs/{turn}", None, f"{number}")
        except ConflictError:
            continue
        wins.put((turn, number))


@pytest.mark.parametrize(("act", "folder"), [(_create, "objects"), (_swap, "refs")])
def test_of_many_processes_one_wins_and_its_content_stays(store: Store, act, folder: str) -> None:
    context = multiprocessing.get_context("fork")
    start, wins = context.Event(), context.Queue()
    racers = [context.Process(target=act, args=(store.place, number, start, wins)) for number in range(RACERS)]
    for racer in racers:
        racer.start()
    start.set()
    won = dict(wins.get(timeout=120) for _ in range(TURNS))
    for racer in racers:
        racer.join(120)
        assert racer.exitcode == 0
    assert wins.empty()
    assert {turn: int(store.read(f"{folder}/{turn}")) for turn in range(TURNS)} == won
    assert store.names("") == [f"{folder}/{turn}" for turn in range(TURNS)]


def race(act: Callable[[int], object]) -> list[object]:
    """What each of many threads gets that begin at once."""
    barrier = threading.Barrier(RACERS)

    def begin(number: int) -> object:
        barrier.wait()
        return act(number)

    with ThreadPoolExecutor(RACERS) as pool:
        return list(pool.map(begin, range(RACERS)))


def test_of_many_threads_one_wins(store: Store) -> None:
    won = race(lambda number: store.create("object", f"{number}".encode()))
    assert won.count(True) == 1
    assert store.read("object") == f"{won.index(True)}".encode()


def test_of_many_files_one_wins_whole(store: Store, tmp_path: Path) -> None:
    for number in range(RACERS):
        (tmp_path / f"{number}").write_bytes(bytes([number]) * 100_000)
    won = race(lambda number: store.create_file("object", tmp_path / f"{number}"))
    assert won.count(True) == 1
    assert store.read("object") == (tmp_path / f"{won.index(True)}").read_bytes()


def test_of_many_swaps_from_one_value_one_wins(store: Store) -> None:
    store.swap("ref", None, "start")

    def swap(number: int) -> bool:
        try:
            store.swap("ref", "start", f"{number}")
        except ConflictError:
            return False
        return True

    won = race(swap)
    assert won.count(True) == 1
    assert store.pointer("ref") == f"{won.index(True)}"


def test_a_counter_by_compare_and_swap_loses_no_step(store: Store) -> None:
    store.swap("count", None, "0")

    def step(number: int) -> None:
        while True:
            seen = store.pointer("count")
            try:
                return store.swap("count", seen, str(int(seen or 0) + 1))
            except ConflictError:
                continue

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(step, range(20)))
    assert store.pointer("count") == "20"


def test_what_goes_by_a_pointer_is_done_anew_where_it_moved_and_fails_where_it_did_not(store: Store) -> None:
    store.swap("ref", None, "0")
    seen: list[str | None] = []

    def act(value: str | None) -> str:
        seen.append(value)
        if value == "0":
            store.swap("ref", "0", "1")
            raise IntegrityError("x", rule="it was deleted meanwhile", remedy="")
        if value == "1":
            store.swap("ref", "1", "2")
            store.swap("ref", "1", "3")
        return f"done from {value}"

    assert store.settled("ref", act, "it was tried") == "done from 2"
    assert seen == ["0", "1", "2"]

    def broken(value: str | None) -> None:
        raise IntegrityError("y", rule="it is damaged", remedy="restore it")

    with pytest.raises(IntegrityError, match="y: it is damaged"):
        store.settled("ref", broken, "it was tried")


def test_a_swap_from_what_no_longer_is_names_both_values(store: Store) -> None:
    store.swap("ref", None, "a")
    with pytest.raises(ConflictError, match=r"ref is 'a'.*expected to be 'b'"):
        store.swap("ref", "b", "c")
    with pytest.raises(ConflictError, match=r"ref is 'a'.*expected to be None"):
        store.swap("ref", None, "c")
    assert store.pointer("ref") == "a"
    assert store.pointer("never") is None
    with pytest.raises(ConflictError):
        store.swap("never", "a", "b")
    assert store.pointer("never") is None


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/etc/passwd", "a/b/../../../x", "a\0b"])
def test_no_name_leaves_the_root(store: Store, tmp_path: Path, name: str) -> None:
    (tmp_path / "x").write_text("outside")
    acts = (
        store.read, store.open, store.exists, store.pointer, store.folder, store.names, store.children, store.written,
        store.delete, store.delete_all,
        lambda name: store.create(name, b"in"), lambda name: store.create_file(name, tmp_path / "x"),
        lambda name: store.swap(name, None, "in"), lambda name: store.publish_folder(tmp_path, name),
    )  # fmt: skip
    for act in acts:
        with pytest.raises(IntegrityError, match="under the store's root"):
            act(name)
    assert (tmp_path / "x").read_text() == "outside"


def test_what_is_missing_is_named(store: Store) -> None:
    for act in (store.read, store.open, store.folder):
        with pytest.raises(IntegrityError, match="nowhere"):
            act("nowhere")
    assert not store.exists("nowhere")
    assert store.written("nowhere") is None
    assert store.names("nowhere") == store.children("nowhere") == []


def test_content_is_written_once(store: Store) -> None:
    assert store.create_same("a/b", b"1")
    assert not store.create_same("a/b", b"1")
    with pytest.raises(ConflictError, match="a/b"):
        store.create_same("a/b", b"2")
    assert store.read("a/b") == b"1"
    assert store.exists("a/b")


@pytest.mark.parametrize("name", ["a b/ü/+%41", "x=1&y=2/#?", "long/" + "n" * 200])
def test_names_may_hold_what_file_names_hold(store: Store, name: str) -> None:
    assert store.create(name, b"")
    assert store.read(name) == b""
    assert store.names("") == [name]
    assert store.delete(name) == 1


def test_an_object_is_read_in_pieces_as_parquet_wants_it(store: Store) -> None:
    table = pa.table({"number": list(range(50_000))})
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=10_000)
    store.create("table.parquet", sink.getvalue())
    with store.open("table.parquet") as handle:
        handle.seek(-4, io.SEEK_END)
        assert handle.read() == b"PAR1"
        handle.seek(0)
        assert handle.read(4) == b"PAR1"
        assert pq.ParquetFile(handle).read_row_group(3).column("number").to_pylist() == list(range(30_000, 40_000))


def test_names_and_children_show_what_is_there(store: Store) -> None:
    for name in ("a/1", "a/b/2", "a/b/3", "ab/4", "5"):
        store.create(name, b"x")
    assert store.names("") == ["5", "a/1", "a/b/2", "a/b/3", "ab/4"]
    assert store.names("a") == ["a/1", "a/b/2", "a/b/3"]
    assert store.children("") == ["5", "a", "ab"]
    assert store.children("a") == ["1", "b"]


def test_an_object_tells_when_it_was_written(store: Store) -> None:
    store.create("a", b"1")
    at = store.written("a")
    assert at is not None
    assert abs(datetime.now(UTC) - at) < timedelta(seconds=30)


def made(folder: Path, content: bytes = b"1") -> Path:
    """A folder with two files, one of them deeper, and a hidden one."""
    (folder / "deep").mkdir(parents=True)
    (folder / "a").write_bytes(content)
    (folder / "deep" / "b").write_bytes(content)
    (folder / ".hidden").write_bytes(b"not part of it")
    return folder


def test_a_folder_is_published_whole_and_once(store: Store, tmp_path: Path) -> None:
    local = made(tmp_path / "made")
    first = store.publish_folder(local, "models/one")
    assert first == folder_digest(local) == store.publish_folder(local, "models/one")
    assert folder_digest(store.folder("models/one")) == first
    (local / "a").write_bytes(b"other")
    assert store.publish_folder(local, "models/one") == first
    assert (store.folder("models/one") / "a").read_bytes() == b"1"
    assert store.exists("models/one")
    assert [name for name in store.names("") if ".hidden" not in name] == ["models/one/a", "models/one/deep/b"]
    assert store.children("models") == ["one"]
    assert store.children("models/one") == ["a", "deep"]
    assert store.written("models/one") is not None


def test_publishers_that_race_publish_one_folder(store: Store, tmp_path: Path) -> None:
    for number in range(RACERS):
        made(tmp_path / f"made{number}", f"{number}".encode())
    found = set(race(lambda number: store.publish_folder(tmp_path / f"made{number}", "folder")))
    assert len(found) == 1
    kept = store.folder("folder")
    assert (kept / "a").read_bytes() == (kept / "deep" / "b").read_bytes()
    assert folder_digest(kept) in found


def test_what_is_deleted_is_gone_and_may_be_made_again(store: Store, tmp_path: Path) -> None:
    store.create("a", b"1")
    store.create("ab", b"kept")
    store.create("a-b", b"kept")
    store.swap("ref", None, "x")
    store.publish_folder(made(tmp_path / "made"), "folder")
    kept = store.folder("folder")
    for name in ("a", "ref", "folder"):
        assert store.delete(name) >= 1
        assert store.delete(name) == 0
        assert not store.exists(name)
    assert not kept.exists()
    assert store.names("") == ["a-b", "ab"]
    assert store.create("a", b"2")
    assert store.read("a") == b"2"
    store.swap("ref", None, "y")


def test_all_under_a_prefix_is_deleted_and_nothing_beside_it(store: Store, tmp_path: Path) -> None:
    for name in ("t/raw/1", "t/raw/2", "t/refs/r", "tt/1", "u"):
        store.create(name, b"1")
    store.publish_folder(made(tmp_path / "made"), "t/folder")
    assert store.delete_all("t") >= 5
    assert store.delete_all("t") == 0
    assert store.names("") == ["tt/1", "u"]
    assert store.delete_all("") == 2
    assert store.names("") == []


def test_a_store_goes_into_another_process(store: Store) -> None:
    store.create("a", b"1")
    assert pickle.loads(pickle.dumps(store)).read("a") == b"1"


def test_a_lock_is_held_by_one(store: Store) -> None:
    inside, most = 0, 0

    def enter(_: int) -> None:
        nonlocal inside, most
        with store.locked("some/name"):
            inside += 1
            most = max(most, inside)
            inside -= 1

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(enter, range(200)))
    assert most == 1
