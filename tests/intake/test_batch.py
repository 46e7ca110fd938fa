"""The batch writer: everything once, in bounded memory, published together or not at all."""

import multiprocessing
import threading

import pytest
from batch_world import PHRASE, everything, logs, part, put, rejected
from intake_world import NOW, trajectory, world

from ratchet.contracts.canonical import digest_bytes
from ratchet.errors import ConflictError, IntakeError, IntegrityError, RightsError
from ratchet.intake import batch as batch_module
from ratchet.intake import index, published, records, summaries, trajectories
from ratchet.intake.batch import BatchWriter
from ratchet.intake.keys import Keys
from ratchet.intake.published import Source
from ratchet.intake.read import original, quarantined
from ratchet.rights import authorise
from ratchet.store import Store


@pytest.fixture
def home(tmp_path):
    return world(tmp_path)


def writer(home, **options):
    return BatchWriter(home.store, Keys(home.home), **{"tenant": "acme", "grant_id": "g", **options})


def authorised(home, chosen=None):
    use = {"purpose": "train_sft", "tenant": "acme", "base_model": "m", "manifest_digest": "0" * 64}
    return authorise(home.ledger, records(home.store, "acme") if chosen is None else chosen, at=NOW, **use)


def test_nothing_is_in_the_store_before_it_is_published(home):
    with writer(home) as one:
        one.add(part(logs(range(5)), [rejected("x")]))
        one.raw(b"original", digest_bytes(b"original"))
        assert everything(home.store) == {}
    assert list((home.home / "scratch/intake/acme/g").iterdir()) == []


def test_nothing_new_publishes_nothing(home):
    put(home.store, home.home, range(3), aside="x")
    before = everything(home.store)
    with writer(home) as one:
        assert one.add(part(logs(range(3)), [rejected("x")])) == 0
        one.raw(b"another original", digest_bytes(b"another original"))
        assert one.publish(NOW, []) is None
    assert everything(home.store) == before


def test_a_record_twice_is_kept_once_in_a_part_over_parts_and_over_spills(home, monkeypatch):
    monkeypatch.setattr(batch_module, "SPILL_BYTES", 5000)
    with writer(home) as one:
        assert one.add(part(logs([0, 1, 0, 1, 2]))) == 3
        assert one.add(part(logs([2, 3]))) == 1
        assert one.add(part(logs(range(4, 40)))) == 36
        assert one.add(part(logs([0, 5, 40]))) == 1
        one.publish(NOW, [])
        assert one.stored == 41
    frame = index(home.store, "acme")
    assert list(frame["seed"]) == [str(number) for number in range(41)]
    (manifest,) = published.chain(home.store, "acme")
    assert len(manifest.files["index"]) > 1
    assert manifest.trajectories == 41
    events = [file.rows for file in manifest.files["events"]]
    assert sum(events) == 41 * 5


def test_the_dataset_is_streamed_in_the_order_of_its_records_whatever_the_parts(home, monkeypatch):
    from ratchet.intake import tables

    monkeypatch.setattr(batch_module, "SPILL_BYTES", 20_000)
    monkeypatch.setattr(tables, "GROUP_BYTES", 3000)
    put(home.store, home.home, range(60))
    put(home.store, home.home, range(60, 70))
    dataset = authorised(home)
    found = [item.digest for item in trajectories(home.store, dataset)]
    assert found == [name for name, _ in dataset.records]
    assert len(found) == 70
    few = authorised(home, [records(home.store, "acme")[number] for number in (65, 3, 31)])
    assert {item.ratchet.seed for item in trajectories(home.store, few)} == {65, 3, 31}


def test_an_original_is_sealed_in_the_store_and_read_back_by_a_steward(home, tmp_path):
    plain = (PHRASE.encode() + b"\n") * 100_000
    path = tmp_path / "big.jsonl"
    path.write_bytes(plain)
    digest = digest_bytes(plain)
    with writer(home) as one:
        one.add(part(logs([0])))
        name = one.raw(path, digest)
        one.publish(NOW, [Source(name="big.jsonl", digest=digest, format="atif", raw=name)])
    assert not any(PHRASE.encode() in data for data in everything(home.store).values())
    keys = Keys(home.home)
    assert b"".join(original(home.store, keys, "acme", "g", digest)) == plain
    with pytest.raises(IntakeError, match="a batch of grant 'g' of 'acme' must have stored it"):
        list(original(home.store, keys, "acme", "g", "0" * 64))
    (tmp_path / "keys/acme/g.key").rename(tmp_path / "keys/acme/kept")
    with pytest.raises(IntegrityError, match="the key of the grant must be there"):
        list(original(home.store, keys, "acme", "g", digest))


def test_an_original_that_changes_while_it_is_read_stops_the_batch(home, tmp_path):
    (tmp_path / "x").write_bytes(b"now this")
    with writer(home) as one, pytest.raises(IntakeError, match="must not change while it is being read"):
        one.raw(tmp_path / "x", digest_bytes(b"before"))
    assert everything(home.store) == {}


def test_rejected_content_is_sealed_and_only_the_keys_open_it(home):
    put(home.store, home.home, [0], aside=PHRASE)
    manifests = published.chain(home.store, "acme")
    assert not any(PHRASE.encode() in data for data in everything(home.store).values())
    (closed,) = quarantined(home.store, manifests)
    (opened,) = quarantined(home.store, manifests, Keys(home.home))
    assert closed["content_base64"] is None
    assert opened == rejected(PHRASE)


def test_a_rejected_piece_of_one_grant_is_kept_for_the_other_too(home):
    put(home.store, home.home, [0], aside="x")
    put(home.store, home.home, [0], aside="x", grant_id="h")
    put(home.store, home.home, [1], aside="x")
    found = [manifest.files.get("quarantine") is not None for manifest in published.chain(home.store, "acme")]
    assert found == [True, True, False]


def test_a_long_chain_is_read_from_its_summary(home, monkeypatch):
    monkeypatch.setattr(summaries, "EVERY", 4)
    for number in range(15):
        put(home.store, home.home, [2 * number, 2 * number + 1], grant_id="gh"[number % 2], aside=f"x{number}")
    head = home.store.pointer("acme/refs/trajectories")
    assert len(published.recent(home.store, "acme", head)) <= 4
    chain = published.chain(home.store, "acme")
    assert [manifest.name for manifest in chain[:-1]] == [manifest.parent for manifest in chain[1:]]
    frame = index(home.store, "acme")
    assert list(frame["seed"]) == [str(number) for number in range(30)]
    assert list(frame["batch"]) == [manifest.batch for manifest in chain for _ in range(2)]
    assert set(frame["ingested_at"]) == {NOW}
    assert frame["submitted"].dtype == "boolean"
    assert frame["ok_calls"].dtype == "Int64"
    assert len(home.store.children("acme/summaries/0")) == 1
    before = everything(home.store)
    assert put(home.store, home.home, [0, 1], aside="x0") is None
    assert put(home.store, home.home, [2, 3], grant_id="h", aside="x1") is None
    assert everything(home.store) == before


@pytest.mark.parametrize("kind", ["chain", "index", "aside"])
def test_a_changed_summary_is_noticed(home, monkeypatch, kind):
    monkeypatch.setattr(summaries, "EVERY", 2)
    for number in range(3):
        put(home.store, home.home, [number], aside=str(number))
    (name,) = [name for name in home.store.names("acme/summaries") if f"/{kind}." in name]
    path = home.store.path(name)
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(IntegrityError, match=f"summaries.*{kind}"):
        writer(home)


@pytest.mark.parametrize("kind", ["raw", "quarantine", "trajectories"])
def test_what_a_killed_run_left_is_completed_or_refused_where_it_was_changed(home, kind):
    put(home.store, home.home, range(3), aside="x")
    finished = everything(home.store)
    home.store.delete("acme/refs/trajectories")
    for name in home.store.names("acme/manifests"):
        home.store.delete(name)
    put(home.store, home.home, range(3), aside="x")
    assert everything(home.store) == finished
    home.store.delete("acme/refs/trajectories")
    (name,) = home.store.names(f"acme/{kind}")
    path = home.store.path(name)
    data = path.read_bytes()
    path.write_bytes(data[:60] + bytes([data[60] ^ 255]) + data[61:])
    with pytest.raises(IntegrityError, match=kind):
        put(home.store, home.home, range(3), aside="x")
    assert home.store.pointer("acme/refs/trajectories") is None


def _race(home_path, worker, barrier):
    home = world(home_path)
    barrier.wait()
    for turn in range(3):
        numbers = range(10 * turn, 10 * turn + 15)
        put(home.store, home.home, [*numbers, 1000 + worker], aside=f"x{turn}")


@pytest.mark.parametrize("kind", ["processes", "threads"])
def test_racing_writers_bring_every_record_once(home, kind, monkeypatch):
    monkeypatch.setattr(summaries, "EVERY", 3)
    count = 5
    if kind == "threads":
        make, barrier = threading.Thread, threading.Barrier(count)
    else:
        context = multiprocessing.get_context("fork")
        make, barrier = context.Process, context.Barrier(count)
    workers = [make(target=_race, args=(home.home, number, barrier)) for number in range(count)]
    for one in workers:
        one.start()
    for one in workers:
        one.join()
    assert all(getattr(one, "exitcode", 0) == 0 for one in workers)
    frame = index(home.store, "acme")
    assert sorted(frame["seed"].astype(int)) == [*range(35), *range(1000, 1000 + count)]
    chain = published.chain(home.store, "acme")
    entries = quarantined(home.store, chain)
    assert sorted(entry["digest"] for entry in entries) == sorted(rejected(f"x{turn}")["digest"] for turn in range(3))
    assert len(list(trajectories(home.store, authorised(home)))) == 35 + count
    assert len(home.store.children("acme/summaries/0")) == 1


def test_a_lost_race_is_bounded(home, monkeypatch):
    monkeypatch.setattr("ratchet.store.base.ATTEMPTS", 3)

    def lost(*_):
        raise ConflictError("acme/refs/trajectories", rule="it moved", remedy="again")

    monkeypatch.setattr(home.store, "swap", lost)
    with pytest.raises(ConflictError, match="moved 3 times"):
        put(home.store, home.home, [0])


def test_scratch_of_a_dead_writer_is_removed_and_of_a_living_one_is_left(home):
    with writer(home) as living:
        living.add(part(logs([0])))
        dead = home.home / "scratch/intake/acme/h/dead"
        dead.mkdir(parents=True)
        (dead / "trajectories-0.parquet").write_bytes(b"left")
        with writer(home, grant_id="h"):
            assert not dead.exists()
        living.publish(NOW, [])
    assert len(index(home.store, "acme")) == 1


def test_a_part_must_fit_together(home):
    whole, other = part(logs([0])), part(logs([1]))
    mixed = batch_module.Part(whole.trajectories, other.index, other.events)
    with writer(home) as one, pytest.raises(ValueError, match="same digests"):
        one.add(mixed)


def test_tenants_share_no_file_and_no_knowledge(home):
    put(home.store, home.home, [0], aside="x")
    put(home.store, home.home, [0], aside="x", tenant="other")
    assert len(home.store.names("acme")) == len(home.store.names("other"))
    keys = Keys(home.home)
    assert keys.existing("acme", "g").secret != keys.existing("other", "g").secret
    assert {trajectory(0).digest} == {name for name, _ in records(home.store, "acme")}


def test_a_grant_that_was_erased_takes_nothing_in(home):
    from ratchet.intake.erase import erase

    with writer(home) as late:
        late.add(part(logs(range(3)), [rejected("x")]))
        late.raw(b"late", digest_bytes(b"late"))
        erase(home.store, home.home, tenant="acme", grant_id="h", at=NOW)
        home_store = Store(home.home / "store")
        erase(home_store, home.home, tenant="acme", grant_id="g", at=NOW)
        with pytest.raises((RightsError, FileNotFoundError)):
            late.publish(NOW, [])
    with pytest.raises(RightsError, match="was erased, and nothing more may come"):
        writer(home)
    assert [name for name in home.store.names("acme") if "/g/" in name] == []
