"""A grant that is withdrawn while a trainer runs stops it, in its own process, at the next epoch."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from loop_world import small_manifest
from partner_world import FIRST, PARTNER, end, grant, land, plant

from ratchet import progress
from ratchet.errors import RightsError
from ratchet.loop import data, learning
from ratchet.loop.context import Run, open_run, reopen_run, runs
from ratchet.loop.data import demonstrations
from ratchet.loop.erasing import erase
from ratchet.loop.lineage import Lineage

LONG: dict[str, Any] = {"methods.sft.settings.epochs": 8}
"""More epochs than are reached before the withdrawal, and few enough to be trained afterwards."""


@pytest.fixture
def lines() -> Iterator[list[str]]:
    """What the loop says, with a place to react to it."""
    told: list[str] = []
    before = progress.set_sink(told.append)
    yield told
    progress.set_sink(before)


def start(home: Path, **overrides: Any) -> Run:
    """The prepared experiment with other settings of its training: the same tasks, logs and lock."""
    run = open_run(home, small_manifest(**overrides))
    with reopen_run(home, runs(home)[0]) as before:
        for name in ("tasks.jsonl", "reward_audit.json"):
            run.store.create(run.name(name), before.store.read(before.name(name)))
    data.split_lock(run)
    learning.baseline_policy(run)
    return run


@pytest.mark.slow
def test_a_withdrawal_during_training_stops_the_process_and_a_new_grant_lets_it_run_again(
    ready: Path, lines: list[str]
) -> None:
    with reopen_run(ready, runs(ready)[0]) as before:
        grant(before)
        land(before, "partner.jsonl", plant)
    with start(ready, **LONG) as run:
        withdrawn: list[str] = []

        def react(line: str) -> None:
            lines.append(line)
            if not withdrawn and re.search(r"sft: step \d+/", line):
                end(run)
                withdrawn.append(line)

        progress.set_sink(react)
        assert demonstrations(run, ["expert"], accepted_only=True, purpose="train_sft").grant_ids == (PARTNER, FIRST)
        with pytest.raises(RightsError) as caught:
            learning.train_method(run, "sft")
        right = run.rights.effective(PARTNER, run.now())
        assert right.since is not None
        assert f"grant 'partner': it was withdrawn on {right.since.isoformat(timespec='seconds')}" in str(caught.value)
        assert withdrawn
        last = max(int(found[1]) for line in lines if (found := re.search(r"sft: step (\d+)/", line)))
        total = int(re.search(r"sft: step \d+/(\d+)", withdrawn[0])[1])  # type: ignore[index]
        assert last < total
        assert not run.store.exists(run.name("policies", "sft", "policy.json"))
        assert not run.store.names(run.name("policies", "sft"))
        assert [one.policy.name for one in Lineage(ready).learners if one.run_id == run.manifest.run_id] == ["baseline"]
        # What the stopped training was given stays on record, though no policy came of it.
        (record,) = [name for name in run.store.names(run.name("trainings")) if "/sft-" in name]
        assert json.loads(run.store.read(record))["content"]["grants"][PARTNER] == 1
        with pytest.raises(RightsError, match="grant 'partner': it was withdrawn on"):
            learning.train_method(run, "sft")
        erase(ready, PARTNER, by="steward", reason="the partner withdrew", at=run.now())
        grant(run, "renewed")
        land(run, "again.jsonl", plant, grant_id="renewed")
        (done,) = learning.train_method(run, "sft")
        assert not done.reused
        seen = set(Lineage(ready).grants(learning.open_policy(run, "sft").digest))
        assert seen == {FIRST, "renewed"}
