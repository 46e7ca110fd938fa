"""The release ledger: what opens a promotion, what follows from it, and what nobody can do to its history."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from random import Random
from typing import Any

import pytest
from release_world import AT, World, a_decision, a_manifest, a_policy

from ratchet.errors import ConflictError, IntegrityError, TransitionError
from ratchet.release.ledger import Ledger
from ratchet.release.states import State


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def names(world: World) -> dict[str, str]:
    slots = world.ledger.current(world.tenant, world.experiment).by_alias()
    return {alias: version.policy.name for alias, version in slots.items()}


def test_registering_twice_changes_nothing(world: World) -> None:
    first = world.candidate("sft")
    again = world.ledger.register(world.manifest, first.policy, by="Bob", at=AT)
    assert again.id == first.id
    assert world.seq == 1


def test_same_policy_under_another_manifest_is_another_version(world: World) -> None:
    first = world.candidate("sft")
    other = world.ledger.register(a_manifest(canary_share=0.2), first.policy, by="Ada", at=AT)
    assert other.id != first.id


@pytest.mark.parametrize("state", ["staging", "canary", "production"])
def test_no_promotion_without_a_decision(world: World, state: str) -> None:
    version = world.candidate("sft")
    with pytest.raises(TransitionError):
        world.ledger.transition(version, state, by="Olga", expected_seq=world.seq)
    with pytest.raises(TransitionError, match="only a decision"):
        world.ledger.transition(version, "staging", by="Olga", expected_seq=world.seq)


def test_decision_on_another_policy_is_refused(world: World) -> None:
    sft, dpo = world.candidate("sft"), world.candidate("dpo")
    with pytest.raises(TransitionError, match="must be about the policy"):
        world.ledger.transition(sft, "staging", by="x", decision=world.decision(dpo), expected_seq=world.seq)


def test_decision_under_another_manifest_is_refused(world: World) -> None:
    version = world.candidate("sft")
    foreign = a_decision(a_manifest(canary_share=0.3), version.policy, world.baseline)
    with pytest.raises(TransitionError, match="under the manifest"):
        world.ledger.transition(version, "staging", by="x", decision=foreign, expected_seq=world.seq)


def test_version_object_with_a_wider_rule_than_registered_does_not_help(world: World) -> None:
    version = world.candidate("sft")
    forged = version.model_copy(update={"release": a_manifest(authorised_rule="production").release})
    with pytest.raises(TransitionError, match="must have approved"):
        world.ledger.transition(
            forged, "staging", by="rule:gate", decision=world.decision(version), expected_seq=world.seq
        )


@pytest.mark.parametrize(("rule", "reached"), [("none", "candidate"), ("staging", "staging"), ("canary", "canary")])
def test_promote_goes_as_far_as_the_authorised_rule(tmp_path: Path, rule: str, reached: str) -> None:
    world = World(tmp_path, authorised_rule=rule)
    version = world.candidate("sft")
    decision = world.decision(version)
    world.ledger.apply(version, decision, at=AT)
    assert world.ledger.state(version) == reached
    following = {"candidate": "staging", "staging": "canary", "canary": "production"}[reached]
    with pytest.raises(TransitionError, match="must have approved"):
        world.ledger.transition(version, following, by="rule:gate", decision=decision, expected_seq=world.seq)


def test_applying_a_decision_again_does_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, authorised_rule="staging")
    version = world.candidate("sft")
    decision = world.decision(version)
    assert [event.kind for event in world.ledger.apply(version, decision)] == ["decided", "moved"]
    assert world.ledger.apply(version, decision) == []


def test_review_waits_for_a_person(tmp_path: Path) -> None:
    world = World(tmp_path, authorised_rule="production")
    version = world.candidate("sft")
    world.ledger.apply(version, world.decision(version, "review"), at=AT)
    assert world.ledger.state(version) is State.CANDIDATE
    written = world.ledger.approve(version, by="Olga", reason="I looked at the segment", at=AT)
    assert [(event.kind, event.state) for event in written] == [
        ("approved", "candidate"),
        ("moved", "staging"),
        ("moved", "canary"),
    ]


def test_approval_reaches_no_further_than_it_says(world: World) -> None:
    version = world.candidate("sft")
    decision = world.decision(version, "review")
    world.ledger.apply(version, decision)
    world.ledger.approve(version, by="Olga", reason="ok", upto="canary")
    with pytest.raises(TransitionError, match="must have approved this decision up to it"):
        world.ledger.transition(version, "production", by="Olga", decision=decision, expected_seq=world.seq)


def test_approval_of_one_decision_does_not_open_another(world: World) -> None:
    version = world.candidate("sft")
    world.ledger.apply(version, world.decision(version, "review"))
    world.ledger.approve(version, by="Olga", reason="ok", upto="staging")
    newer = world.decision(version, "promote")
    with pytest.raises(TransitionError, match="must have approved"):
        world.ledger.transition(version, "canary", by="Olga", decision=newer, expected_seq=world.seq)


def test_rejection_by_the_gate_cannot_be_approved(world: World) -> None:
    version = world.candidate("sft")
    decision = world.decision(version, "reject")
    with pytest.raises(TransitionError, match="allows only rejected"):
        world.ledger.transition(version, "staging", by="Olga", decision=decision, expected_seq=world.seq)
    world.ledger.apply(version, decision)
    assert world.ledger.state(version) is State.REJECTED
    with pytest.raises(TransitionError, match="nobody may approve"):
        world.ledger.approve(version, by="Olga", reason="please")


def test_approval_needs_a_decision(world: World) -> None:
    with pytest.raises(TransitionError, match="no decision of the gate yet"):
        world.ledger.approve(world.candidate("sft"), by="Olga", reason="ok")


def test_a_rule_cannot_approve(world: World) -> None:
    version = world.candidate("sft")
    world.ledger.apply(version, world.decision(version, "review"))
    with pytest.raises(TransitionError, match="given by a person"):
        world.ledger.approve(version, by="rule:night", reason="ok")


@pytest.mark.parametrize("author", ["Ada", " ada", "ADA ", "Ａda"])
def test_four_eyes_refuses_the_author_however_the_name_is_written(tmp_path: Path, author: str) -> None:
    world = World(tmp_path, four_eyes=True)
    version = world.candidate("sft")
    world.ledger.apply(version, world.decision(version, "review"))
    with pytest.raises(TransitionError, match="four eyes"):
        world.ledger.approve(version, by=author, reason="mine")
    assert world.ledger.approve(version, by="Olga", reason="seen")


def test_author_may_approve_where_four_eyes_are_not_asked(world: World) -> None:
    version = world.candidate("sft")
    world.ledger.apply(version, world.decision(version, "review"))
    assert world.ledger.approve(version, by="Ada", reason="ok")


@pytest.mark.parametrize("state", ["rejected", "quarantined"])
def test_leaving_the_line_needs_a_reason(world: World, state: str) -> None:
    with pytest.raises(TransitionError, match="needs a reason"):
        world.ledger.transition(world.candidate("sft"), state, by="Olga", reason=" ", expected_seq=1)


def test_production_supersedes_the_previous_one_in_the_same_transaction(world: World) -> None:
    world.produce("first")
    world.produce("second")
    assert names(world) == {"production": "second", "previous-production": "first"}
    last_two = world.ledger.history()[-2:]
    assert [event.state for event in last_two] == ["superseded", "production"]
    assert last_two[1].seq == last_two[0].seq + 1


def test_nobody_sets_superseded_by_hand(world: World) -> None:
    version = world.produce("first")
    with pytest.raises(TransitionError, match="by the promotion of another"):
        world.ledger.transition(version, "superseded", by="Olga", reason="x", expected_seq=world.seq)


def test_decision_against_another_incumbent_does_not_open_production(world: World) -> None:
    late = world.candidate("late")
    decision = world.decision(late)
    world.ledger.apply(late, decision)
    world.produce("first")
    with pytest.raises(TransitionError, match="was not compared with"):
        world.ledger.approve(late, by="Olga", reason="ok", upto="production")
    assert names(world)["production"] == "first"
    assert world.ledger.state(late) is State.CANDIDATE


def test_canary_holds_one_version(world: World) -> None:
    first, second = world.candidate("first"), world.candidate("second")
    for version in (first, second):
        world.ledger.apply(version, world.decision(version))
    world.ledger.approve(first, by="Olga", reason="ok", upto="canary")
    with pytest.raises(TransitionError, match="one version at a time"):
        world.ledger.approve(second, by="Olga", reason="ok", upto="canary")


def test_rollback_restores_the_previous_production(world: World) -> None:
    for name in ("first", "second", "third"):
        world.produce(name)
    event, restored = world.ledger.rollback(world.tenant, world.experiment, by="Olga", reason="latency")
    assert event.state is State.ROLLED_BACK
    assert restored is not None
    assert restored.policy.name == "second"
    assert names(world) == {"production": "second", "previous-production": "first"}
    _, restored = world.ledger.rollback(world.tenant, world.experiment, by="Olga", reason="still")
    assert restored is not None
    assert restored.policy.name == "first"


def test_rollback_of_the_only_production_leaves_the_baseline(world: World) -> None:
    world.produce("first")
    _, restored = world.ledger.rollback(world.tenant, world.experiment, by="Olga", reason="wrong")
    assert restored is None
    assert names(world) == {}
    with pytest.raises(TransitionError, match="no version in it"):
        world.ledger.rollback(world.tenant, world.experiment, by="Olga", reason="again")


def test_quarantined_previous_version_is_never_restored(world: World) -> None:
    world.produce("first")
    second = world.produce("second")
    world.produce("third")
    world.ledger.transition(second, "quarantined", by="rule:rights", reason="withdrawn", expected_seq=world.seq)
    _, restored = world.ledger.rollback(world.tenant, world.experiment, by="Olga", reason="x")
    assert restored is not None
    assert restored.policy.name == "first"


def test_quarantine_of_production_restores_the_previous_one(world: World) -> None:
    world.produce("first")
    second = world.produce("second")
    world.ledger.transition(second, "quarantined", by="rule:integrity", reason="digest", expected_seq=world.seq)
    assert names(world) == {"production": "first"}


def test_late_caller_is_told_who_was_first_and_when(world: World) -> None:
    version = world.candidate("sft")
    seq = world.seq
    world.ledger.apply(version, world.decision(version))
    world.ledger.approve(version, by="Olga", reason="ok", upto="staging", at=AT)
    with pytest.raises(ConflictError) as error:
        world.ledger.transition(version, "rejected", by="Bob", reason="x", expected_seq=seq)
    assert "Olga moved version" in str(error.value)
    assert AT.isoformat() in str(error.value)


def test_refused_transition_leaves_nothing_behind(world: World) -> None:
    version = world.candidate("sft")
    before = (world.seq, world.ledger.history())
    with pytest.raises(TransitionError):
        world.ledger.transition(version, "production", by="x", decision=world.decision(version), expected_seq=1)
    assert (world.seq, world.ledger.history()) == before


def test_random_commands_never_break_the_slots(tmp_path: Path) -> None:
    random = Random(7)
    world = World(tmp_path, authorised_rule="staging")
    ids: list[str] = []
    done = 0
    for step in range(200):
        if len(ids) < 6 and random.random() < 0.3:
            ids.append(world.candidate(f"p{step}").id)
        if not ids:
            continue
        slots = world.ledger.current(world.tenant, world.experiment)
        identity, state = random.choice(ids), random.choice(list(State))
        version = world.ledger.version(identity)
        incumbent = slots.production.policy if slots.production and random.random() < 0.7 else None
        try:
            if random.random() < 0.5:
                world.ledger.apply(version, world.decision(version, incumbent=incumbent))
                world.ledger.approve(version, by="Olga", reason="x", upto=random.choice(["canary", "production"]))
            else:
                world.ledger.transition(identity, state, by="x", reason="y", expected_seq=slots.seq)
            done += 1
        except TransitionError:
            pass
        held = [seen for _, seen in world.ledger.versions().values()]
        assert held.count(State.PRODUCTION) <= 1
        assert held.count(State.CANARY) <= 1
    assert done > 10
    assert world.ledger.verify() == len(world.ledger.history())
    for event in world.ledger.history():
        if event.kind == "moved" and event.state in ("staging", "canary", "production"):
            assert event.decision is not None or event.before is State.SUPERSEDED


def test_cursor_of_a_sensor_sees_every_event_once(world: World) -> None:
    world.produce("first")
    seen = world.ledger.events_since(0)
    assert [event.id for event in seen] == list(range(1, len(seen) + 1))
    world.candidate("second")
    assert [event.kind for event in world.ledger.events_since(seen[-1].id)] == ["registered"]


def test_decision_with_words_for_a_figure_reads_back(world: World) -> None:
    version = world.candidate("sft")
    decision = world.decision(version, "review")
    world.ledger.apply(version, decision)
    assert world.ledger.decision(version) == decision


def test_find_by_name_by_id_and_by_policy_digest(world: World) -> None:
    version = world.candidate("sft")
    for text in ("sft", version.id[:8], version.policy.digest[:10], version.id):
        assert world.ledger.find(text).id == version.id
    with pytest.raises(TransitionError, match="none"):
        world.ledger.find("nothing")


def test_ambiguous_name_lists_what_it_could_mean(world: World) -> None:
    version = world.candidate("sft")
    other = world.ledger.register(a_manifest(canary_share=0.2), version.policy, by="Ada", at=AT)
    with pytest.raises(TransitionError) as error:
        world.ledger.find("sft")
    assert version.id[:12] in str(error.value)
    assert other.id[:12] in str(error.value)
    world.ledger.reject(other, by="Olga", reason="x")
    assert world.ledger.find("sft").id == version.id


def test_tenants_do_not_share_a_line(world: World) -> None:
    world.produce("first")
    assert world.ledger.current("other", world.experiment).seq == 0
    assert world.ledger.current("other", world.experiment).by_alias() == {}


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE events SET body = '{}' WHERE id = 1",
        "DELETE FROM events",
        "INSERT OR REPLACE INTO events SELECT id, tenant, experiment, seq, version, kind, 'production', digest, body "
        "FROM events WHERE id = 1",
        "INSERT OR REPLACE INTO events SELECT 99, tenant, experiment, seq, version, kind, state, digest, body "
        "FROM events WHERE id = 1",
        "UPDATE OR REPLACE events SET id = 2 WHERE id = 1",
        "DELETE FROM versions",
        "UPDATE decisions SET body = '{}'",
        "INSERT OR REPLACE INTO decisions SELECT digest, '{}' FROM decisions",
    ],
)
def test_history_cannot_be_edited_with_sql(world: World, statement: str) -> None:
    world.produce("first")
    connection = sqlite3.connect(world.home / "release.db")
    try:
        with pytest.raises(sqlite3.DatabaseError, match="append-only"):
            connection.execute(statement)
    finally:
        connection.close()
    assert world.ledger.verify() == len(world.ledger.history())


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE events SET body = replace(body, 'Olga', 'Eve')",
        "UPDATE events SET state = 'production' WHERE id = 1",
        "DELETE FROM events WHERE id = (SELECT max(id) FROM events)",
        "DELETE FROM events WHERE id = 2",
    ],
)
def test_owner_of_the_database_who_drops_the_triggers_is_noticed(world: World, statement: str) -> None:
    world.produce("first")
    connection = sqlite3.connect(world.home / "release.db")
    for name in ("events_no_update", "events_no_delete"):
        connection.execute(f"DROP TRIGGER {name}")
    connection.execute(statement)
    connection.commit()
    connection.close()
    with pytest.raises(IntegrityError, match="release ledger of acme/repair"):
        world.ledger.verify()


def test_two_ledgers_open_the_same_new_file(tmp_path: Path) -> None:
    first, second = Ledger.of(tmp_path), Ledger.of(tmp_path)
    assert first.events_since(0) == second.events_since(0) == []


def test_environment_variable_names_another_database(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("RATCHET_LEDGER_URL", f"sqlite:///{tmp_path / 'elsewhere.db'}")
    World(tmp_path / "home").candidate("sft")
    assert (tmp_path / "elsewhere.db").exists()
    assert not (tmp_path / "home" / "release.db").exists()


def test_unused_policy_folder_is_not_registered_by_reading(world: World) -> None:
    a_policy(world.store, "sft")
    assert world.ledger.lines() == []
