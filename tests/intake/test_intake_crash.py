"""SIGKILL in the middle of intake: the store is whole at any moment, and the rerun completes it to the same content.

The ingest runs in a process group of its own, alone or with workers, and publishes several batches; the group is
killed as a whole, as a machine that loses its power would, or only the process at its head.
"""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from intake_world import NOW, document, world

from ratchet.intake import index, ingest, published, records, trajectories
from ratchet.intake.keys import Keys
from ratchet.intake.read import original, quarantined
from ratchet.intake.secrets import SecretScanner
from ratchet.rights import Ledger, authorise
from ratchet.store import Store

RECORDS = 400
FILES = 5
CHILD = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from test_intake_crash import take_in
if __name__ == "__main__":
    take_in(Path(sys.argv[1]), int(sys.argv[2]))
"""


def take_in(home: Path, workers: int) -> None:
    """Ingest what lies there in small batches and small parts, and say when it begins."""
    from importlib import import_module

    import_module("ratchet.intake.ingest").BATCH_BYTES = 60_000
    import_module("ratchet.intake.batch").SPILL_BYTES = 20_000
    store, ledger = Store(home / "store"), Ledger.at_home(home)
    SecretScanner()
    print("begins", flush=True)
    ingest(store, ledger, [home / "landing"], tenant="acme", grant_id="g", at=NOW, workers=workers)


def landed(home):
    """Several files, some with what is set aside, one record in two of them."""
    for number in range(FILES):
        own = range(number * RECORDS // FILES, (number + 1) * RECORDS // FILES)
        lines = [json.dumps(document(one)) for one in [*own, 0]]
        lines[len(lines) // 2 : len(lines) // 2] = [f'{{"broken {number}']
        home.land(f"{number}.jsonl", "\n".join(lines).encode() + b"\n")
    return home


def child(home, workers):
    """Start an ingest in a process group of its own."""
    code = [sys.executable, "-c", CHILD, str(home.home), str(workers), str(Path(__file__).parent)]
    return subprocess.Popen(code, stdout=subprocess.PIPE, start_new_session=True)


def content(home):
    """What a reader finds, and nothing about batches: the same whatever was interrupted."""
    frame = index(home.store, "acme").drop(columns=["batch", "ingested_at"])
    chain = published.chain(home.store, "acme")
    entries = quarantined(home.store, chain, Keys(home.home))
    originals = {source.digest: source.raw for one in chain for source in one.sources if source.raw}
    return (
        sorted(json.dumps(row, default=str, sort_keys=True) for row in frame.to_dict("records")),
        sorted(json.dumps(entry, sort_keys=True) for entry in entries),
        originals,
    )


def consistent(home):
    """Every file that a manifest names is there and verified; every record is there once and whole."""
    chain = published.chain(home.store, "acme")
    for manifest in chain:
        for file in (file for files in manifest.files.values() for file in files):
            published.verify(home.store, file)
        for source in manifest.sources:
            if source.raw:
                assert b"".join(original(home.store, Keys(home.home), "acme", "g", source.digest))
        rows = {kind: sum(file.rows for file in files) for kind, files in manifest.files.items()}
        assert rows.get("trajectories", 0) == rows.get("index", 0) == manifest.trajectories
        assert rows.get("events", 0) == 5 * manifest.trajectories
    found = records(home.store, "acme")
    assert len(found) == len(set(found)) == sum(one.trajectories for one in chain)
    if found:
        use = {"purpose": "train_sft", "tenant": "acme", "base_model": "m", "manifest_digest": "0" * 64}
        assert len(list(trajectories(home.store, authorise(home.ledger, found, at=NOW, **use)))) == len(found)
    return len(found)


def stray(home):
    """Objects that no manifest names, and scratch files."""
    chain = published.chain(home.store, "acme")
    named = {file.name for one in chain for files in one.files.values() for file in files}
    named |= {source.raw for one in chain for source in one.sources}
    named |= {published.manifest_place("acme", one.name) for one in chain}
    scratch = [path for path in (home.home / "scratch").rglob("*") if path.is_file() and path.name != ".lock"]
    return sorted(set(home.store.names("acme")) - named - {"acme/refs/trajectories"}), scratch


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """What an ingest that nothing interrupts leaves, and how long it takes after it has begun, by number of workers."""
    found, durations = [], {}
    for workers in (1, 2):
        home = landed(world(tmp_path_factory.mktemp("undisturbed")))
        process = child(home, workers)
        process.stdout.readline()
        started = time.monotonic()
        assert process.wait() == 0
        process.stdout.close()
        durations[workers] = time.monotonic() - started
        assert len(published.chain(home.store, "acme")) >= 4
        assert consistent(home) == RECORDS
        assert stray(home) == ([], [])
        found.append(content(home))
    assert found[0] == found[1]
    return found[0], durations


def killed(home, workers, moment, group):
    """Begin an ingest and kill it after `moment` seconds; returns whether it was still running."""
    process = child(home, workers)
    alive = False
    try:
        process.stdout.readline()
        time.sleep(moment)
        alive = process.poll() is None
        if not group:
            # The workers find out by themselves; what they still do must harm nobody.
            process.kill()
            process.wait()
            time.sleep(0.2)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
    return alive


@pytest.mark.parametrize(
    ("workers", "kills", "seed"),
    [
        (1, 3, 0),
        (2, 2, 0),
        *(pytest.param(workers, 5, seed, marks=pytest.mark.slow) for workers in (1, 2) for seed in range(1, 5)),
    ],
)
def test_killed_at_random_moments_the_store_is_whole_and_the_rerun_completes_it(
    tmp_path, undisturbed, workers, kills, seed
):
    """The slow ones kill at twenty moments each way."""
    expected, durations = undisturbed
    chance, longest = random.Random(f"{workers} {seed}"), 1.1 * durations[workers]
    interrupted, stores = 0, 0
    home = landed(world(tmp_path / "0"))
    while interrupted < kills:
        if killed(home, workers, chance.uniform(0, longest), group=chance.random() < 0.5):
            interrupted += 1
        else:
            # The machine has become faster since: one that was done already is no kill.
            longest *= 0.6
        # Each store is killed again and again until it is complete; then the next begins.
        if consistent(home) == RECORDS or interrupted == kills:
            home.ingest()
            assert consistent(home) == RECORDS
            assert content(home) == expected
            assert stray(home)[1] == []
            assert home.ingest().batches == ()
            stores += 1
            home = landed(world(tmp_path / str(stores)))


@pytest.mark.parametrize("step", range(13))
def test_failing_at_every_single_write_leaves_the_store_as_before(tmp_path, step, monkeypatch):
    home = world(tmp_path)
    home.land("first.jsonl", [document(1000)])
    home.ingest()
    home.land("more.jsonl", [document(0), "broken"])
    writes = iter(range(100))

    class PowerCut(BaseException):
        pass

    def counted(original):
        def write(*arguments):
            if next(writes) == step:
                raise PowerCut
            return original(*arguments)

        return write

    with monkeypatch.context() as patch:
        for name in ("create", "create_file", "swap"):
            patch.setattr(home.store, name, counted(getattr(home.store, name)))
        try:
            home.ingest()
        except PowerCut:
            assert len(index(home.store, "acme")) == 1
        else:
            assert next(writes) <= step + 1
    home.ingest()
    assert len(index(home.store, "acme")) == 2
    assert home.ingest().batch is None
    assert stray(home) == ([], [])
