"""Agreement beyond chance: the libraries' figures on a thousand random tables, and honest where it is undefined."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.contracts.score import NotComputable
from ratchet.errors import RatchetError
from ratchet.rewards.calibration.agreement import (
    Bounds,
    agreement,
    alpha,
    asymptotic_interval,
    bootstrap_interval,
    kappa,
    variance,
)

TABLES = 1000


def tables(seed=0):
    """Random tables of 2 to 5 categories, sparse ones and such with empty categories among them."""
    rng = np.random.default_rng(seed)
    for _ in range(TABLES):
        k = int(rng.integers(2, 6))
        shares = rng.dirichlet(np.full(k * k, rng.choice([0.1, 1.0, 5.0])))
        yield rng.multinomial(int(rng.integers(2, 400)), shares).reshape(k, k).astype(float)


def ratings(counts):
    pairs = [(i, j) for i, row in enumerate(counts) for j, count in enumerate(row) for _ in range(int(count))]
    return [i for i, _ in pairs], [j for _, j in pairs]


def test_kappa_and_its_interval_are_those_of_statsmodels_on_a_thousand_tables():
    from statsmodels.stats.inter_rater import cohens_kappa

    undefined = 0
    for counts in tables():
        ours = kappa(counts)
        if isinstance(ours, NotComputable):
            undefined += 1
            assert np.count_nonzero(counts) == 1
            continue
        with np.errstate(invalid="ignore"):  # it takes the root of a variance that rounding left below 0
            theirs = cohens_kappa(counts)
        assert ours == pytest.approx(theirs.kappa, abs=1e-9)
        if theirs.var_kappa > 1e-15:
            assert variance(counts) == pytest.approx(theirs.var_kappa, abs=1e-9)
            bounds = asymptotic_interval(counts)
            assert (bounds.low, bounds.high) == pytest.approx((theirs.kappa_low, theirs.kappa_upp), abs=1e-9)
    assert undefined < TABLES / 20


@pytest.mark.parametrize(("weights", "wt"), [("linear", "linear"), ("quadratic", "quadratic")])
def test_weighted_kappa_is_that_of_scikit_learn_and_its_variance_that_of_statsmodels(weights, wt):
    from sklearn.metrics import cohen_kappa_score
    from statsmodels.stats.inter_rater import cohens_kappa

    for counts in tables(1):
        ours = kappa(counts, weights)
        if isinstance(ours, NotComputable):
            continue
        one, other = ratings(counts)
        theirs = cohen_kappa_score(one, other, weights=weights, labels=range(len(counts)))
        assert ours == pytest.approx(theirs, abs=1e-9)
        with np.errstate(invalid="ignore"):
            assert variance(counts, weights) == pytest.approx(cohens_kappa(counts, wt=wt).var_kappa, abs=1e-9)


@pytest.mark.parametrize("level", ["nominal", "ordinal", "interval"])
def test_alpha_is_krippendorff_s_on_a_thousand_matrices_with_gaps(level):
    import krippendorff

    rng = np.random.default_rng(2)
    compared = 0
    for _ in range(TABLES):
        raters, items, k = int(rng.integers(2, 6)), int(rng.integers(2, 25)), int(rng.integers(2, 6))
        truth = rng.integers(0, k, items)
        values = np.where(rng.random((raters, items)) < 0.7, truth, rng.integers(0, k, (raters, items))).astype(float)
        values[rng.random((raters, items)) < 0.2] = np.nan
        ours = alpha([[None if np.isnan(one) else one for one in row] for row in values], level)
        if isinstance(ours, NotComputable):
            continue
        theirs = krippendorff.alpha(reliability_data=values, level_of_measurement=level)
        assert ours == pytest.approx(theirs, abs=1e-9)
        compared += 1
    assert compared > 0.9 * TABLES


def test_companions_are_those_of_scikit_learn():
    from sklearn.metrics import recall_score

    for counts in tables(3):
        if len(counts) != 2 or not counts.sum(axis=1).all():
            continue
        one, other = ratings(counts)
        found = agreement(one, other, (0, 1), resamples=10)
        assert found.n == counts.sum()
        assert found.prevalence == pytest.approx(np.mean(one), abs=1e-9)
        assert found.agreement == pytest.approx(np.mean(np.equal(one, other)), abs=1e-9)
        assert found.true_positive_rate == pytest.approx(recall_score(one, other), abs=1e-9)
        assert found.true_negative_rate == pytest.approx(recall_score(one, other, pos_label=0), abs=1e-9)


def test_the_reference_reading_of_0_86_on_120_labels_holds_0_78_inside_both_of_its_intervals():
    found = agreement([0] * 60 + [1] * 60, [0] * 56 + [1] * 4 + [1] * 56 + [0] * 4, (0, 1))
    assert found.kappa == pytest.approx(0.8667, abs=1e-4)
    for bounds in (found.asymptotic, found.bootstrap):
        assert (bounds.low, bounds.high) == pytest.approx((0.77, 0.95), abs=0.02)
        assert bounds.low < 0.78


@pytest.mark.slow
def test_both_intervals_cover_the_true_kappa_about_as_often_as_they_say():
    rng = np.random.default_rng(4)
    truth = np.array([[0.465, 0.035], [0.035, 0.465]])
    drawn = rng.multinomial(120, truth.ravel(), size=1500).reshape(-1, 2, 2).astype(float)
    for interval in (asymptotic_interval, lambda counts: bootstrap_interval(counts, resamples=1000)):
        covered = np.mean([bounds.low <= 0.86 <= bounds.high for bounds in map(interval, drawn)])
        assert 0.92 <= covered <= 0.98


def test_where_chance_always_agrees_nothing_is_claimed():
    found = agreement([1] * 20, [1] * 20, (0, 1))
    for quantity in (found.kappa, found.asymptotic, found.bootstrap, found.true_negative_rate):
        assert isinstance(quantity, NotComputable)
    assert (found.agreement, found.true_positive_rate) == (1.0, 1.0)
    assert isinstance(alpha([[1, 1, None], [1, 1, 1]]), NotComputable)
    assert isinstance(alpha([[1, None], [None, 2]]), NotComputable)
    assert isinstance(agreement([], [], (0, 1)).kappa, NotComputable)


def test_a_bootstrap_that_often_loses_a_category_has_no_interval():
    found = agreement([0] * 50 + [1], [0] * 50 + [1], (0, 1))
    assert found.kappa == 1.0
    assert isinstance(found.bootstrap, NotComputable)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=2, max_size=40), st.permutations([0, 1, 2]))
def test_names_of_categories_do_not_matter_and_raters_may_change_places(pairs, names):
    one, other = zip(*pairs, strict=True)
    found = agreement(one, other, (0, 1, 2), resamples=10)
    renamed = agreement([names[i] for i in one], [names[i] for i in other], (0, 1, 2), resamples=10)
    turned = agreement(other, one, (0, 1, 2), resamples=10)
    if isinstance(found.kappa, NotComputable):
        assert isinstance(renamed.kappa, NotComputable)
        assert isinstance(turned.kappa, NotComputable)
    else:
        assert renamed.kappa == pytest.approx(found.kappa)
        assert turned.kappa == pytest.approx(found.kappa)
        assert isinstance(found.asymptotic, Bounds)


@pytest.mark.parametrize(("one", "other"), [([0, 1], [0]), ([0, 2], [0, 1])])
def test_ratings_that_do_not_pair_are_refused(one, other):
    with pytest.raises(RatchetError, match="rate the same items"):
        agreement(one, other, (0, 1))
