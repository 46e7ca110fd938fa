"""Where the wall time went: every part of a stage counts, in the order of the loop, and shares add up."""

from __future__ import annotations

from pathlib import Path

import pytest
from loop_world import MANIFEST

from ratchet.loop.context import open_run, reopen_run
from ratchet.loop.wall_time import Spent, breakdown, keep, told


def test_parts_of_a_stage_add_up_and_are_read_back_from_the_runs_folder(tmp_path: Path) -> None:
    with open_run(tmp_path, MANIFEST) as run:
        assert breakdown(run) == []
        assert told([]) == []
        for name, seconds, ended in (("split_lock", 2.0, "done"), ("sft_policy", 5.0, "failed"),
                                     ("audit", 1.0, "done"), ("sft_policy", 12.0, "done")):  # fmt: skip
            keep(run, name, seconds, ended)
    with reopen_run(tmp_path, MANIFEST.run_id) as run:
        found = breakdown(run)
    assert found == [Spent("split_lock", 2.0, 1), Spent("sft_policy", 17.0, 2), Spent("audit", 1.0, 1)]
    lines = told(found)
    assert lines[1].split() == ["sft_policy", "17.0", "s", "85%", "in", "2", "launches"]
    assert lines[-1].split() == ["all", "stages", "20.0", "s"]


def test_another_run_of_the_home_has_its_own(tmp_path: Path) -> None:
    other = MANIFEST.model_copy(update={"seed": 1})
    with open_run(tmp_path, MANIFEST) as run, open_run(tmp_path, other) as second:
        keep(run, "split_lock", 2.0, "done")
        assert breakdown(second) == []
        assert sum(one.seconds for one in breakdown(run)) == pytest.approx(2.0)
