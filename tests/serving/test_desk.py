"""The desk: slots follow the ledger; a rollback only swaps; what may not serve leaves; what cannot be loaded waits."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from release_world import AT
from serving_world import ServingWorld

from ratchet.errors import IntegrityError, StoreError
from ratchet.serving.depot import CERTIFICATE, CHECKPOINT
from ratchet.serving.desk import CANARY, PREVIOUS, PRODUCTION, Desk
from ratchet.store import Store


@pytest.fixture
def world(tmp_path: Path) -> ServingWorld:
    return ServingWorld(tmp_path)


class Away:
    """A store that does not answer."""

    def __init__(self, store: Store) -> None:
        self.place = store.place

    def __getattr__(self, name: str) -> object:
        raise StoreError("store", rule="it must answer", remedy="wait")


def names(desk: Desk) -> dict[str, str]:
    return {slot: one.policy.name for slot, one in desk.table.slots.items()}


def hasten(desk: Desk) -> None:
    """Look again now, though a load failed a moment ago."""
    desk._retry_at = 0.0
    desk.follow()


def test_slots_follow_the_ledger_and_nothing_is_done_while_it_stands(world: ServingWorld) -> None:
    desk = world.desk()
    assert desk.follow()
    assert names(desk) == {PRODUCTION: "base"}
    world.produce("first")
    assert desk.follow()
    assert names(desk) == {PRODUCTION: "first", PREVIOUS: "base"}
    table = desk.table
    assert not desk.follow()
    assert desk.table is table
    world.produce("second")
    desk.follow()
    assert names(desk) == {PRODUCTION: "second", PREVIOUS: "first"}
    assert desk.trouble is None


def test_a_canary_stands_beside_production_with_its_share(tmp_path: Path) -> None:
    world = ServingWorld(tmp_path, canary_share=0.25)
    version = world.promote("sft", "canary")
    desk = world.desk()
    desk.follow()
    assert names(desk) == {PRODUCTION: "base", CANARY: "sft"}
    assert desk.table.share == 0.25
    world.ledger.reject(version, by="Olga", reason="no")
    desk.follow()
    assert (names(desk), desk.table.share) == ({PRODUCTION: "base"}, 0.0)


def test_a_rollback_loads_nothing_and_needs_neither_store_nor_trainer(world: ServingWorld) -> None:
    first, second = world.produce("first"), world.produce("second")
    desk = world.desk()
    desk.follow()
    loaded = desk.table.slots[PREVIOUS]
    desk.depot.store = Away(world.store)  # type: ignore[assignment]
    shutil.rmtree(world.home / "store")
    world.ledger.rollback(world.tenant, world.experiment, by="Olga", reason="worse")
    assert desk.follow()
    assert desk.table.slots[PRODUCTION] is loaded
    assert loaded.identity == first.id
    assert desk.table.find(second.id) is None


def test_the_first_version_is_rolled_back_to_the_baseline(world: ServingWorld) -> None:
    world.produce("first")
    desk = world.desk()
    desk.follow()
    desk.depot.store = Away(world.store)  # type: ignore[assignment]
    world.ledger.rollback(world.tenant, world.experiment, by="Olga", reason="worse")
    desk.follow()
    assert names(desk) == {PRODUCTION: "base"}
    assert desk.table.find("baseline") is not None


def test_a_restarted_server_serves_from_its_disk_while_the_store_is_away(world: ServingWorld) -> None:
    world.produce("first")
    world.produce("second")
    world.desk().follow()
    again = world.desk()
    again.depot.store = Away(world.store)  # type: ignore[assignment]
    again.follow()
    assert names(again) == {PRODUCTION: "second", PREVIOUS: "first"}


def test_a_version_that_cannot_be_fetched_leaves_the_one_that_serves(world: ServingWorld) -> None:
    world.produce("first")
    desk = world.desk()
    desk.follow()
    store, desk.depot.store = desk.depot.store, Away(world.store)  # type: ignore[assignment]
    world.produce("second")
    desk.follow()
    assert names(desk)[PRODUCTION] == "first"
    assert desk.trouble is not None
    assert "second" in desk.trouble
    desk.depot.store = store
    hasten(desk)
    assert names(desk) == {PRODUCTION: "second", PREVIOUS: "first"}
    assert desk.trouble is None


def test_a_quarantined_version_stops_serving_though_what_follows_it_cannot_be_loaded(world: ServingWorld) -> None:
    world.produce("first")
    second = world.produce("second")
    desk = world.desk()
    desk.follow()
    for place in desk.depot.root.iterdir():
        shutil.rmtree(place)
    desk._loaded.clear()
    desk.table = desk.table._replace(slots={PRODUCTION: desk.table.slots[PRODUCTION]})
    desk.depot.store = Away(world.store)  # type: ignore[assignment]
    world.ledger.transition(second, "quarantined", by="rule:rights", reason="withdrawn", expected_seq=world.seq)
    desk.follow()
    assert names(desk) == {}
    assert desk.trouble is not None


def test_a_ledger_that_is_away_changes_nothing(world: ServingWorld) -> None:
    world.produce("first")
    desk = world.desk()
    desk.follow()
    table, ledger = desk.table, desk.ledger
    desk.ledger = Away(world.store)  # type: ignore[assignment]
    assert not desk.follow()
    assert desk.table is table
    assert "the ledger cannot be read" in (desk.trouble or "")
    desk.ledger = ledger
    world.produce("second")
    assert desk.follow()
    assert desk.trouble is None


@pytest.mark.parametrize("what", ["weights", "certificate", "no certificate"])
def test_what_was_changed_in_the_store_is_not_loaded(world: ServingWorld, what: str) -> None:
    version = world.produce("first")
    folder = world.store.folder(version.policy.checkpoint)
    (place,) = (world.home / "store" / "certificates" / version.id).iterdir()
    if what == "weights":
        with (folder / "model.safetensors").open("r+b") as file:
            file.seek(-1, 2)
            file.write(b"\x01")
    elif what == "certificate":
        place.write_bytes(place.read_bytes().replace(b"Olga", b"Alga"))
    else:
        place.unlink()
    desk = world.desk()
    desk.follow()
    assert PRODUCTION not in desk.table.slots
    assert "IntegrityError" in (desk.trouble or "")


@pytest.mark.parametrize("name", [CERTIFICATE, f"{CHECKPOINT}/model.safetensors"])
def test_what_was_changed_on_disk_is_refused_and_fetched_again(world: ServingWorld, name: str) -> None:
    version = world.produce("first")
    world.desk().follow()
    depot = world.desk().depot
    (depot.root / version.id / name).write_bytes(b"changed")
    with pytest.raises(IntegrityError):
        depot.folder(version)
    assert depot.folder(version) == depot.root / version.id / CHECKPOINT


def test_a_certificate_under_another_decision_opens_nothing(world: ServingWorld) -> None:
    version = world.produce("first")
    depot = world.desk().depot
    depot.folder(version)
    place = depot.root / version.id / CERTIFICATE
    other = world.decision(version).issue(**{**world.decision(version).model_dump(), "decided_by": "rule:other"})
    from ratchet.release.certificate import certify

    place.write_bytes(certify(version, other, {}, by="x", at=AT).to_bytes())
    with pytest.raises(IntegrityError, match="the ledger says"):
        depot.folder(version)


def test_a_model_that_does_not_answer_as_it_was_qualified_is_not_served(world: ServingWorld) -> None:
    version = world.produce("first")
    record = world.ledger.qualification(version)
    assert record is not None
    (probe,) = record.probes
    other = probe.model_copy(update={"served": (probe.served[0] - 0.01, probe.served[1])})
    world.ledger.qualify(type(record).issue(**{**record.model_dump(), "probes": (other,)}))
    desk = world.desk()
    desk.follow()
    assert PRODUCTION not in desk.table.slots
    assert "nats from the qualified one" in (desk.trouble or "")


def test_only_what_may_be_needed_stays_on_disk(world: ServingWorld) -> None:
    desk = world.desk()
    versions = []
    for number in range(6):
        versions.append(world.produce(f"v{number}"))
        desk.follow()
    held = {place.name for place in desk.depot.root.iterdir()}
    assert held == {one.id for one in versions[2:]} | {f"baseline-{world.baseline.weights_digest}"}


def test_one_rollback_after_another_needs_no_store(world: ServingWorld) -> None:
    desk = world.desk()
    for name in ("first", "second", "third"):
        world.produce(name)
        desk.follow()
    desk.depot.store = Away(world.store)  # type: ignore[assignment]
    for serves, previous in (("second", "first"), ("first", "base"), ("base", None)):
        world.ledger.rollback(world.tenant, world.experiment, by="Olga", reason="worse")
        desk.follow()
        expected = {PRODUCTION: serves} | ({PREVIOUS: previous} if previous else {})
        assert (names(desk), desk.trouble) == (expected, None)
