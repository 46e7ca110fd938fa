"""SIGKILL in the middle of intake: the store is as before or as after, and the rerun completes it."""

import os
import random
import signal
import time

import pytest
from intake_world import NOW, document, world

from ratchet.intake import index, records, trajectories
from ratchet.intake.published import chain
from ratchet.intake.secrets import SecretScanner
from ratchet.rights import authorise

RECORDS = 120


def _run(home, pipe):
    """Ingest in a child that reports when it begins; returns its pid."""
    child = os.fork()
    if child:
        return child
    os.write(pipe, b"!")
    try:
        home.ingest()
    finally:
        os._exit(0)


@pytest.mark.parametrize("seed", range(4))
def test_killed_at_a_random_moment_it_is_all_or_nothing(tmp_path, seed):
    home = world(tmp_path)
    home.land("first.jsonl", [document(1000)])
    home.ingest()
    home.land("more.jsonl", [document(number) for number in range(RECORDS)] + ["broken"])
    SecretScanner()
    whole = world(tmp_path / "calibration")
    whole.land("more.jsonl", [document(number) for number in range(RECORDS)])
    started = time.monotonic()
    whole.ingest()
    duration = time.monotonic() - started

    chance = random.Random(seed)
    for _ in range(3):
        reader, writer = os.pipe()
        child = _run(home, writer)
        os.read(reader, 1)
        # The last third is where files, manifest and pointer are written.
        time.sleep(duration * (chance.random() if chance.random() < 0.4 else 0.7 + 0.5 * chance.random()))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reader)
        os.close(writer)
        assert len(index(home.store, "acme")) in (1, 1 + RECORDS)
        assert len(chain(home.store, "acme")) in (1, 2)

    home.ingest()
    found = records(home.store, "acme")
    assert len(found) == len(set(found)) == 1 + RECORDS
    use = {"purpose": "train_sft", "tenant": "acme", "base_model": "m", "manifest_digest": "0" * 64}
    assert len(list(trajectories(home.store, authorise(home.ledger, found, at=NOW, **use)))) == 1 + RECORDS
    assert home.ingest().batch is None


@pytest.mark.parametrize("step", range(9))
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
        for name in ("create", "swap"):
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
