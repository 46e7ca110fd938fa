"""Several processes and several batches: the same comes in, a death is one clear error, and a rerun completes."""

import dataclasses
import json
import multiprocessing
import os
import signal
import struct
import subprocess
import sys

import pytest
from intake_world import chat, world

from ratchet.errors import IntakeError
from ratchet.intake import crew, cutting, index, judging
from ratchet.intake.published import chain
from ratchet.intake.records import Rejected

# The function of that name hides the module in the package.
ingesting = sys.modules["ratchet.intake.ingest"]


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home whose landing folder holds a long file of many pieces, a document, a broken file and a copy."""
    monkeypatch.setattr(cutting, "PIECE_BYTES", 10_000)
    monkeypatch.setattr(cutting, "_BLOCK", 2_000)
    return land(world(tmp_path))


def land(home):
    records = [chat({"role": "user", "content": f"number {at} " + "x" * 500}) for at in range(200)]
    lines = [json.dumps(record) for record in records]
    lines[77] = '{"messages": NaN}'
    home.land("a.jsonl", "\n".join(lines).encode())
    home.land("b.json", [records[3], chat(model="m")])
    home.land("c.txt", b"notes")
    home.land("d.jsonl", "\n".join(lines[:50]).encode())
    return home


def figures(report):
    return report.model_dump(exclude={"seconds", "workers"})


def test_what_comes_in_does_not_depend_on_the_number_of_processes(home, tmp_path_factory):
    alone = home.ingest(workers=1)
    other = land(world(tmp_path_factory.mktemp("other")))
    together = other.ingest(workers=2)
    assert figures(together) == figures(alone)
    assert (alone.stored, alone.duplicates, alone.quarantined) == (200, 51, 2)
    frames = [index(one.store, "acme").drop(columns="ingested_at") for one in (home, other)]
    assert frames[0].equals(frames[1])
    assert together.workers == 2


def test_what_comes_in_does_not_depend_on_how_much_is_held_at_a_time(home, tmp_path_factory, monkeypatch):
    together = home.ingest(workers=1)
    monkeypatch.setattr(judging, "DECODED_BYTES", 300)
    monkeypatch.setattr(judging, "GROUP_BYTES", 900)
    other = land(world(tmp_path_factory.mktemp("other")))
    apart = other.ingest(workers=1)
    names = {"batch", "batches", "seconds"}
    assert apart.model_dump(exclude=names) == together.model_dump(exclude=names)
    frames = [index(one.store, "acme").drop(columns=["ingested_at", "batch"]) for one in (home, other)]
    assert frames[0].equals(frames[1])


def test_a_worker_loads_no_pandas_and_leaves_it_to_others():
    steps = "import sys; from ratchet.intake.crew import _leave_pandas_out as out; out(); import pyarrow as pa; "
    check = "pa.array(['a']); assert 'pandas' not in sys.modules; import pandas; print(len(pandas.Series([1])))"
    done = subprocess.run([sys.executable, "-c", steps + check], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"


def test_a_worker_that_dies_is_one_clear_error_and_the_rerun_completes(home):
    def kill(_):
        for child in multiprocessing.active_children():
            os.kill(child.pid, signal.SIGKILL)

    with pytest.raises(IntakeError, match="a worker process of the intake: it must not end before its work is done"):
        home.ingest(workers=2, progress=kill)
    assert home.store.names("acme") == []
    assert list((home.home / "scratch" / "intake" / "acme" / "g").iterdir()) == []
    assert home.ingest(workers=1).stored == 200


def test_a_worker_that_dies_in_the_middle_of_its_answer_is_seen_as_well(home, monkeypatch):
    pools = []

    class Kept(crew.ProcessPoolExecutor):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            pools.append(self)

    def kill(_):
        for child in multiprocessing.active_children():
            os.kill(child.pid, signal.SIGKILL)
        # What a worker leaves that is killed while it writes: the length of its answer, and the first byte.
        os.write(pools[-1]._result_queue._writer.fileno(), struct.pack("!i", 1000) + b"x")

    monkeypatch.setattr(crew, "ProcessPoolExecutor", Kept)
    with pytest.raises(IntakeError, match="a worker process of the intake: it must not end before its work is done"):
        home.ingest(workers=2, progress=kill)
    assert multiprocessing.active_children() == []


def test_ctrl_c_stops_the_workers_and_leaves_nothing_half(home):
    def interrupt(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        home.ingest(workers=2, progress=interrupt)
    assert multiprocessing.active_children() == []
    assert home.store.names("acme") == []


def test_an_interrupted_ingest_keeps_the_batches_it_published_and_the_rerun_adds_the_rest(home, monkeypatch):
    monkeypatch.setattr(ingesting, "BATCH_BYTES", 30_000)
    seen = []

    def interrupt(count):
        seen.append(count)
        if len(seen) == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        home.ingest(progress=interrupt)
    first = chain(home.store, "acme")
    before = len(index(home.store, "acme"))
    assert len(first) >= 1
    assert 0 < before < 200
    rest = home.ingest()
    assert rest.stored == 200 - before
    assert len(rest.batches) > 1
    frame = index(home.store, "acme")
    assert (len(frame), frame["digest"].nunique()) == (200, 200)
    names = [source.name for manifest in chain(home.store, "acme") for source in manifest.sources]
    assert {"a.jsonl", "b.json", "c.txt"} <= set(names)
    assert home.ingest().batch is None


def test_a_reader_that_fails_costs_its_source_and_not_the_others(home, monkeypatch):
    real = judging.named

    class Failing:
        LINES = True

        def read(self, data, source):
            if source == "d.jsonl":
                yield next(iter(real("openai_chat").read(data, source)))
                raise RuntimeError("a secret message")
            yield from real("openai_chat").read(data, source)

    monkeypatch.setattr(judging, "named", lambda name: Failing())
    report = home.ingest()
    assert report.reasons["reader_failed"] > 0
    assert report.stored == 200
    assert "secret message" not in repr(report)


def test_a_file_that_changes_while_it_is_read_is_refused(home):
    path = home.landing / "a.jsonl"

    def shorten(_):
        os.truncate(path, 5_000)

    with pytest.raises(IntakeError, match="must not change while it is being read"):
        home.ingest(path, progress=shorten)
    assert home.store.names("acme") == []


def test_what_was_dropped_is_counted(home, monkeypatch):
    real = judging.named("openai_chat")

    class Counting:
        LINES = True

        def read(self, data, source):
            for item in real.read(data, source):
                yield item if isinstance(item, Rejected) else dataclasses.replace(item, dropped=("usage", "usage"))

    monkeypatch.setattr(judging, "named", lambda name: Counting())
    assert home.ingest(home.landing / "b.json").dropped == {"usage": 4}


def test_a_number_of_workers_below_one_is_refused(home):
    with pytest.raises(IntakeError, match="at least one"):
        home.ingest(workers=0)
