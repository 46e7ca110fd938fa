"""From seeds to tasks: order-free, invalid seeds neither accepted nor averaged."""

from __future__ import annotations

from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.evaluation.reducers import majority, mean_of_seeds, pass_hat_k

outcome = st.sampled_from([0.0, 1.0, np.nan])


@given(st.lists(outcome, min_size=1, max_size=5))
def test_order_of_seeds_does_not_matter(seeds: list[float]) -> None:
    tables = np.array(list(permutations(seeds)))
    for reducer in (majority, mean_of_seeds):
        assert len({str(value) for value in reducer(tables)}) == 1
    assert len({str(pass_hat_k(table[None], 1)) for table in tables}) == 1


def test_invalid_seed_is_not_accepted_by_majority_and_left_out_of_the_mean() -> None:
    table = np.array([[1, np.nan, 0], [1, np.nan, 1], [np.nan] * 3, [1, 1, 0]])
    assert majority(table).tolist() == [0, 1, 0, 1]
    np.testing.assert_allclose(mean_of_seeds(table), [0.5, 1, np.nan, 2 / 3])


def test_half_of_the_seeds_is_no_majority() -> None:
    assert majority(np.array([[1.0, 0.0], [1.0, 1.0]])).tolist() == [0, 1]


@pytest.mark.parametrize("k", [1, 2, 3])
def test_pass_hat_k_is_the_share_of_subsets_that_all_pass(k: int) -> None:
    table = np.array([[1, 1, 0, 1], [0, 1, 0, 0], [1, 1, 1, 1]], dtype=float)
    brute = np.mean([[all(task[list(subset)]) for subset in combinations(range(4), k)] for task in table])
    assert pass_hat_k(table, k) == pytest.approx(brute, abs=1e-12)


def test_pass_hat_k_leaves_out_tasks_with_too_few_valid_seeds() -> None:
    assert pass_hat_k(np.array([[1, np.nan], [1, 0]]), 2) == 0
    assert np.isnan(pass_hat_k(np.array([[1, np.nan]]), 2))
