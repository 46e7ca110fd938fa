"""A searched harness is a candidate like any other: same weights, a digest of its own, the same held-out comparison."""

from __future__ import annotations

from pathlib import Path

import pytest
from loop_world import judge, prepare, small_manifest

from ratchet.contracts.policy import widened
from ratchet.evaluation.economics import training_cost
from ratchet.loop import judging, learning
from ratchet.loop.context import open_run
from ratchet.loop.wall_time import training_times
from ratchet.store.heldout import PREFIX

RUBRIC = {"acceptance": 0.01, "cost": 5.0, "violations": 0.0}
"""Cost alone decides, so that fewer calls win for sure."""
METHODS = [
    {
        "name": "harness",
        "method": "harness_search",
        "start": "base",
        "settings": {"rubric": RUBRIC, "cases": 20, "trials": 2, "finalists": 1, "final_repeats": 1,
                     "search": ["limits"]},
    },
    {
        "name": "sft",
        "method": "sft",
        "start": "harness",
        "data": {"policies": ["expert"]},
        "settings": {"epochs": 1},
    },
]  # fmt: skip
MANIFEST = small_manifest(
    **{
        "methods": METHODS,
        "reward.judge": None,
        "splits.train": 16,
        "splits.validation": 20,
        "splits.heldout": 10,
        "evaluation.seeds": [0],
        "logs": [{"agent": "expert", "episodes": 8, "format": "atif"}],
    }
)


@pytest.mark.slow
def test_the_winner_of_a_search_is_judged_like_any_candidate(tmp_path: Path) -> None:
    with open_run(tmp_path, MANIFEST) as run:
        prepare(run)
        (first,) = learning.train_method(run, "harness_search")
        (again,) = learning.train_method(run, "harness_search")
        learning.train_method(run, "sft")
        judge(run)
        base, found, trained = (learning.open_policy(run, name) for name in ("baseline", "harness", "sft"))
        cards = {card.name: card for card in judging.scorecards(run)}
        times = training_times(run)
    assert (first.reused, again.reused) == (False, True)
    assert found.weights_digest == base.weights_digest
    assert found.checkpoint != base.checkpoint
    assert found.harness.digest != base.harness.digest
    assert widened(found.harness, run.environment.spec, base.harness) == []
    assert found.training["search"]["rubric"] == RUBRIC
    validation = {task.task_id for task in run.validation_tasks()}
    assert set(found.training["search"]["cases"]) <= validation
    assert len(found.training["search"]["cases"]) == 20
    assert found.training["search"]["play_cost"] > 0
    # What starts from it acts under its harness.
    assert trained.harness == found.harness
    assert trained.weights_digest != base.weights_digest
    assert cards["harness"].policy_digest == found.digest
    assert cards["harness"].harness_digest == found.harness.digest
    assert cards["harness"].comparison is not None
    assert cards["harness"].cost.training == pytest.approx(training_cost(found.training, MANIFEST.prices))
    assert [(one.candidate, one.whole > one.seconds) for one in times] == [("harness", False), ("sft", True)]
    searched = (tmp_path / "work" / MANIFEST.run_id / "harness" / "played.jsonl").read_text()
    assert not any(task.task_id in searched for task in run.heldout_tasks())
    assert PREFIX not in searched
