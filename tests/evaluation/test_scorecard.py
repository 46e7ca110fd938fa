"""The scorecard: reference comparison, order-free, void and zero in words, any pair comparable."""

from __future__ import annotations

import random

import numpy as np
import pytest
from heldout_rows import block, card, plan, row, rows
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from ratchet.contracts.score import NotComputable
from ratchet.errors import EvaluationError, IntegrityError
from ratchet.evaluation.arm import Arm
from ratchet.evaluation.compare import compare
from ratchet.evaluation.curves import learning_curves
from ratchet.evaluation.power import detectable_effect
from ratchet.evaluation.scorecard import Scorecard, read_scorecard

REFERENCE = plan(400, 3)
INCUMBENT = rows(REFERENCE, block(246, 400, 3), "incumbent")
# 20 tasks lost, 84 gained: 310 of 400
CANDIDATE = rows(REFERENCE, block(310, 400, 3, start=20))


def test_reference_comparison() -> None:
    found = card(CANDIDATE, INCUMBENT, [420.0, 1180.0], resamples=10_000)
    assert (found.n_tasks, found.accepted_tasks, found.seeds) == (400, 310, (0, 1, 2))
    assert found.comparison is not None
    assert (found.comparison.regressed, found.comparison.gained) == (20, 84)
    assert found.comparison.mcnemar_p == pytest.approx(1.6e-10, rel=0.03)
    paired = found.comparison.paired_difference
    assert paired.value == pytest.approx(0.16)
    assert (paired.low, paired.high) == pytest.approx((0.113, 0.207), abs=0.004)
    assert paired.p < 1e-3
    # Wald's standard error is .0242 here: (1.96 + .84) times it.
    assert paired.detectable_effect == pytest.approx(0.0678, abs=0.002)
    assert (found.acceptance.low, found.acceptance.high) == pytest.approx((0.732, 0.813), abs=0.006)
    # 2.18 per run, three runs per task, training of 1,600: each accepted task stands for three accepted runs.
    assert found.cost.variable_per_accepted == pytest.approx(2.18 * 400 / 310)
    assert found.cost.break_even.value == 2187
    assert found.cost.break_even.low < 2187 < found.cost.break_even.high
    assert found.cost.training == 1180
    assert found.cost.training_cumulative == 1600
    assert found.cost.amortised == pytest.approx(2.18 * 400 / 310 + 0.16)


@settings(max_examples=5)
@given(st.randoms(use_true_random=False))
def test_rows_in_any_order_give_the_identical_scorecard(order: random.Random) -> None:
    planned = plan(40, 3, repos=9, segments=("a", "b", "c"))
    rng = np.random.default_rng(0)
    mine = rows(planned, rng.integers(-1, 2, (40, 3)), sandbox_s=0.1)
    theirs = rows(planned, rng.integers(0, 2, (40, 3)), "incumbent", latency_s=0.7)
    wanted = card(mine, theirs, [0.1, 0.2], max_void_share=1.0).digest
    order.shuffle(mine)
    order.shuffle(theirs)
    assert card(mine, theirs, [0.1, 0.2], max_void_share=1.0).digest == wanted


def test_clustered_tasks_widen_the_interval() -> None:
    repos = np.arange(400) % 40
    outcomes = np.repeat((repos % 5 < 3).astype(int)[:, None], 3, axis=1)
    shared, own = plan(400, 3, repos=40), plan(400, 3)
    wide = card(rows(shared, outcomes), None).acceptance
    narrow = card(rows(own, outcomes), None).acceptance
    assert wide.high - wide.low > 2.5 * (narrow.high - narrow.low)


@pytest.mark.parametrize(("tasks", "accepted"), [(400, 0), (400, 400), (20, 7)])
def test_exact_interval_at_the_ends_and_for_few_tasks(tasks: int, accepted: int) -> None:
    found = card(rows(plan(tasks), block(accepted, tasks, 3)), None)
    assert found.acceptance.method == "clopper-pearson"
    assert found.acceptance.low < found.acceptance.high


def test_zero_accepted_is_words_everywhere_a_cost_would_stand() -> None:
    found = card(rows(REFERENCE, block(0, 400, 3)), INCUMBENT, [420.0])
    body = found.model_dump(mode="json")["cost"]
    words = {"not_computable": "0 accepted results in the window"}
    assert [body[key] for key in ("variable_per_accepted", "loaded", "amortised")] == [words] * 3
    assert body["break_even"] == {"value": words, "low": words, "high": words}
    assert found.cost.floor_per_accepted == pytest.approx(2.18 * 1200 / 3)


def test_more_than_one_percent_invalid_tasks_void_the_evaluation_in_words() -> None:
    outcomes = block(246, 400, 3)
    outcomes[390:394, 1] = -1
    assert card(rows(REFERENCE, outcomes), None).void is None
    outcomes[394, 2] = -1
    found = card(rows(REFERENCE, outcomes), None)
    assert found.void is not None
    assert "5 of 400 tasks of 'candidate' stay invalid" in found.void
    assert "sandbox: died" in found.void
    for figure in (found.acceptance.value, found.mean_of_seeds.low, found.pass_hat[0], found.cost.loaded):
        assert isinstance(figure, NotComputable)
    assert found.accepted_tasks == 246


def test_a_void_incumbent_voids_the_comparison() -> None:
    broken = block(246, 400, 3)
    broken[:50, 0] = -1
    found = card(CANDIDATE, rows(REFERENCE, broken, "incumbent"))
    assert "'incumbent'" in str(found.void)
    assert found.comparison is not None
    assert isinstance(found.comparison.paired_difference.low, NotComputable)
    assert isinstance(found.segments[0].p_holm, NotComputable)


def test_an_invalid_seed_counts_against_the_majority_and_not_in_the_mean() -> None:
    outcomes = block(100, 100, 3)
    outcomes[0] = [1, -1, -1]
    found = card(rows(plan(100), outcomes), None)
    assert found.accepted_tasks == 99
    assert found.mean_of_seeds.value == 1.0


def test_behaviour_is_counted_over_valid_episodes() -> None:
    planned = plan(4, 1)
    mine = rows(planned, [[1], [0], [0], [-1]])
    mine[1] = mine[1].model_copy(update={"violations": ("refused_call", "veto", "veto"), "exploit": True})
    mine[3] = mine[3].model_copy(update={"violations": ("veto",), "exploit": True, "latency_s": 99.0, "calls": 50})
    found = card(mine, None, max_void_share=1.0)
    assert found.violations_by_rule == {"refused_call": 1, "veto": 2}
    assert (found.violations, found.violation_rate, found.exploit_rate) == (3, 1.0, pytest.approx(1 / 3))
    assert found.tool_call_precision == 0.75
    assert found.latency_s.p95 == 0.5
    assert found.cost.window_total == pytest.approx(4 * 2.18)


def test_exploits_are_counted_by_kind_over_valid_episodes() -> None:
    mine = rows(plan(3, 1), [[0], [0], [-1]])
    both = {"edited_tests": "touched a test", "read_answer": "opened the answer"}
    mine[0] = mine[0].model_copy(update={"exploit": True, "exploits": both})
    mine[1] = mine[1].model_copy(update={"exploit": True, "exploits": {"edited_tests": "again"}})
    mine[2] = mine[2].model_copy(update={"exploit": True, "exploits": {"edited_tests": "never counted"}})
    assert card(mine, None, max_void_share=1.0).exploits_by_kind == {"edited_tests": 2, "read_answer": 1}


def test_calls_that_match_a_reference_are_a_share_of_the_calls_of_tasks_that_carry_some() -> None:
    mine = rows(plan(3, 1), [[1], [0], [1]], calls=4, ok_calls=3)
    assert card(mine, None).reference_precision == NotComputable(reason="no task carries reference calls")
    mine[0] = mine[0].model_copy(update={"matched_calls": 3})
    mine[1] = mine[1].model_copy(update={"matched_calls": 0})
    found = card(mine, None)
    assert (found.reference_precision, found.tool_call_precision) == (3 / 8, 0.75)
    with pytest.raises(ValidationError, match="a call that failed matches nothing"):
        row(plan(1), 0, 0, "accepted", matched_calls=4)


def test_pass_hat_k_falls_with_k_and_the_curves_are_those_of_training() -> None:
    curves = learning_curves([{"step": 5, "loss": 0.5}, {"step": 10, "loss": 0.25}])
    outcomes = np.tile([1, 1, 0], (12, 1))
    found = card(rows(plan(12), outcomes), None, curves=curves)
    assert found.pass_hat == (pytest.approx(2 / 3), pytest.approx(1 / 3), 0.0)
    assert found.curves == {"loss": ((5, 0.5), (10, 0.25))}
    assert read_scorecard(found.to_bytes(), "card") == found


def test_every_segment_prints_what_it_could_show() -> None:
    planned = plan(120, 3, segments=("a", "b", "tiny"))
    outcomes = np.random.default_rng(1).integers(0, 2, (2, 120, 3))
    found = card(rows(planned, outcomes[0]), rows(planned, outcomes[1], "incumbent"))
    for segment in found.segments:
        assert segment.detectable_effect == detectable_effect(
            segment.n,
            (found.comparison.regressed + found.comparison.gained) / 120,
            alpha=0.05 / 3,
            one_sided=True,
        )


def test_no_call_and_no_valid_episode_are_said_in_words() -> None:
    quiet = card(rows(plan(2, 1), [[0], [0]], calls=0, ok_calls=0), None)
    assert quiet.tool_call_precision == NotComputable(reason="no tool call was made")
    dead = card(rows(plan(2, 1), [[-1], [-1]]), None)
    assert dead.exploit_rate == NotComputable(reason="no valid episode")
    assert dead.latency_s.p95 == NotComputable(reason="no valid episode")


def test_segments_name_the_one_that_broke() -> None:
    planned = plan(400, 3, segments=("good", "bad"))
    theirs = np.ones((400, 3), dtype=int)
    mine = theirs.copy()
    mine[1:80:2] = 0
    found = {s.name: s for s in card(rows(planned, mine), rows(planned, theirs, "incumbent")).segments}
    assert (found["bad"].n, found["bad"].regressed, found["bad"].difference) == (200, 40, -0.2)
    assert found["bad"].p_holm < 1e-6
    assert (found["good"].p_holm, found["good"].difference) == (1.0, 0.0)
    assert 0 < found["good"].detectable_effect < 0.1


def test_any_two_policies_can_be_compared() -> None:
    planned = plan(300, 3, repos=50)
    rng = np.random.default_rng(2)
    sft, grpo = rng.random((300, 3)) < 0.4, rng.random((300, 3)) < 0.6
    found = compare(Arm(rows(planned, grpo, "grpo")), Arm(rows(planned, sft, "sft")), minimum_effect=0.03)
    assert (found.candidate, found.reference, found.clusters) == ("grpo", "sft", 50)
    assert 0.03 < found.paired_difference.low < found.paired_difference.value < found.paired_difference.high
    assert found.paired_difference.p_above_minimum < 0.025
    back = compare(Arm(rows(planned, sft, "sft")), Arm(rows(planned, grpo, "grpo")))
    assert back.paired_difference.value == pytest.approx(-found.paired_difference.value)


def test_fewer_than_five_repos_carry_no_paired_interval() -> None:
    planned = plan(100, 3, repos=4)
    found = card(rows(planned, block(60, 100, 3)), rows(planned, block(40, 100, 3), "incumbent"), [1.0])
    assert found.comparison is not None
    assert found.comparison.paired_difference.low == NotComputable(reason="fewer than 5 independent repos")
    assert found.cost.break_even.high == NotComputable(reason="fewer than 5 independent repos")


def test_arms_of_two_evaluations_are_not_compared() -> None:
    with pytest.raises(EvaluationError, match="same tasks, seeds"):
        card(CANDIDATE, rows(plan(400, 2), block(246, 400, 2), "incumbent"))


@pytest.mark.parametrize("spoil", ["missing", "double", "mixed", "none"])
def test_incomplete_double_and_mixed_rows_are_refused(spoil: str) -> None:
    mine = rows(plan(5), block(2, 5, 3))
    spoiled = {
        "missing": mine[1:],
        "double": [*mine, mine[0]],
        "mixed": [*mine[1:], mine[0].model_copy(update={"policy_digest": "other"})],
        "none": [],
    }
    with pytest.raises(EvaluationError):
        card(spoiled[spoil], None)


def test_stored_scorecard_reopens_and_an_edited_one_does_not() -> None:
    found = card(rows(REFERENCE, block(0, 400, 3)), INCUMBENT)
    assert read_scorecard(found.to_bytes(), "card").digest == found.digest
    with pytest.raises(IntegrityError, match="digest"):
        read_scorecard(found.to_bytes().replace(b'"accepted_tasks":0', b'"accepted_tasks":9'), "card")
    with pytest.raises(IntegrityError, match=r"only by ratchet\.evaluation"):
        Scorecard(**found.model_dump())
    with pytest.raises(IntegrityError, match=r"only by ratchet\.evaluation"):
        Scorecard.model_validate(found.model_dump())
    with pytest.raises(IntegrityError, match="not edited"):
        found.model_copy(update={"accepted_tasks": 400})
    assert found.model_copy() == found
