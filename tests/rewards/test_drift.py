"""The sequential drift rule: seldom wrong over years, quick when the judge drifts, and frozen until recalibrated."""

import numpy as np
import pytest

from ratchet.contracts.judge import DriftRule
from ratchet.contracts.score import NotComputable
from ratchet.rewards.calibration.correction import corrected_share
from ratchet.rewards.calibration.drift import anchor_shift, check, operating_characteristics

RULE = DriftRule()
WEEKS = 52
GOOD = np.array([[56.0, 4.0], [4.0, 56.0]])
BAD = np.array([[45.0, 15.0], [15.0, 45.0]])


def test_an_honest_judge_is_frozen_in_under_two_percent_of_years_of_weekly_checks():
    found = operating_characteristics(RULE, [0.86] * WEEKS, years=4000, seed=1)
    assert found.frozen < 0.02
    assert 0.03 < found.warned < 0.06


def test_a_drop_to_0_70_is_caught_within_four_checks_in_95_percent():
    assert operating_characteristics(RULE, [0.70] * 4, years=4000, seed=2).within[3] > 0.95


def test_a_long_good_past_does_not_hide_the_drop():
    found = operating_characteristics(RULE, [0.86] * 40 + [0.70] * 4, years=4000, seed=3)
    assert found.within[43] > 0.95


@pytest.mark.parametrize(("prevalence", "false", "caught"), [(0.5, 0.02, 0.97), (0.3, 0.02, 0.94), (0.7, 0.02, 0.94)])
def test_the_figures_in_the_documents(prevalence, false, caught):
    good = operating_characteristics(RULE, [0.86] * WEEKS, prevalence=prevalence, years=20_000)
    bad = operating_characteristics(RULE, [0.70] * 4, prevalence=prevalence, years=20_000, seed=1)
    assert good.frozen < false
    assert bad.within[3] > caught


def test_two_warnings_in_a_row_would_freeze_an_honest_judge_more_than_five_times_as_often():
    rng = np.random.default_rng(5)
    tables = rng.multinomial(120, [0.465, 0.035, 0.035, 0.465], size=(3000, WEEKS))
    agreed = (tables[..., 0] + tables[..., 3]) / 120
    rows, columns = (tables[..., 2] + tables[..., 3]) / 120, (tables[..., 1] + tables[..., 3]) / 120
    chance = rows * columns + (1 - rows) * (1 - columns)
    warned = (agreed - chance) / (1 - chance) < RULE.floor
    twice = (warned[:, 1:] & warned[:, :-1]).any(axis=1).mean()
    assert twice > 5 * operating_characteristics(RULE, [0.86] * WEEKS, years=4000).frozen


def test_a_freeze_stays_until_a_recalibration_whatever_the_next_labels_say():
    last = None
    while last is None or last.state != "freeze":
        last = check(RULE, GOOD, last, BAD)
    assert last.number <= 2
    after = check(RULE, GOOD, last, GOOD)
    assert after.state == "freeze"
    assert check(RULE, GOOD, None, GOOD).state == "ok"


def test_one_reading_under_the_floor_warns_and_does_not_freeze():
    found = check(RULE, GOOD, None, np.array([[53.0, 7.0], [7.0, 53.0]]))
    assert (found.state, found.kappa) == ("warn", pytest.approx(0.7667, abs=1e-4))


def test_too_few_labels_are_no_reading_but_count_in_the_sequence():
    one = check(RULE, GOOD, None, np.array([[41.0, 7.0], [7.0, 41.0]]))
    assert one.state == "insufficient"
    assert one.statistic > 0
    few = np.array([[22.0, 8.0], [8.0, 22.0]])
    last = None
    for _ in range(6):
        last = check(RULE, GOOD, last, few)
    assert last.state == "freeze"


def test_no_labels_change_nothing_and_one_category_is_no_reading():
    before = check(RULE, GOOD, None, GOOD)
    nothing = check(RULE, GOOD, before, np.zeros((2, 2)))
    assert (nothing.state, nothing.statistic) == ("insufficient", before.statistic)
    single = check(RULE, GOOD, None, np.array([[0.0, 0.0], [0.0, 120.0]]))
    assert isinstance(single.kappa, NotComputable)
    assert single.state == "warn"


def test_thresholds_out_of_order_are_refused():
    with pytest.raises(ValueError, match="floor below calibrated"):
        DriftRule(floor=0.9)


def test_anchors_notice_a_changed_judge_by_mcnemar_s_exact_test():
    from statsmodels.stats.contingency_tables import mcnemar

    truth = ["yes"] * 30 + ["no"] * 30
    before = list(truth)
    now = ["no"] * 12 + truth[12:58] + ["yes"] * 2
    found = anchor_shift(truth, before, now)
    assert (found.became_right, found.became_wrong) == (0, 14)
    assert found.p_value == pytest.approx(mcnemar([[46, 14], [0, 0]], exact=True).pvalue, abs=1e-12)
    assert anchor_shift(truth, now, now).p_value == 1.0


def test_a_judge_s_acceptance_rate_is_corrected_by_rogan_and_gladen():
    found = corrected_share(60, 100, np.array([[80.0, 20.0], [10.0, 90.0]]))
    assert found.corrected == pytest.approx((0.6 + 0.8 - 1) / (0.9 + 0.8 - 1))
    assert found.interval.low < found.corrected < found.interval.high


@pytest.mark.parametrize(
    ("n", "labels", "why"),
    [
        (0, GOOD, "judged nothing"),
        (9, np.array([[0.0, 0.0], [5.0, 50.0]]), "one category"),
        (9, np.array([[5.0, 5.0], [5.0, 5.0]]), "no better than chance"),
    ],
)
def test_where_it_cannot_be_corrected_it_says_why(n, labels, why):
    assert why in corrected_share(n // 2, n, labels).corrected.reason


def test_the_interval_of_a_corrected_share_covers_the_truth_with_the_labels_own_uncertainty():
    rng = np.random.default_rng(6)
    truth, covered, rounds = 0.4, 0, 300
    for _ in range(rounds):
        positives = rng.binomial(120, 0.5)
        hit, spared = rng.binomial(positives, 0.93), rng.binomial(120 - positives, 0.93)
        labels = np.array([[spared, 120 - positives - spared], [positives - hit, hit]], dtype=float)
        accepted = rng.binomial(300, truth * 0.93 + (1 - truth) * 0.07)
        bounds = corrected_share(int(accepted), 300, labels, draws=2000).interval
        covered += bounds.low <= truth <= bounds.high
    assert 0.91 <= covered / rounds <= 0.99
