"""Every pair of states: the table's transitions pass, all others are refused with the allowed ones named."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from release_world import World

from ratchet.errors import TransitionError
from ratchet.release.records import Version
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


def reached(world: World, state: State) -> Version:
    """A version that stands in `state` by the ledger's own functions."""
    if state in (State.PRODUCTION, State.SUPERSEDED, State.ROLLED_BACK):
        version = world.produce("v")
        if state is State.SUPERSEDED:
            world.produce("next")
        if state is State.ROLLED_BACK:
            world.ledger.rollback(world.tenant, world.experiment, by="Olga", reason="slow")
        return version
    version = world.candidate("v")
    world.ledger.apply(version, world.decision(version))
    if state in (State.STAGING, State.CANARY):
        world.ledger.approve(version, by="Olga", reason="good", upto=state)
    elif state in (State.REJECTED, State.QUARANTINED):
        world.ledger.transition(version, state, by="Olga", reason="bad", expected_seq=world.seq)
    return version


@pytest.mark.parametrize("seen", State)
def test_the_ledger_refuses_every_pair_that_the_table_does_not_have_and_nothing_moves(
    tmp_path: Path, seen: State
) -> None:
    world = World(tmp_path)
    version = reached(world, seen)
    assert world.ledger.state(version) is seen
    before = world.ledger.history()
    for wanted in State:
        if (str(seen), str(wanted)) not in ALLOWED:
            with pytest.raises(TransitionError, match=f"of v .* from {seen} to {wanted}"):
                world.ledger.transition(
                    version, wanted, by="Olga", reason="x", decision=world.decision(version), expected_seq=world.seq
                )
    assert world.ledger.history() == before
