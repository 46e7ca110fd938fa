"""The gate: promotes what is better and clean, and refuses everything else by the name of the rule."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from heldout_rows import block, card, plan, rows

from ratchet.contracts.canonical import digest
from ratchet.contracts.score import NotComputable
from ratchet.errors import IntegrityError
from ratchet.evaluation.scorecard import Scorecard
from ratchet.release.decision import Decision, Rule, read_decision
from ratchet.release.gate import decide
from ratchet.release.inputs import (
    AuditInput,
    ContaminationInput,
    GateInputs,
    IncumbentInput,
    JudgeInput,
    Limits,
    PermissionsInput,
    RightInput,
)

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
PLAN = plan(400, 3, repos=80, segments=("a", "b", "c", "d"))
THEIRS = rows(PLAN, block(120, 400, 3), "incumbent")
INCUMBENT = card(THEIRS, None)


def candidate(outcomes: np.ndarray | None = None, policy: str = "candidate", **over: Any) -> Scorecard:
    """A candidate with 280 of 400 tasks, unless told otherwise; `over` goes to every row."""
    table = block(280, 400, 3) if outcomes is None else outcomes
    return card(rows(PLAN, table, policy, **over), THEIRS, [420.0], minimum_effect=0.03)


CLEAN = candidate()


def inputs(**over: Any) -> GateInputs:
    body: dict[str, Any] = {
        "manifest_digest": "manifest",
        "lock_digest": "lock",
        "reward_digest": "reward",
        "limits": Limits(minimum_effect=0.03, max_latency_ratio=1.5, max_cost_ratio=1.2),
        "incumbent": IncumbentInput(digest="pin", version=None, released_for=None, evaluated_in="repair 1"),
        "contamination": ContaminationInput(digest="cert", lock_digest="lock", passed=True, findings=0),
        "rights": (RightInput(grant_id="logs", digest="grant", state="active", valid=True, rows=900),),
        "reward_audit": AuditInput(digest="tried", subject_digest="reward", passed=True),
        "policy_audit": AuditInput(digest="audit", subject_digest=digest("candidate"), passed=True),
        "permissions": PermissionsInput(incumbent_digest="harness", candidate_digest="harness", widened=()),
    }
    return GateInputs(**{**body, **over})


def judge(own: Scorecard = CLEAN, others: tuple[Scorecard, ...] = (), **over: Any) -> Decision:
    return decide(own, INCUMBENT, inputs(**over), others=others, decided_at=AT, decided_by="rule")


def failed(decision: Decision) -> dict[str, Rule]:
    return {rule.name: rule for rule in decision.rules if rule.passed is not True}


def test_a_better_and_clean_candidate_is_promoted() -> None:
    decision = judge()
    assert failed(decision) == {}
    assert (decision.state, decision.reasons) == ("promote", ())
    assert (decision.candidate, decision.incumbent) == ("candidate", "incumbent")
    assert decision.inputs["contamination"] == "cert"
    assert decision.inputs["scorecard:candidate"] == CLEAN.digest
    assert decision.inputs["rows:incumbent"] == INCUMBENT.rows_digest
    assert decision.inputs["right:logs"] == "grant"


def test_it_is_a_pure_function_of_its_inputs() -> None:
    assert judge().digest == judge().digest
    assert judge().digest != judge(limits=Limits(minimum_effect=0.03, max_latency_ratio=2, max_cost_ratio=1.2)).digest


@pytest.mark.parametrize(
    ("over", "name", "words"),
    [
        ({"incumbent": None}, "incumbent_ran_where_it_serves", "nobody looked"),
        ({"contamination": None}, "zero_contamination", "no contamination certificate"),
        (
            {"contamination": ContaminationInput(digest="c", lock_digest="lock", passed=False, findings=2)},
            "zero_contamination",
            "2 items",
        ),
        ({"rights": ()}, "training_rights_valid", "no grant"),
        *(
            (
                {"rights": (RightInput(grant_id="logs", digest="g", state=state, valid=False, rows=9),)},
                "training_rights_valid",
                f"'logs' is {state} \\(9 rows\\)",
            )
            for state in ("missing", "expired", "withdrawn", "foreign")
        ),
        (
            {
                "permissions": PermissionsInput(
                    incumbent_digest="harness", candidate_digest="harness", widened=("tool 'shell'",)
                )
            },
            "permissions_not_widened",
            "tool 'shell'",
        ),
        (
            {"judges": (JudgeInput(name="rubric", digest="j", calibrated=False, state="frozen"),)},
            "judges_calibrated",
            "'rubric' is frozen",
        ),
        ({"reward_audit": None}, "reward_audit_passed", "no exploitation audit of the reward"),
        ({"policy_audit": None}, "policy_audit_passed", "no exploitation audit of the candidate"),
        (
            {
                "reward_audit": AuditInput(
                    digest="a", subject_digest="reward", passed=False, failures=("skip_tests paid",)
                )
            },
            "reward_audit_passed",
            "skip_tests paid",
        ),
        (
            {
                "policy_audit": AuditInput(
                    digest="a", subject_digest=digest("candidate"), passed=False, failures=("visible_hidden_gap",)
                )
            },
            "policy_audit_passed",
            "visible_hidden_gap",
        ),
    ],
)
def test_each_planted_fault_is_rejected_by_name(over: dict[str, Any], name: str, words: str) -> None:
    decision = judge(**over)
    assert decision.state == "reject"
    assert list(failed(decision)) == [name]
    (reason,) = decision.reasons
    assert re.search(words, reason)


@pytest.mark.parametrize(
    ("over", "name"),
    [
        ({"exploit": True}, "exploit_rate_not_above_incumbent"),
        ({"violations": ("refused_call",)}, "violations_not_above_incumbent"),
        ({"latency_s": 0.76}, "latency_within_limit"),
        ({"sandbox_s": 2.18 * 280 / 120 * 1.21}, "cost_within_limit"),
    ],
)
def test_worse_behaviour_is_rejected_by_name(over: dict[str, Any], name: str) -> None:
    decision = judge(candidate(**over))
    assert decision.state == "reject"
    assert list(failed(decision)) == [name]


def test_an_honest_calibrated_judge_and_equal_misbehaviour_pass() -> None:
    decision = judge(judges=(JudgeInput(name="rubric", digest="j", calibrated=True, state="calibrated"),))
    assert decision.state == "promote"


def test_a_difference_that_may_be_below_the_minimum_effect_is_rejected() -> None:
    decision = judge(candidate(block(136, 400, 3)))
    rule = failed(decision)["paired_difference_above_minimum_effect"]
    assert decision.state == "reject"
    assert isinstance(rule.figure, float)
    assert rule.figure <= rule.threshold == 0.03
    assert "+4.0 points" in rule.reason


def test_the_incumbent_against_itself_is_rejected() -> None:
    decision = judge(candidate(block(120, 400, 3)))
    assert "paired_difference_above_minimum_effect" in failed(decision)


def test_zero_accepted_is_words_and_blocks() -> None:
    decision = judge(candidate(block(0, 400, 3)))
    rule = failed(decision)["cost_within_limit"]
    assert (rule.passed, rule.figure) == (None, NotComputable(reason="0 accepted results in the window"))
    assert decision.state == "reject"
    assert "not computable: 0 accepted results in the window" in " ".join(decision.reasons)


def test_a_void_evaluation_is_rejected_and_says_why() -> None:
    outcomes = block(280, 400, 3)
    outcomes[:9, 0] = -1
    decision = judge(candidate(outcomes))
    assert decision.state == "reject"
    assert failed(decision)["paired_difference_above_minimum_effect"].passed is None
    assert "9 of 400 tasks" in failed(decision)["evaluation_not_void"].reason


def test_a_winner_that_breaks_one_segment_is_rejected_for_it() -> None:
    outcomes = block(400, 400, 3)
    outcomes[::4] = 0
    decision = judge(candidate(outcomes))
    assert decision.state == "reject"
    assert list(failed(decision)) == ["no_segment_regression", "no_large_segment_drop"]
    assert "'a' -30.0 points" in failed(decision)["no_segment_regression"].reason


def _dropped(tasks: int, drop: int) -> Decision:
    """Segment `small` of `tasks` tasks loses `drop` of them and wins half of that back; the other wins everything."""
    planned = plan(400, 3, repos=80)
    small = [t.model_copy(update={"segment": "small"}) if i < tasks else t for i, t in enumerate(planned.tasks)]
    planned = planned.model_copy(update={"tasks": tuple(small)})
    theirs = np.zeros((400, 3), dtype=int)
    theirs[: tasks // 2] = 1
    mine = np.ones((400, 3), dtype=int)
    mine[:tasks] = theirs[:tasks]
    mine[:drop] = 0
    base = rows(planned, theirs, "incumbent")
    own = card(rows(planned, mine), base, [1.0], minimum_effect=0.03)
    return decide(own, card(base, None), inputs(), decided_at=AT, decided_by="rule")


def test_a_point_drop_over_ten_in_thirty_tasks_goes_to_review() -> None:
    decision = _dropped(30, 4)
    assert decision.state == "review"
    assert list(failed(decision)) == ["no_large_segment_drop"]
    assert "'small' -13.3 points" in decision.reasons[0]


def test_a_twelve_point_drop_of_runs_in_a_segment_of_thirty_goes_to_review_though_every_majority_holds() -> None:
    """18 of the 150 runs of the segment are lost, one each in 18 tasks; elsewhere the candidate wins everything."""
    planned = plan(400, 5, repos=80)
    small = [t.model_copy(update={"segment": "small"}) if i < 30 else t for i, t in enumerate(planned.tasks)]
    planned = planned.model_copy(update={"tasks": tuple(small)})
    theirs, mine = np.zeros((400, 5), dtype=int), np.ones((400, 5), dtype=int)
    theirs[:30] = 1
    mine[:18, 2] = 0
    base = rows(planned, theirs, "incumbent")
    own = card(rows(planned, mine), base, [1.0], minimum_effect=0.03)
    decision = decide(own, card(base, None), inputs(), decided_at=AT, decided_by="rule")
    assert decision.state == "review"
    assert list(failed(decision)) == ["no_large_segment_drop"]
    assert "'small' -12.0 points" in decision.reasons[0]
    (segment,) = [one for one in own.segments if one.name == "small"]
    assert (segment.n, segment.difference, segment.mean_difference) == (30, 0.0, pytest.approx(-0.12))
    assert isinstance(segment.detectable_effect, float)


@pytest.mark.parametrize(("tasks", "drop"), [(29, 4), (30, 3)])
def test_a_smaller_segment_or_exactly_ten_points_does_not(tasks: int, drop: int) -> None:
    assert _dropped(tasks, drop).state == "promote"


def test_holm_covers_the_other_candidates() -> None:
    # One-sided p is .006: enough alone and among three, not as one of twenty that opened the held-out set.
    weak = candidate(block(141, 400, 3))
    rest = [candidate(block(120, 400, 3), policy=f"other{i}") for i in range(2)]
    assert judge(weak, tuple(rest)).state == judge(weak).state == "promote"
    decision = judge(weak, tuple(rest[i % 2] for i in range(19)))
    assert list(failed(decision)) == ["difference_holds_among_candidates"]
    assert "Holm over 20 candidates" in decision.reasons[0]


def test_holm_covers_the_candidates_of_earlier_runs_on_the_same_tasks() -> None:
    weak = candidate(block(141, 400, 3))
    assert judge(weak, earlier_candidates=2).state == "promote"
    decision = judge(weak, (candidate(block(120, 400, 3), policy="other"),), earlier_candidates=8)
    assert list(failed(decision)) == ["difference_holds_among_candidates"]
    assert "Holm over 10 candidates, 8 of them judged on these tasks before" in decision.reasons[0]
    assert judge(CLEAN, earlier_candidates=8).state == "promote"


@pytest.mark.parametrize(
    ("over", "what"),
    [
        ({"lock_digest": "other"}, "split lock"),
        ({"manifest_digest": "other"}, "manifest"),
        ({"limits": Limits(minimum_effect=0.0, max_latency_ratio=2, max_cost_ratio=2)}, "minimum effect"),
        (
            {"permissions": PermissionsInput(incumbent_digest="x", candidate_digest="harness", widened=())},
            "harness of the incumbent",
        ),
        ({"policy_audit": AuditInput(digest="a", subject_digest="x", passed=True)}, "policy of the exploitation audit"),
        ({"reward_audit": AuditInput(digest="a", subject_digest="x", passed=True)}, "reward of the exploitation audit"),
        (
            {"contamination": ContaminationInput(digest="c", lock_digest="old", passed=True, findings=0)},
            "lock of the contamination certificate",
        ),
    ],
)
def test_inputs_that_do_not_belong_together_make_no_decision(over: dict[str, Any], what: str) -> None:
    with pytest.raises(IntegrityError, match=what):
        judge(**over)


def test_a_scorecard_without_a_comparison_makes_no_decision() -> None:
    with pytest.raises(IntegrityError, match="comparison"):
        judge(INCUMBENT)


def test_a_scorecard_against_another_incumbent_makes_no_decision() -> None:
    other = card(rows(PLAN, block(280, 400, 3)), rows(PLAN, block(120, 400, 3), "former"), minimum_effect=0.03)
    with pytest.raises(IntegrityError, match="comparison"):
        judge(other)


def test_stored_decision_reopens_and_an_edited_one_does_not() -> None:
    decision = judge(contamination=None)
    assert read_decision(decision.to_bytes(), "decision").digest == decision.digest
    with pytest.raises(IntegrityError, match="digest"):
        read_decision(decision.to_bytes().replace(b'"state":"reject"', b'"state":"promote"'), "decision")
    with pytest.raises(IntegrityError, match=r"only by ratchet\.release"):
        Decision(**decision.model_dump())
