"""The doors of the serving states: a qualification for canary, live tasks or the owner for production."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from release_world import AT, World, a_policy, a_qualification
from serving_world import Stream, outcome
from sqlalchemy import text

from ratchet.errors import IntegrityError, TransitionError
from ratchet.release.canary import CanaryWindow, canary_window
from ratchet.release.ledger import Ledger
from ratchet.release.qualification import Probe, qualify, read_qualification
from ratchet.release.records import Version
from ratchet.release.states import State

RATES = {"roll_back": 0.4, "promote": 0.95}


def staged(home: Path, **release: object) -> tuple[World, Version]:
    """A version that the gate would promote, in canary under an approval that reaches canary."""
    world = World(home, canary_share=0.5, **release)
    version = world.candidate("sft")
    world.ledger.apply(version, world.decision(version), at=AT)
    if world.ledger.state(version) is not State.CANARY:
        world.ledger.approve(version, by="Olga", reason="good", upto="canary", at=AT)
    return world, version


def window(version: Version, verdict: str) -> CanaryWindow:
    """A closed window with that verdict, from real outcomes."""
    stream: Iterable = Stream(version.id, canary=RATES.get(verdict, 0.7), production=0.7)
    if verdict == "hold":
        arms = (("canary", version.id), ("production", "old"))
        made = [outcome("t", arm, who, version.id, True) for arm, who in arms]
        stream = made * version.release.canary_horizon_pairs
    found = canary_window(version, stream, at=AT)
    assert (found.verdict, found.closed) == (verdict, True)
    return found


def test_no_version_goes_into_canary_that_the_engine_has_not_qualified(tmp_path: Path) -> None:
    world = World(tmp_path, authorised_rule="canary")
    version = world.ledger.register(world.manifest, a_policy(world.store, "sft"), by="Ada", at=AT)
    decision = world.decision(version)
    world.ledger.apply(version, decision, at=AT)
    assert world.ledger.state(version) is State.STAGING
    with pytest.raises(TransitionError, match="serving engine has not tried it yet"):
        world.ledger.transition(version, "canary", by="rule:gate", decision=decision, expected_seq=world.seq)
    with pytest.raises(TransitionError, match="ratchet qualify"):
        world.ledger.approve(version, by="Olga", reason="now", upto="canary")
    world.ledger.qualify(a_qualification(version))
    (event,) = world.ledger.advance(version, at=AT)
    assert event.state is State.CANARY
    record = world.ledger.qualification(version)
    assert record is not None
    assert event.evidence == record.digest


def test_a_qualification_that_failed_opens_nothing_and_takes_back_one_that_passed(tmp_path: Path) -> None:
    world = World(tmp_path, authorised_rule="canary")
    version = world.candidate("sft")
    world.ledger.qualify(a_qualification(version, off=0.01))
    world.ledger.apply(version, world.decision(version), at=AT)
    assert world.ledger.state(version) is State.STAGING
    with pytest.raises(TransitionError, match="nats from the trainer's"):
        world.ledger.approve(version, by="Olga", reason="now", upto="canary")


def test_a_qualification_of_another_version_is_not_kept(tmp_path: Path) -> None:
    world = World(tmp_path)
    one, other = world.candidate("one"), world.candidate("other")
    forged = a_qualification(one)
    stolen = type(forged).issue(**{**forged.model_dump(), "version": other.id})
    with pytest.raises(IntegrityError, match="qualification of other"):
        world.ledger.qualify(stolen)


@pytest.mark.parametrize(
    ("served", "previous", "reason"),
    [
        ((-0.5, -0.25), (-0.6, -0.2), None),
        ((-0.5, -0.2502), (-0.6, -0.2), "nats from the trainer's"),
        ((-0.5, -0.25), (-0.5, -0.25), "no probe tells it from the version before"),
    ],
)
def test_what_was_measured_decides(
    tmp_path: Path, served: tuple[float, ...], previous: tuple[float, ...], reason: str | None
) -> None:
    version = World(tmp_path).candidate("sft")
    probe = Probe(
        prompt_ids=(1,), completion_ids=(2, 3), sampled=(True, True), served=served, trained=(-0.5, -0.25),
        previous=previous,
    )  # fmt: skip
    weights = version.policy.weights_digest
    found = qualify(
        version, served_digest=weights, engine="e", probes=[probe], previous_weights="f" * 64, by="x", at=AT
    )
    assert found.passed is (reason is None)
    assert reason is None or reason in found.reasons[0]
    assert read_qualification(found.to_bytes(), "q") == found
    other = qualify(version, served_digest="0" * 64, engine="e", probes=[probe], previous_weights=None, by="x", at=AT)
    assert "the engine loaded 000000000000" in other.reasons[0]


def test_the_same_weights_under_another_harness_need_not_differ(tmp_path: Path) -> None:
    version = World(tmp_path).candidate("sft")
    weights = version.policy.weights_digest
    same = (-0.5,)
    probe = Probe(prompt_ids=(1,), completion_ids=(2,), sampled=(True,), served=same, trained=same, previous=same)
    assert qualify(
        version, served_digest=weights, engine="e", probes=[probe], previous_weights=weights, by="x", at=AT
    ).passed


def test_neither_rule_nor_approval_opens_production_before_live_tasks_do(tmp_path: Path) -> None:
    world, version = staged(tmp_path, authorised_rule="production")
    decision = world.ledger.decision(version)
    with pytest.raises(TransitionError, match="no verdict yet"):
        world.ledger.transition(version, "production", by="rule:gate", decision=decision, expected_seq=world.seq)
    world.ledger.approve(version, by="Olga", reason="at once", upto="production")
    assert world.ledger.state(version) is State.CANARY


def test_a_promotion_by_live_tasks_goes_as_far_as_the_rule(tmp_path: Path) -> None:
    world, version = staged(tmp_path, authorised_rule="production")
    found = window(version, "promote")
    (noted,) = world.ledger.watch(found, by="rule:canary", at=AT)
    assert (noted.kind, noted.state, noted.evidence) == ("watched", State.CANARY, found.digest)
    (moved,) = world.ledger.advance(version, at=AT)
    assert (moved.state, moved.evidence) == (State.PRODUCTION, found.digest)
    assert world.ledger.verify() == len(world.ledger.history())


def test_an_approval_given_before_carries_what_live_tasks_prove_later(tmp_path: Path) -> None:
    world, version = staged(tmp_path)
    world.ledger.approve(version, by="Olga", reason="if it holds", upto="production")
    world.ledger.watch(window(version, "promote"), by="rule:canary")
    world.ledger.advance(version)
    assert world.ledger.state(version) is State.PRODUCTION


def test_without_rule_and_approval_a_proven_canary_waits_for_its_owner(tmp_path: Path) -> None:
    world, version = staged(tmp_path, authorised_rule="canary")
    world.ledger.watch(window(version, "promote"), by="rule:canary")
    assert world.ledger.advance(version) == []
    world.ledger.approve(version, by="Olga", reason="it held", upto="production")
    assert world.ledger.state(version) is State.PRODUCTION


def test_at_the_horizon_only_an_approval_that_knows_it_opens_production(tmp_path: Path) -> None:
    world, version = staged(tmp_path, authorised_rule="production", canary_horizon_pairs=50)
    world.ledger.approve(version, by="Olga", reason="beforehand", upto="production")
    world.ledger.watch(window(version, "hold"), by="rule:canary")
    assert world.ledger.advance(version) == []
    world.ledger.approve(version, by="Olga", reason="I looked at it", upto="production")
    assert world.ledger.state(version) is State.PRODUCTION


@pytest.mark.parametrize(("rule", "state"), [("roll_back", State.ROLLED_BACK), ("ask", State.CANARY)])
def test_a_regression_rolls_back_by_itself_where_the_owner_said_so_and_asks_otherwise(
    tmp_path: Path, rule: str, state: State
) -> None:
    world, version = staged(tmp_path, on_regression=rule, authorised_rule="production")
    found = window(version, "roll_back")
    events = world.ledger.watch(found, by="rule:canary", at=AT)
    assert [event.kind for event in events] == ["watched", "moved"][: 1 + (rule == "roll_back")]
    assert world.ledger.state(version) is state
    if rule == "ask":
        with pytest.raises(TransitionError, match="proved a regression"):
            world.ledger.transition(
                version, "production", by="rule:gate", decision=world.ledger.decision(version), expected_seq=world.seq
            )
        assert world.ledger.watch(found, by="rule:canary", at=AT) == []


def test_a_canary_that_is_rolled_back_leaves_production_as_it_was(tmp_path: Path) -> None:
    world = World(tmp_path, canary_share=0)
    first = world.produce("first")
    world.manifest = world.manifest.model_copy(
        update={
            "release": world.manifest.release.model_copy(update={"canary_share": 0.5, "on_regression": "roll_back"})
        }
    )
    second = world.candidate("second")
    world.ledger.apply(second, world.decision(second, incumbent=first.policy), at=AT)
    world.ledger.approve(second, by="Olga", reason="good", upto="canary", at=AT)
    world.ledger.watch(window(second, "roll_back"), by="rule:canary", at=AT)
    slots = world.ledger.current(world.tenant, world.experiment)
    assert (slots.production, slots.canary) == (first, None)


def test_an_open_window_and_one_of_another_state_are_not_noted(tmp_path: Path) -> None:
    world, version = staged(tmp_path)
    with pytest.raises(TransitionError, match="came to a verdict"):
        world.ledger.watch(canary_window(version, [], at=AT), by="rule:canary")
    promoted = World(tmp_path / "other", canary_share=0)
    with pytest.raises(TransitionError, match="a window of this very version in production is needed"):
        promoted.ledger.watch(window(promoted.produce("sft"), "promote"), by="rule:canary")


def test_without_a_canary_a_person_opens_production_and_no_rule_does(tmp_path: Path) -> None:
    world = World(tmp_path, canary_share=0, authorised_rule="production")
    version = world.candidate("sft")
    world.ledger.apply(version, world.decision(version), at=AT)
    assert world.ledger.state(version) is State.CANARY
    world.ledger.approve(version, by="Olga", reason="no live tasks here", upto="production")
    assert world.ledger.state(version) is State.PRODUCTION


def test_evidence_in_the_ledger_cannot_be_changed(tmp_path: Path) -> None:
    world, version = staged(tmp_path)
    for statement in ("UPDATE evidences SET body = '{}'", "DELETE FROM evidences"):
        with world.ledger._engine.connect() as connection, pytest.raises(Exception, match="append-only"):
            connection.execute(text(statement))
    assert world.ledger.qualification(version) is not None


def test_a_ledger_from_before_there_was_evidence_is_opened_and_keeps_its_chain(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.candidate("sft")
    with world.ledger._engine.connect() as connection, connection.begin():
        connection.execute(text("DROP TABLE evidences"))
    again = Ledger(world.ledger.url)
    assert again.verify() == len(again.history())
    again.qualify(a_qualification(next(iter(again.versions().values()))[0]))
