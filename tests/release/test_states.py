"""Every pair of states: the table's transitions pass, all others are refused with the allowed ones named."""

from __future__ import annotations

import itertools

import pytest

from ratchet.errors import TransitionError
from ratchet.release.states import TRANSITIONS, State, check, rank

ALLOWED = {
    ("candidate", "staging"),
    ("candidate", "rejected"),
    ("candidate", "quarantined"),
    ("staging", "canary"),
    ("staging", "rejected"),
    ("staging", "quarantined"),
    ("canary", "production"),
    ("canary", "rejected"),
    ("canary", "rolled_back"),
    ("canary", "quarantined"),
    ("production", "superseded"),
    ("production", "rolled_back"),
    ("production", "quarantined"),
    ("superseded", "quarantined"),
}


@pytest.mark.parametrize(("seen", "wanted"), sorted(ALLOWED))
def test_allowed_pair_passes(seen: str, wanted: str) -> None:
    check("v", State(seen), State(wanted))


@pytest.mark.parametrize(("seen", "wanted"), sorted(set(itertools.product(map(str, State), repeat=2)) - ALLOWED))
def test_other_pair_is_refused_and_names_what_is_allowed(seen: str, wanted: str) -> None:
    with pytest.raises(TransitionError) as error:
        check("v", State(seen), State(wanted))
    assert f"from {seen} to {wanted}" in str(error.value)
    for name in TRANSITIONS[State(seen)]:
        assert name in error.value.rule
    if not TRANSITIONS[State(seen)]:
        assert "final" in error.value.rule


def test_rank_orders_the_line_of_promotion() -> None:
    assert [rank(State(name)) for name in ("candidate", "staging", "canary", "production", "superseded")] == [
        0,
        1,
        2,
        3,
        -1,
    ]
