"""Rows that workers leave in files: the same comes in as from memory, once, and originals are sealed meanwhile."""

import json
import pickle
import threading

import pytest
from batch_world import logs, part
from intake_world import NOW, world
from test_intake_workers import land

from ratchet.intake import crew, cutting, handover, index, records, trajectories
from ratchet.intake.handover import FiledPart, filed
from ratchet.intake.keys import Keys
from ratchet.intake.published import chain
from ratchet.intake.read import original
from ratchet.intake.sealed import Key
from ratchet.rights import authorise


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setattr(cutting, "PIECE_BYTES", 10_000)
    monkeypatch.setattr(cutting, "_BLOCK", 2_000)
    return land(world(tmp_path))


def content(home):
    use = {"purpose": "train_sft", "tenant": "acme", "base_model": "m", "manifest_digest": "0" * 64}
    dataset = authorise(home.ledger, records(home.store, "acme"), at=NOW, **use)
    return [item.digest for item in trajectories(home.store, dataset)]


def test_files_bring_in_what_tables_bring_in(home, tmp_path_factory, monkeypatch):
    tables = home.ingest(workers=1)
    monkeypatch.setattr(handover, "FILED_BYTES", 1)
    other = land(world(tmp_path_factory.mktemp("other")))
    files = other.ingest(workers=1)
    names = {"batch", "batches"}
    assert files.model_dump(exclude={*names, "seconds"}) == tables.model_dump(exclude={*names, "seconds"})
    frames = [index(one.store, "acme").drop(columns=["ingested_at", "batch"]) for one in (home, other)]
    assert frames[0].equals(frames[1])
    assert content(home) == content(other)
    assert other.ingest(workers=1).batch is None
    assert list((other.home / "scratch" / "intake" / "acme" / "g").iterdir()) == []


def test_of_a_file_only_what_is_new_is_kept(home, monkeypatch):
    monkeypatch.setattr(handover, "FILED_BYTES", 1)
    home.ingest(home.landing / "d.jsonl", workers=1)
    before = set(index(home.store, "acme")["digest"])
    assert len(before) == 50
    report = home.ingest(workers=1)
    frame = index(home.store, "acme")
    assert (report.stored, len(frame), frame["digest"].nunique()) == (150, 200, 200)
    assert len(content(home)) == 200


def test_a_record_twice_in_a_piece_is_in_its_files_once(tmp_path, monkeypatch):
    monkeypatch.setattr(handover, "FILED_BYTES", 1)
    (made,) = filed([part(logs([0, 1])), part(logs([1, 2, 0]))], tmp_path)
    assert isinstance(made, FiledPart)
    assert (made.trajectories.rows, len(made.index), made.events.rows) == (3, 3, 3 * 5)
    assert pickle.loads(pickle.dumps(made)).index.equals(made.index)


def test_little_stays_in_memory(tmp_path):
    made = part(logs([0]))
    assert filed([made], tmp_path) == [made]
    assert list(tmp_path.iterdir()) == []


def test_an_original_is_sealed_while_its_last_pieces_are_judged(home, monkeypatch):
    threads = []
    real = Key.seal_file

    def spy(self, *about):
        threads.append(threading.current_thread() is threading.main_thread())
        return real(self, *about)

    monkeypatch.setattr(Key, "seal_file", spy)
    monkeypatch.setattr(crew, "_AHEAD", 1)
    lines = [json.dumps({"messages": [{"role": "user", "content": f"{at} " + "y" * 500}]}) for at in range(200)]
    path = home.land("long.jsonl", "\n".join(lines).encode())
    home.ingest(path, workers=2)
    assert threads == [False]
    (manifest,) = chain(home.store, "acme")
    (source,) = manifest.sources
    assert b"".join(original(home.store, Keys(home.home), "acme", "g", source.digest)) == path.read_bytes()
