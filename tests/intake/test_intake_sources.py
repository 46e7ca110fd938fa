"""Sources: what fsspec reaches comes in as local files do, listed once, without a trace beside the store."""

import gzip
import json
import tempfile

import fsspec
import pytest
import seaweed_server
from intake_world import NOW, chat, world

from ratchet.errors import IntakeError
from ratchet.intake import index, ingest
from ratchet.intake.sources import listed

LINES = b"".join(json.dumps(chat({"role": "user", "content": word})).encode() + b"\n" for word in ("one", "two"))


@pytest.fixture
def memory():
    files = fsspec.filesystem("memory")
    for name, data in (
        ("logs/b/two.jsonl.gz", gzip.compress(LINES)),
        ("logs/a.json", json.dumps(chat()).encode()),
        ("logs/.hidden/x.json", b"{}"),
        ("logs-of-others/x.json", json.dumps(chat(model="theirs")).encode()),
    ):
        files.pipe(f"/{name}", data)
    yield files
    files.rm("/", recursive=True)


def take(home, *sources, **options):
    return ingest(home.store, home.ledger, list(sources), tenant="acme", grant_id="g", at=NOW, **options)


def test_a_prefix_is_listed_in_order_without_hidden_files_and_neighbours(memory, tmp_path):
    assert [entry.name for entry in listed("memory://logs")] == ["a.json", "b/two.jsonl.gz"]
    report = take(world(tmp_path), "memory://logs")
    assert (report.sources, report.stored, report.quarantined) == (2, 3, 0)


def test_one_remote_file_is_taken_by_its_own_name(memory, tmp_path):
    home = world(tmp_path)
    assert take(home, "memory://logs/a.json").stored == 1
    assert list(index(home.store, "acme")["source"]) == ["a.json#0"]
    local = home.land("a.json", chat())
    assert take(home, f"file://{local}", local).duplicates == 2


def test_a_downloaded_file_never_has_a_name(memory, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    home = world(tmp_path)
    (entry,) = listed("memory://logs/a.json")
    with entry.local() as path:
        assert json.loads(path.read_bytes()) == chat()
        assert list((tmp_path / "temporary").iterdir()) == []
    assert take(home, "memory://logs").stored == 3


@pytest.mark.parametrize(
    ("url", "rule"), [("memory://nothing/there", "something under it"), ("gopher://x/y", "can be listed")]
)
def test_what_cannot_be_listed_is_refused_by_its_url(tmp_path, url, rule):
    with pytest.raises(IntakeError, match=rule) as refused:
        take(world(tmp_path), url)
    assert url in str(refused.value)


@pytest.mark.slow
def test_a_bucket_comes_in_and_its_refusals_are_clear(tmp_path, monkeypatch):
    with seaweed_server.running_seaweed(tmp_path / "seaweed") as server:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        place = server.fresh_place()
        files = fsspec.filesystem("s3", use_listings_cache=False, skip_instance_cache=True)
        files.pipe(f"{place}/deep/er/x.jsonl", LINES)
        files.pipe(f"{place}/deep.json", json.dumps(chat()).encode())
        home = world(tmp_path / "home")
        report = take(home, place, workers=2)
        assert (report.sources, report.stored) == (2, 3)
        assert take(home, f"{place}/deep").duplicates == 2
        assert take(home, f"{place}/deep.json").batch is None
        with pytest.raises(IntakeError, match="something under it"):
            take(home, f"{place}/nothing")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
        with pytest.raises(IntakeError, match="check the URL, the credentials and the endpoint"):
            take(home, place)
        monkeypatch.undo()
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        (entry, _) = listed(place)
        server.kill()
        with pytest.raises(IntakeError, match="must be readable"), entry.local():
            pass
        with pytest.raises(IntakeError, match="can be listed"):
            take(home, place)
