"""An append-only log in a store: whatever is changed or taken out of it is named; locally and on S3."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from ratchet.errors import IntegrityError
from ratchet.store import Store
from ratchet.store.chain import Chain


def chain(store: Store, count: int = 0) -> Chain:
    made = Chain(store, "log/entries", "log/head")
    for number in range(count):
        assert made.append(lambda found, number=number: {"value": number})
    return made


def test_entries_come_back_in_order(store: Store) -> None:
    assert chain(store).read() == []
    chain(store, 3)
    assert [entry.content for entry in chain(store).read()] == [{"value": number} for number in range(3)]


def test_what_is_there_decides_whether_anything_is_appended(store: Store) -> None:
    log = chain(store, 1)
    assert not log.append(lambda found: None if found else {"value": 9})
    assert len(log.read()) == 1


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_missing_entry_is_named(store: Store, number: int) -> None:
    log = chain(store, 3)
    store.delete(f"log/entries/{number:06d}.json")
    with pytest.raises(IntegrityError, match=rf"log/entries/{number:06d}\.json.*may be missing"):
        log.read()


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_changed_entry_is_named(store: Store, number: int) -> None:
    log, name = chain(store, 3), f"log/entries/{number:06d}.json"
    data = store.read(name)
    store.delete(name)
    store.create(name, data.replace(b'"value":', b'"other":'))
    with pytest.raises(IntegrityError, match=name):
        log.append(lambda found: {"value": 4})


def test_entries_that_changed_places_are_named(store: Store) -> None:
    log = chain(store, 3)
    first, second = (store.read(f"log/entries/00000{number}.json") for number in (1, 2))
    for number, data in ((1, second), (2, first)):
        store.delete(f"log/entries/00000{number}.json")
        store.create(f"log/entries/00000{number}.json", data)
    with pytest.raises(IntegrityError, match=r"000001\.json"):
        log.read()


def test_an_entry_whose_writer_did_not_come_to_move_the_head_counts(store: Store) -> None:
    log = chain(store, 2)
    head = store.pointer("log/head")
    chain(store, 1)
    store.swap("log/head", store.pointer("log/head"), head or "")
    assert len(log.read()) == 3
    log.append(lambda found: {"value": 3})
    assert (store.pointer("log/head") or "").startswith("4 ")


def test_of_those_that_append_at_once_nobody_is_lost(store: Store) -> None:
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda number: Chain(store, "log/entries", "log/head").append(lambda _: number), range(12)))
    assert sorted(entry.content for entry in chain(store).read()) == list(range(12))
