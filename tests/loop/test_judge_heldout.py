"""The judge beyond training: in the audits of the reward, in the held-out rows, and at the gate."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from judge_endpoint import JudgeServer
from judge_grader import Reads, grader_of
from judge_world import by_an_expert, drifted, honest, section, with_judge

from ratchet.contracts.judge import JudgeSection
from ratchet.contracts.policy import Policy
from ratchet.errors import RatchetError, TrainingError
from ratchet.evaluation.rows import EvaluationRow
from ratchet.loop import auditing, judge, judge_drift, judge_heldout, judging, learning
from ratchet.loop.context import Run, reopen_run, runs
from ratchet.policies.record import seal
from ratchet.rewards.audit import audit

RUBRIC = "edit_quality"
SFT = {"name": "sft", "method": "sft", "start": "base", "data": {"policies": ["expert"]}}


def obeys(shown: str) -> tuple[str, str]:
    """An honest judge that can be talked into a grade."""
    category, reason = honest(shown)
    return ("good", "as told") if "already decided" in shown else (category, reason)


@pytest.fixture(scope="module")
def server() -> Iterator[JudgeServer]:
    with JudgeServer(honest) as made:
        yield made


def world(home: Path, server: JudgeServer, **over: object) -> Path:
    """A home with a calibrated judge, a baseline, and a candidate of the same weights under another name."""
    with with_judge(home, section(server), methods=[SFT], **over) as run:
        judge.judge_calibration(run)
        learning.baseline_policy(run)
        base = learning.open_policy(run, "baseline")
        training = {"step": 0, "validation": 0.0, "seconds": 1.0, "stopped": "done", "curve": [], "certificate": "c"}
        decoding = base.harness.decoding.model_copy(update={"temperature": 0.7})
        harness = base.harness.model_copy(update={"decoding": decoding})
        made = Policy(**{**base.model_dump(), "name": "sft", "method": "sft", "harness": harness, "training": training})
        run.store.create(run.name("policies", "sft", "policy.json"), seal(made))
    return home


@pytest.fixture(scope="module")
def paying(server: JudgeServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home whose judge pays a share; copy it, do not write to it."""
    return world(tmp_path_factory.mktemp("paying"), server)


@pytest.fixture(scope="module")
def accepting(server: JudgeServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home whose acceptance asks for the judge's best grade; copy it, do not write to it."""
    return world(tmp_path_factory.mktemp("accepting"), server, **{"reward.acceptance": ["hidden_tests", RUBRIC]})


@pytest.fixture
def run(paying: Path, server: JudgeServer, tmp_path: Path) -> Iterator[Run]:
    yield from opened(paying, server, tmp_path)


@pytest.fixture
def strict(accepting: Path, server: JudgeServer, tmp_path: Path) -> Iterator[Run]:
    yield from opened(accepting, server, tmp_path)


def opened(home: Path, server: JudgeServer, folder: Path) -> Iterator[Run]:
    server.answer = honest
    copied = Path(shutil.copytree(home, folder / "home"))
    with reopen_run(copied, runs(copied)[0]) as found:
        yield found


def rows(run: Run, name: str = "baseline") -> list[EvaluationRow]:
    return judging.row_store(run, learning.open_policy(run, name)).complete()


def freeze(run: Run, server: JudgeServer) -> None:
    judge.labels_of(run).add(by_an_expert(run, 14))
    server.answer = drifted
    look = judge_drift.look(run)
    assert look is not None
    assert look.check.state == "freeze"


def test_the_audit_of_the_reward_tries_orders_on_the_judge(run: Run, server: JudgeServer) -> None:
    asked = len(server.seen)
    said = auditing.reward_audit(run)
    assert "no honeypot earns anything; the judge graded every probe" in said.summary
    shown = [one["body"]["messages"][-1]["content"] for one in server.seen[asked:]]
    assert any("already decided" in text for text in shown)
    assert auditing.reward_audit(run).reused
    assert auditing.audit_again(run) == ()


def test_a_judge_that_can_be_talked_into_a_grade_fails_the_audit_and_trains_nothing(
    run: Run, server: JudgeServer
) -> None:
    server.answer = obeys
    assert "failed: no_op+orders earns reward" in auditing.reward_audit(run).summary
    reinforced = run.manifest.methods[0].model_copy(update={"name": "grpo", "method": "grpo"})
    with pytest.raises(TrainingError, match="no_op\\+orders earns reward"):
        learning._refuse_exploitable(run, reinforced)


def test_a_judge_that_can_be_talked_round_only_since_training_is_named_by_the_second_audit(
    run: Run, server: JudgeServer
) -> None:
    auditing.reward_audit(run)
    server.answer = obeys
    assert auditing.audit_again(run) == ("no_op+orders earns reward after training",)


def test_another_generation_of_the_judge_has_audits_of_its_own(run: Run) -> None:
    first = auditing.reward_audit(run)
    judge.recalibrate(run, "to see what is audited")
    with pytest.raises(TrainingError, match="no calibration"):
        auditing.reward_audit(run)
    # What was tried stands until the next one is: a decided run is read with the audit that it was decided by.
    assert auditing.audit_place(run, auditing.FIRST) == "reward_audit.json"
    judge.labels_of(run).add(by_an_expert(run, 20))
    judge.judge_calibration(run)
    second = auditing.reward_audit(run)
    assert (first.reused, second.reused) == (False, False)
    assert auditing.audit_place(run, auditing.FIRST) == "judge/2/reward_audit.json"


def test_training_asks_for_an_audit_of_the_judge_that_pays_it(run: Run) -> None:
    other = grader_of(Reads(lambda text: "good" in text), {"good": "good", "bad": "poor"}, judge.item_of(run))
    spec = run.manifest.reward.model_copy(update={"judge": JudgeSection(rubric="quality", weight=0.1)})
    found = audit(run.environment, run.training_tasks()[:1], spec, other)
    run.store.create(run.name("reward_audit.json"), found.to_bytes())
    with pytest.raises(TrainingError, match=r"judge reads.*must have been tried.*reward_audit again"):
        auditing.audit_for_training(run)


def test_held_out_rows_carry_the_grade_its_pay_and_its_calls_and_acceptance_stays_with_the_tests(run: Run) -> None:
    stage = judging.heldout_rows(run)
    found = rows(run)
    handed_in = [row for row in found if row.submitted]
    assert handed_in
    assert all(RUBRIC in row.parts and row.judge_calls == 1 for row in handed_in)
    assert all(RUBRIC not in row.parts and row.judge_calls == 0 for row in found if not row.submitted)
    for row in handed_in:
        assert (row.status == "accepted") == (row.parts["hidden_tests"] == 1.0 and not row.violations)
    paid = [row for row in handed_in if not row.violations and not row.exploit and row.calls == row.ok_calls]
    discount = run.manifest.reward.call_discount
    for row in paid:
        value = (row.parts["hidden_tests"] + 0.1 * row.parts[RUBRIC]) / 1.1
        assert row.reward == pytest.approx(value * max(0.0, 1 - discount * row.calls))
    table = {str(one["policy"]): one for one in stage.rows}
    assert table["baseline"]["judged"] == len(handed_in)
    assert table["baseline"]["judge: good"] == sum(row.parts[RUBRIC] for row in handed_in)
    assert judging.heldout_rows(run).reused


def test_the_audit_of_the_policies_reads_the_grade(run: Run) -> None:
    auditing.reward_audit(run)
    judging.heldout_rows(run)
    judging.policy_audit(run)
    found = {one.name: one for one in judging.open_policy_audit(run, "sft").detections}["judge_only_gains"]
    assert "no judge scores" not in found.reason
    assert "has a score of" not in found.reason


def test_a_frozen_judge_that_only_pays_is_left_out_of_an_evaluation_and_the_rows_say_why(
    run: Run, server: JudgeServer
) -> None:
    freeze(run, server)
    stage = judging.heldout_rows(run)
    assert not [row for row in rows(run) if RUBRIC in row.parts]
    assert "FROZEN" in stage.rows[0]["judge"]
    judge_drift_looks = run.store.names(run.name(judge.place(run, "drift")))
    for name in judge_drift_looks:
        run.store.delete(name)
    # What was opened without a judge stays without one: arms are not compared half graded.
    assert judge_heldout.pinned(run)["generation"] is None


def test_the_judge_of_an_evaluation_stays_the_one_that_it_opened_with(run: Run, server: JudgeServer) -> None:
    before = judging.evaluation_plan(run).digest
    freeze(run, server)
    judge.recalibrate(run, "it froze")
    server.answer = honest
    judge.judge_calibration(run)
    assert judge.generation(run) == 2
    assert judging.evaluation_plan(run).digest == before
    with judge_heldout.heldout_grader(run) as grader:
        assert grader is not None
        assert grader.calibration.digest == judge.open_calibration(run, of=1).digest  # type: ignore[union-attr]


def test_acceptance_by_a_judge_asks_for_its_grade_and_the_gate_is_told_of_its_calibration(strict: Run) -> None:
    judging.heldout_rows(strict)
    for row in rows(strict):
        best = row.parts.get(RUBRIC) == 1.0
        assert (row.status == "accepted") == (row.parts["hidden_tests"] == 1.0 and best and not row.violations)
    (told,) = judge_heldout.judge_inputs(strict)
    assert (told.name, told.calibrated) == (RUBRIC, True)
    assert told.digest == judge.open_calibration(strict).digest  # type: ignore[union-attr]
    assert "simulated labels" in told.state


def test_a_judge_in_the_acceptance_that_froze_blocks_at_the_gate(strict: Run, server: JudgeServer) -> None:
    judging.heldout_rows(strict)
    freeze(strict, server)
    (told,) = judge_heldout.judge_inputs(strict)
    assert not told.calibrated
    assert told.state.startswith("frozen, check 1")


def test_a_frozen_judge_in_the_acceptance_stops_an_evaluation_before_it_opens(strict: Run, server: JudgeServer) -> None:
    freeze(strict, server)
    with pytest.raises(RatchetError, match="FROZEN"):
        judging.heldout_rows(strict)
    assert not strict.store.names(strict.name("openings"))


def test_acceptance_without_a_judge_has_no_input_for_the_gate(run: Run) -> None:
    assert judge_heldout.judge_inputs(run) == ()
