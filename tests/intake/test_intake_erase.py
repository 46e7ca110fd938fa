"""Erasure inside the intake: nothing of the grant is left, nothing of another is lost, at whatever point it is cut."""

import threading

import pytest
from batch_world import PHRASE, everything, logs, part, put
from intake_world import NOW, world

from ratchet.errors import ConflictError, RightsError
from ratchet.intake import index, published, records, summaries, trajectories
from ratchet.intake.batch import BatchWriter
from ratchet.intake.erase import erasable, erase
from ratchet.intake.keys import Keys
from ratchet.intake.read import original, quarantined
from ratchet.rights import Event, authorise

SECRET = "the words of the grant that ends"


@pytest.fixture(params=[100, 2], ids=["short chain", "summaries"])
def home(tmp_path, request, monkeypatch):
    monkeypatch.setattr(summaries, "EVERY", request.param)
    home = world(tmp_path)
    put(home.store, home.home, range(3), grant_id="h", aside=PHRASE)
    put(home.store, home.home, range(3), grant_id="ends", aside=SECRET)
    put(home.store, home.home, range(3, 6), grant_id="h", aside=SECRET)
    put(home.store, home.home, range(3, 5), grant_id="ends", aside=PHRASE)
    put(home.store, home.home, range(6, 7), grant_id="h")
    return home


def gone(home):
    return erase(home.store, home.home, tenant="acme", grant_id="ends", at=NOW)


def listed(home):
    return erasable(home.store, home.home, tenant="acme", grant_id="ends")


def traces(home):
    """Files anywhere under the home whose name or readable content is about the grant, tombstones left aside."""
    import io

    import pyarrow.parquet as pq

    found = []
    for path in home.home.rglob("*"):
        if (
            not path.is_file()
            or "_erased" in path.parts
            or path.suffix in (".destroyed", ".lock")
            or path.name == ".lock"
        ):
            continue
        data = path.read_bytes()
        text = str(pq.read_table(io.BytesIO(data)).to_pydict()).encode() if path.suffix == ".parquet" else data
        if "/ends" in str(path) or b"ends.jsonl" in text or b"'ends'" in text:
            found.append(str(path))
    return found


def the_other_is_whole(home):
    frame = index(home.store, "acme")
    assert set(frame["grant_id"]) == {"h"}
    assert list(frame["seed"]) == [str(number) for number in range(7)]
    if "h" not in home.ledger:
        grant = Event(
            kind="grant", grant_id="h", tenant="acme", purposes=("train_sft",), base_models=("*",),
            retention_until=NOW.replace(year=2031), by="owner", at=NOW,
        )  # fmt: skip
        home.ledger.append(grant)
    use = {"purpose": "train_sft", "tenant": "acme", "base_model": "m", "manifest_digest": "0" * 64}
    dataset = authorise(home.ledger, records(home.store, "acme"), at=NOW, **use)
    assert len(list(trajectories(home.store, dataset))) == 7
    keys, chain = Keys(home.home), published.chain(home.store, "acme")
    entries = quarantined(home.store, [one for one in chain if one.grant_id == "h"], keys)
    assert len([entry for entry in entries if entry["content_base64"]]) == 2
    for manifest in chain:
        for source in manifest.sources:
            assert PHRASE.encode() in b"".join(original(home.store, keys, "acme", "h", source.digest))
    # The chain still takes in, and knows what it has.
    assert put(home.store, home.home, range(3), grant_id="h", aside=PHRASE) is None


def test_nothing_of_the_grant_is_left_and_nothing_of_another_is_lost(home):
    plan = listed(home)
    assert {one.kind for one in plan} >= {
        "original",
        "trajectories",
        "index",
        "events",
        "quarantine",
        "manifest",
        "key",
    }
    assert traces(home)
    removed = gone(home)
    assert {one.name for one in plan} <= {one.name for one in removed}
    assert traces(home) == []
    assert listed(home) == []
    the_other_is_whole(home)
    assert [one.grant_id for one in published.chain(home.store, "acme") if one.erased] == ["ends"]


def test_the_dry_run_changes_nothing_and_says_digest_and_size(home):
    from ratchet.contracts.canonical import digest_bytes

    before = everything(home.store)
    plan = listed(home)
    assert everything(home.store) == before
    for one in plan:
        if one.kind not in ("key", "scratch file"):
            assert (one.size, one.digest) == (len(before[one.name]), digest_bytes(before[one.name]))
    shared = {"summary"} if home.store.names("acme/summaries") else set()
    assert all("/ends/" in one.name or one.kind in {"key", *shared} for one in plan)


def test_again_removes_nothing_more(home):
    gone(home)
    before = everything(home.store)
    assert gone(home) == []
    assert everything(home.store) == before


def test_the_originals_cannot_be_read_any_more_from_a_copy_either(home):
    chain = published.chain(home.store, "acme")
    source = next(source for one in chain if one.grant_id == "ends" for source in one.sources)
    copy = home.store.read(source.raw)
    gone(home)
    home.store.create(source.raw, copy)
    with pytest.raises(RightsError, match="key was destroyed"):
        Keys(home.home).existing("acme", "ends")
    assert PHRASE.encode() not in copy


def test_what_crashed_ingests_left_goes_too(home):
    put(home.store, home.home, range(50, 52), grant_id="ends")
    stray = [f"acme/{place}/ends/stray" for place in ("raw", "trajectories", "manifests", "quarantine")]
    for name in stray:
        home.store.create(name, SECRET.encode())
    hidden = home.store.path("acme/events/ends/.write-x.parquet-abcdefgh")
    hidden.write_bytes(SECRET.encode())
    scratch = home.home / "scratch/intake/acme/ends/dead"
    scratch.mkdir(parents=True)
    (scratch / "trajectories-0.parquet").write_bytes(SECRET.encode())
    plan = {one.name for one in listed(home)}
    assert plan >= {*stray, "scratch/intake/acme/ends/dead/trajectories-0.parquet"}
    gone(home)
    assert not any(SECRET.encode() in path.read_bytes() for path in home.home.rglob("*") if path.is_file())


class PowerCut(BaseException):
    pass


def test_cut_at_every_single_step_it_is_finished_by_the_next(home, monkeypatch):
    """Every write and deletion is cut once, before it happens; what was visible then stays whole."""
    steps = 0
    while True:
        counted = iter(range(10_000))

        def cut(original, step=steps, counted=counted):
            def call(*arguments):
                if next(counted) == step:
                    raise PowerCut
                return original(*arguments)

            return call

        with monkeypatch.context() as patch:
            for name in ("create", "create_file", "swap", "delete", "delete_all"):
                patch.setattr(home.store, name, cut(getattr(home.store, name)))
            patch.setattr(Keys, "destroy", cut(Keys.destroy))
            try:
                gone(home)
            except PowerCut:
                frame = index(home.store, "acme")
                assert len(frame[frame["grant_id"] == "h"]) == 7
                assert len(frame[frame["grant_id"] == "ends"]) in (0, 5)
                steps += 1
                continue
            break
    assert steps >= 10
    assert gone(home) == []
    assert traces(home) == []
    the_other_is_whole(home)


def test_a_grant_without_data_leaves_a_tombstone_alone(home):
    erase(home.store, home.home, tenant="acme", grant_id="never", at=NOW)
    assert len(index(home.store, "acme")) == 12
    with pytest.raises(RightsError, match="was erased"):
        put(home.store, home.home, [0], grant_id="never")


def test_readers_and_publishers_that_race_an_erasure_are_served(home):
    failures = []

    def read():
        try:
            for _ in range(10):
                frame = index(home.store, "acme")
                assert {"h"} <= set(frame["grant_id"]) <= {"h", "ends", "i"}
        except BaseException as error:
            failures.append(error)

    def publish():
        try:
            for number in range(100, 104):
                put(home.store, home.home, [number], grant_id="i")
        except BaseException as error:
            failures.append(error)

    def publish_for_it():
        try:
            for number in range(200, 210):
                put(home.store, home.home, [number], grant_id="ends")
        except (RightsError, FileNotFoundError):
            return
        except BaseException as error:
            failures.append(error)

    reader = threading.Thread(target=read)
    others = [threading.Thread(target=one) for one in (publish, publish_for_it)]
    for one in [reader, *others]:
        one.start()
    gone(home)
    read_after = index(home.store, "acme")
    assert "ends" not in set(read_after["grant_id"])
    for one in [reader, *others]:
        one.join()
    assert failures == []
    gone(home)
    assert traces(home) == []
    frame = index(home.store, "acme")
    assert set(frame["grant_id"]) == {"h", "i"}
    assert len(frame) == 7 + 4


def test_an_erasure_that_always_loses_says_so_and_has_erased_nothing(home, monkeypatch):
    monkeypatch.setattr("ratchet.store.base.ATTEMPTS", 2)

    def lost(*_):
        raise ConflictError("acme/refs/trajectories", rule="it moved", remedy="again")

    with monkeypatch.context() as patch:
        patch.setattr(home.store, "swap", lost)
        with pytest.raises(ConflictError, match="moved 2 times"):
            gone(home)
    assert len(index(home.store, "acme")) == 12
    gone(home)
    the_other_is_whole(home)


def test_a_writer_at_work_under_the_grant_publishes_nothing(home):
    with BatchWriter(home.store, Keys(home.home), tenant="acme", grant_id="ends") as late:
        late.add(part(logs([77], "ends")))
        gone(home)
        with pytest.raises((RightsError, FileNotFoundError)):
            late.publish(NOW, [])
    assert traces(home) == []
