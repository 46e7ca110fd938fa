"""Intake and erasure on a versioned bucket of a real S3 server: no version and no unfinished upload keeps anything."""

import io
import multiprocessing

import pyarrow.parquet as pq
import pytest
from batch_world import PHRASE, put
from intake_world import NOW, document, world

from ratchet.contracts.canonical import digest_bytes
from ratchet.errors import RightsError
from ratchet.intake import index, published, records, summaries, trajectories
from ratchet.intake.erase import erasable, erase
from ratchet.intake.keys import Keys
from ratchet.intake.read import original, quarantined
from ratchet.rights import authorise
from ratchet.store.s3 import S3Store


@pytest.fixture
def home(s3_versioned_place, tmp_path):
    """A home whose store is on a bucket that keeps versions."""
    return world(tmp_path)._replace(store=S3Store(s3_versioned_place, cache=tmp_path / "cache/store"))


def traces(store):
    """Key and readable content of every version and delete marker; of an unfinished upload the key."""
    found = store.bucket.call("list_object_versions", "", Prefix=store.prefix)
    uploads = store.bucket.call("list_multipart_uploads", "", Prefix=store.prefix)
    yield from ((one["Key"], b"") for one in [*found.get("DeleteMarkers", ()), *uploads.get("Uploads", ())])
    for one in found.get("Versions", ()):
        data, _ = store.bucket.get(one["Key"], VersionId=one["VersionId"])
        parquet = data.startswith(b"PAR1")
        yield one["Key"], str(pq.read_table(io.BytesIO(data)).to_pydict()).encode() if parquet else data


def test_nothing_of_an_erased_grant_is_left_in_any_version_or_upload(home, monkeypatch):
    monkeypatch.setattr(summaries, "EVERY", 3)
    put(home.store, home.home, range(3), grant_id="h")
    planted = document(7)
    planted["steps"][0]["message"] = f"first line\n{PHRASE}"
    landed = home.land("planted.jsonl", [planted, document(8), f"{PHRASE} and no trajectory"])
    report = home.ingest()
    assert (report.stored, report.quarantined) == (2, 1)
    put(home.store, home.home, range(3, 5), grant_id="h")
    put(home.store, home.home, range(10, 12), grant_id="g", aside=PHRASE)
    # An older version, a version behind a delete marker, and an upload that was never finished.
    call, prefix = home.store.bucket.call, home.store.prefix
    (name, *_) = home.store.names("acme/trajectories/g")
    call("put_object", "", Key=f"{prefix}{name}", Body=home.store.read(name))
    call("put_object", "", Key=f"{prefix}acme/events/g/hidden", Body=PHRASE.encode())
    call("delete_object", "", Key=f"{prefix}acme/events/g/hidden")
    upload = call("create_multipart_upload", "", Key=f"{prefix}acme/raw/g/unfinished")["UploadId"]
    part = {"UploadId": upload, "PartNumber": 1, "Body": PHRASE.encode()}
    call("upload_part", "", Key=f"{prefix}acme/raw/g/unfinished", **part)
    assert any(PHRASE.encode() in data for _, data in traces(home.store))

    source = digest_bytes(landed.read_bytes())
    assert PHRASE.encode() in b"".join(original(home.store, Keys(home.home), "acme", "g", source))
    use = {"purpose": "train_sft", "tenant": "acme", "base_model": "m", "manifest_digest": "0" * 64}
    mine = authorise(home.ledger, records(home.store, "acme", grant_id="g"), at=NOW, **use)
    assert PHRASE in str([item.steps[0].message for item in trajectories(home.store, mine)])

    plan = erasable(home.store, home.home, tenant="acme", grant_id="g")
    assert plan
    erase(home.store, home.home, tenant="acme", grant_id="g", at=NOW)
    left = [(key, data) for key, data in traces(home.store) if PHRASE.encode() in data or "/g/" in key]
    assert left == []
    assert not any(b"planted.jsonl" in data for _, data in traces(home.store))
    assert erasable(home.store, home.home, tenant="acme", grant_id="g") == []
    assert list(index(home.store, "acme")["seed"]) == [str(number) for number in range(5)]
    assert quarantined(home.store, published.chain(home.store, "acme")) == []
    with pytest.raises(RightsError, match="was erased"):
        put(home.store, home.home, [20], grant_id="g")
    assert put(home.store, home.home, range(3, 6), grant_id="h")


def _race(home_path, place, worker, barrier):
    store = S3Store(place, cache=home_path / f"cache{worker}")
    barrier.wait()
    put(store, home_path, [*range(5), 100 + worker])


def test_racing_publishers_on_s3_bring_every_record_once(home):
    count = 6
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(count)
    Keys(home.home).get("acme", "g")
    workers = [
        context.Process(target=_race, args=(home.home, home.store.place, number, barrier)) for number in range(count)
    ]
    for one in workers:
        one.start()
    for one in workers:
        one.join()
    assert [one.exitcode for one in workers] == [0] * count
    found = index(home.store, "acme")
    assert sorted(found["seed"].astype(int)) == [*range(5), *range(100, 100 + count)]
