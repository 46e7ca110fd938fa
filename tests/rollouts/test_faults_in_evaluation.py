"""Faults in a held-out evaluation: retried in its budget, counted with reasons, in no figure; too many stop it."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from faults import ALWAYS, Fault, Faulty

from ratchet.contracts.environment import Prices, Task
from ratchet.contracts.manifest import EvaluationSection, Reward, RewardPart
from ratchet.contracts.policy import Decoding, Harness, Policy
from ratchet.environments.repair import RepairEnvironment
from ratchet.errors import TooManyInvalid
from ratchet.evaluation.economics import Investment
from ratchet.evaluation.openings import Conditions, log_opening
from ratchet.evaluation.rows import EvaluationRow, RowStore
from ratchet.evaluation.run import Arm, failed, plan, run
from ratchet.evaluation.scorecard import scorecard
from ratchet.policies.checkpoint import STARTER, load
from ratchet.policies.rendering import Rendering
from ratchet.rewards.judges.grading import Grader
from ratchet.store import LocalStore

REWARD = Reward(parts=(RewardPart(verifier="hidden_tests", weight=1.0),))
TOOLS = ("read_report", "next_fix", "apply_fix", "revert", "run_tests", "submit")
HARNESS = Harness(tools=TOOLS, max_calls=8, decoding=Decoding(temperature=1.0, max_tokens_per_turn=3))
PRICES = Prices(
    currency="USD", per_million_input_tokens=1.0, per_million_output_tokens=2.0, per_sandbox_s=0.0,
    per_verifier_s=0.0, per_judge_call=0.0, per_trainer_hour=1.0,
)  # fmt: skip
SEEDS = (0, 1)
RETRIES = 2
MEASURED = {"latency_s", "sandbox_s", "verifier_s"}


@cache
def arm() -> Arm:
    model, tokenizer = load(STARTER)
    policy = Policy(name="starter", method="baseline", checkpoint="c", weights_digest="w", harness=HARNESS)
    return Arm(policy, model, Rendering(tokenizer))


def evaluated(
    environment: Any,
    tasks: list[Task],
    folder: Path,
    share: float = 1.0,
    reward: Reward = REWARD,
    grader: Grader | None = None,
) -> list[EvaluationRow]:
    section = EvaluationSection(seeds=SEEDS, minimum_effect=0.1, retries=RETRIES)
    what = plan("lock", "environment", "reward", tasks, SEEDS)
    log_opening(
        LocalStore(folder), Conditions.of(what), arm().policy, candidate=True, experiment="faults", by="test",
        at=datetime.now(UTC),
    )  # fmt: skip
    store = LocalStore(folder)
    (rows,) = run([arm()], what, tasks, environment, reward, section, store, max_invalid_share=share, grader=grader)
    return rows.complete()


def opened(tasks: list[Task], folder: Path) -> RowStore:
    policy = arm().policy
    what = plan("lock", "environment", "reward", tasks, SEEDS)
    return RowStore(LocalStore(folder), what, policy.digest, policy.harness.digest)


def figures(rows: list[EvaluationRow]) -> dict[str, Any]:
    """Every statistic of a scorecard that no clock measured."""
    card = scorecard(
        rows, None, method="baseline", manifest_digest="m", lock_digest="l", prices=PRICES,
        training=Investment.of([]), minimum_effect=0.1, max_void_share=1.0, resamples=1000,
    )  # fmt: skip
    kept = (
        "mean_of_seeds", "pass_hat", "tool_call_precision", "violations", "violation_rate", "violations_by_rule",
        "exploit_rate", "calls_per_run", "accepted_tasks",
    )  # fmt: skip
    return {name: card.model_dump(mode="json")[name] for name in kept}


def outcome(row: EvaluationRow) -> dict[str, Any]:
    return row.model_dump(exclude=MEASURED | {"evaluation", "attempts", "tokens_in", "tokens_out"})


@pytest.fixture(scope="module")
def chosen(tasks: list[Task]) -> list[Task]:
    return tasks[:6]


@pytest.fixture(scope="module")
def whole(environment: RepairEnvironment, chosen: list[Task], tmp_path_factory: Any) -> list[EvaluationRow]:
    """The rows where nothing fails."""
    return evaluated(environment, chosen, tmp_path_factory.mktemp("whole"))


@pytest.mark.parametrize("kind", ["raise", "kill", "garbage", "nan"])
def test_a_retry_that_succeeds_gives_the_row_that_no_fault_would_have_given(
    environment: RepairEnvironment, chosen: list[Task], whole: list[EvaluationRow], kind: str, tmp_path: Path
) -> None:
    broken = {
        (chosen[0].task_id, 0): Fault("reset", kind, times=1),
        (chosen[1].task_id, 1): Fault("tool", kind, times=2),
        (chosen[2].task_id, 0): Fault("deliverable", kind, times=1),
        chosen[3].task_id: Fault("verifier", kind, times=1),
    }
    found = evaluated(Faulty(environment, broken), chosen, tmp_path)
    assert [outcome(row) for row in found] == [outcome(row) for row in whole]
    assert sorted(row.attempts for row in found) == [1] * 8 + [2, 2, 2, 3]
    assert figures(found) == figures(whole)
    assert failed(found).mended == {"an earlier attempt was invalid": 4}
    assert failed(found).invalid == {}


@pytest.mark.parametrize("place", ["reset", "tool", "deliverable", "verifier"])
def test_what_stays_invalid_is_in_the_counts_and_in_no_statistic(
    environment: RepairEnvironment, chosen: list[Task], whole: list[EvaluationRow], place: str, tmp_path: Path
) -> None:
    lost = {chosen[0].task_id, chosen[4].task_id}
    broken = Faulty(environment, {name: Fault(place, "raise", ALWAYS) for name in lost})
    found = evaluated(broken, chosen, tmp_path)
    assert {row.task_id for row in found if row.status == "invalid"} == lost
    assert {row.attempts for row in found if row.status == "invalid"} == {RETRIES + 1}
    assert {row.reward for row in found if row.status == "invalid"} == {None}
    assert failed(found).invalid == {f"{place}: OSError: {place} died": 4}
    assert figures(found) == figures([row for row in whole if row.task_id not in lost])


def test_too_many_invalid_runs_stop_the_evaluation_and_the_next_call_goes_on_from_there(
    environment: RepairEnvironment, chosen: list[Task], whole: list[EvaluationRow], tmp_path: Path
) -> None:
    broken = Faulty(environment, {chosen[0].task_id: Fault("reset", "raise", ALWAYS)})
    for _ in range(2):  # the second call tries anew, and stops again
        with pytest.raises(TooManyInvalid, match=r"starter is '2 of 12 invalid'.*2 x reset: OSError: reset died"):
            evaluated(broken, chosen, tmp_path, share=0.1)
    assert broken.opened[chosen[0].task_id, 0] == 2 * (RETRIES + 1)
    kept = opened(chosen, tmp_path).complete()
    assert [outcome(row) for row in kept if row.status != "invalid"] == [outcome(row) for row in whole[2:]]
    repaired = Faulty(environment, {})
    found = evaluated(repaired, chosen, tmp_path, share=0.1)
    assert sum(repaired.opened.values()) == 2
    assert [outcome(row) for row in found] == [outcome(row) for row in whole]
    assert evaluated(Faulty(environment, {}), chosen, tmp_path, share=0.1) == found


def test_an_evaluation_within_its_share_is_not_tried_for_ever(
    environment: RepairEnvironment, chosen: list[Task], tmp_path: Path
) -> None:
    broken = Faulty(environment, {chosen[0].task_id: Fault("verifier", "raise", ALWAYS)})
    first = evaluated(broken, chosen, tmp_path, share=0.2)
    assert evaluated(broken, chosen, tmp_path, share=0.2) == first
    assert broken.opened[chosen[0].task_id, 0] == RETRIES + 1
