"""Damaged logs of every format: no crash, no partial record, each piece stored or set aside, and the same again adds
nothing."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from intake_world import NOW, world
from mutations import mutated, samples

from ratchet.intake import index, published, records, tables, trajectories
from ratchet.intake.formats import formats
from ratchet.intake.read import quarantined
from ratchet.intake.rows import EVENT_COLUMNS, EventRows, event_rows, schema
from ratchet.rights import authorise

READERS = sorted(formats())


def objects(store):
    return {name: store.read(name) for name in store.names(".")}


def whole(home):
    """Read everything back, each record verified by its digest, and hold events and index against it."""
    import pyarrow as pa

    frame = index(home.store, "acme")
    assert frame["digest"].is_unique
    chain = published.chain(home.store, "acme")
    files = [file for one in chain for file in one.files.get("events", ())]
    events = pa.concat_tables([schema(EVENT_COLUMNS).empty_table(), *(tables.read(home.store, file) for file in files)])
    stored = events.to_pylist()
    by_digest = {}
    for row in stored:
        by_digest.setdefault(row["digest"], []).append(row)
    found = list(trajectories(home.store, _dataset(home))) if len(frame) else []
    assert {item.digest for item in found} == set(frame["digest"]) == set(by_digest)
    steps = dict(zip(frame["digest"], frame["steps"] + frame["copied_steps"], strict=True))
    for item in found:
        expected = EventRows()
        expected.add(event_rows(item.model_dump(mode="json", exclude_none=True)), item.digest)
        assert by_digest[item.digest] == expected.table().to_pylist()
        assert steps[item.digest] == len(item.steps)
    return frame, quarantined(home.store, chain)


def _dataset(home):
    use = {"purpose": "train_sft", "tenant": "acme", "base_model": "m", "manifest_digest": "0" * 64}
    return authorise(home.ledger, records(home.store, "acme"), at=NOW, **use)


def balanced(report):
    assert report.read == report.stored + report.duplicates + report.quarantined
    assert report.quarantined == sum(report.reasons.values())
    assert "reader_failed" not in report.reasons


def test_every_format_has_samples_and_they_come_in(tmp_path):
    home = world(tmp_path)
    for name, content in samples():
        home.land(name, content)
    report = home.ingest()
    balanced(report)
    assert sorted(name for name in report.formats if name != "unrecognised") == READERS
    whole(home)


@pytest.mark.parametrize(
    ("files", "seed"),
    [(500, 0), *(pytest.param(1000, seed, marks=pytest.mark.slow) for seed in range(1, 11))],
)
def test_damaged_files_are_stored_or_set_aside_and_nothing_in_between(tmp_path, files, seed):
    """With the slow ones 10,000 files and more."""
    chance = random.Random(seed)
    home = world(tmp_path)
    sizes = {}
    for number in range(files):
        name, content = mutated(chance)
        sizes[f"{number}-{name}"] = len(content)
        home.land(f"{number}-{name}", content)
    report = home.ingest()
    balanced(report)
    assert report.sources == files
    assert report.stored > files // 20
    assert report.quarantined > files // 20
    assert len(set(READERS) - set(report.formats)) == 0
    frame, entries = whole(home)
    assert len(frame) == report.stored
    for entry in entries:
        assert entry["code"]
        assert entry["reason"]
        assert entry["number"] >= 0
        assert entry["offset"] >= 0
        assert entry["source"] in sizes or any(entry["source"].startswith(f"{name}/") for name in sizes)
    assert len({(entry["digest"], entry["code"]) for entry in entries}) == len(entries)
    before = objects(home.store)
    again = home.ingest()
    assert (again.batch, again.stored) == (None, 0)
    assert (again.read, again.reasons, again.formats) == (report.read, report.reasons, report.formats)
    assert objects(home.store) == before


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.integers(1, 3))
def test_any_damaged_file_is_accounted_for_alone(tmp_path_factory, seed, files):
    chance = random.Random(seed)
    home = world(tmp_path_factory.mktemp("fuzz"))
    for number in range(files):
        name, content = mutated(chance)
        home.land(f"{number}-{name}", content)
        report = home.ingest(home.landing / f"{number}-{name}")
        balanced(report)
        # Nothing is passed over in silence: a source without a record is set aside as a whole.
        assert report.read >= 1
        assert report.stored + report.duplicates + report.quarantined >= 1
    frame, entries = whole(home)
    places = Counter(source.rsplit("#", 1)[0] for source in frame["source"])
    assert set(places) | {entry["source"] for entry in entries} <= {path.name for path in home.landing.iterdir()}
    before = objects(home.store)
    assert home.ingest().batch is None
    assert objects(home.store) == before
