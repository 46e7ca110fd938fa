"""The spool: a store that is down, a crash at any moment and a second server lose no outcome and double none."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from serving_world import outcome

from ratchet.errors import StoreError
from ratchet.release.live import LiveOutcome, last_part, part_name, read_live
from ratchet.serving.outcomes import Spool
from ratchet.store import Store

ROOT = Path(__file__).resolve().parents[2]


def made(number: int) -> LiveOutcome:
    return outcome(f"t{number}", "production", "v", "c", number % 3 > 0)


def ids(store: Any) -> list[str]:
    return [one.live_id for one in read_live(store, "acme", "repair").outcomes]


class Flaky:
    """A store whose writes fail when told to: before anything is written, or after it is."""

    def __init__(self, store: Store) -> None:
        self.store, self.fails = store, ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def create(self, name: str, data: bytes) -> bool:
        down = StoreError("store", rule="it must answer", remedy="wait")
        if self.fails == "before":
            raise down
        done = self.store.create(name, data)
        if self.fails == "after":
            raise down
        return done


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def test_outcomes_come_in_the_order_in_which_they_were_kept(tmp_path: Path, store: Store) -> None:
    spool = Spool(tmp_path, store, "acme", "repair")
    for start in (0, 3):
        for number in range(start, start + 3):
            assert spool.add(made(number))
        assert spool.flush() == 3
    assert ids(store) == [f"t{number}" for number in range(6)]
    assert spool.backlog == 0
    assert spool.flush() == 0


@pytest.mark.parametrize("fails", ["before", "after"])
def test_a_store_that_is_down_loses_and_doubles_nothing(tmp_path: Path, store: Store, fails: str) -> None:
    flaky = Flaky(store)
    spool = Spool(tmp_path, flaky, "acme", "repair")  # type: ignore[arg-type]
    spool.add(made(0))
    flaky.fails = fails
    with pytest.raises(StoreError):
        spool.flush()
    spool.add(made(1))
    with pytest.raises(StoreError):
        spool.flush()
    assert spool.backlog == 2
    flaky.fails = ""
    assert spool.flush() == 2
    lines = b"".join(store.read(part_name("acme", "repair", number + 1)) for number in range(2)).splitlines()
    assert [LiveOutcome.model_validate_json(line).live_id for line in lines] == ["t0", "t1"]


def test_a_task_counts_once_for_a_version(tmp_path: Path, store: Store) -> None:
    spool = Spool(tmp_path, store, "acme", "repair")
    first = made(1)
    assert spool.add(first)
    assert not spool.add(first.model_copy(update={"accepted": False}))
    assert spool.find(first.key) == first
    assert spool.add(outcome("t1", "production", "another version", "c", True))
    assert spool.flush() == 2


def test_two_servers_fill_one_row_of_parts(tmp_path: Path, store: Store) -> None:
    spools = [Spool(tmp_path / str(number), store, "acme", "repair") for number in range(2)]
    for number in range(10):
        spools[number % 2].add(made(number))
        spools[number % 2].flush()
    assert ids(store) == [f"t{number}" for number in range(10)]
    assert last_part(store, "acme", "repair") == 10


def test_a_part_of_another_server_under_the_noted_number_moves_ours_on(tmp_path: Path, store: Store) -> None:
    flaky = Flaky(store)
    ours, theirs = Spool(tmp_path / "a", flaky, "acme", "repair"), Spool(tmp_path / "b", store, "acme", "repair")  # type: ignore[arg-type]
    ours.add(made(0))
    flaky.fails = "before"
    with pytest.raises(StoreError):
        ours.flush()
    theirs.add(made(1))
    theirs.flush()
    flaky.fails = ""
    ours.flush()
    assert ids(store) == ["t1", "t0"]


def test_a_reader_goes_on_from_where_it_was(tmp_path: Path, store: Store) -> None:
    spool = Spool(tmp_path, store, "acme", "repair")
    spool.add(made(0))
    spool.flush()
    seen = read_live(store, "acme", "repair").last
    spool.add(made(1))
    spool.flush()
    later = read_live(store, "acme", "repair", seen)
    assert [one.live_id for one in later.outcomes] == ["t1"]
    assert read_live(store, "acme", "repair", later.last) == ([], later.last)


PROGRAM = """
import sys
from pathlib import Path
sys.path.insert(0, "tests")
from serving_world import outcome
from ratchet.serving.outcomes import Spool
from ratchet.store import Store
home = Path(sys.argv[1])
spool = Spool(home, Store(home / "store"), "acme", "repair")
print("ready", flush=True)
for number in range(int(sys.argv[2]), 100_000):
    spool.add(outcome(f"t{number}", "production", "v", "c", True))
    print(number, flush=True)
    spool.flush()
"""


def test_a_server_that_is_killed_loses_nothing_that_it_answered(tmp_path: Path, store: Store) -> None:
    said = -1
    for _ in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(tmp_path), str(said + 1)], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        for _ in range(7):
            process.stdout.readline()
        time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        rest = process.communicate()[0].splitlines()
        said = max([said, *(int(line) for line in rest if line.isdigit())])
    spool = Spool(tmp_path, store, "acme", "repair")
    spool.flush()
    found = ids(store)
    assert len(found) == len(set(found))
    assert {f"t{number}" for number in range(said + 1)} <= set(found)
    lines = sum(
        len(store.read(part_name("acme", "repair", n + 1)).splitlines())
        for n in range(last_part(store, "acme", "repair"))
    )
    assert lines == len(found)
