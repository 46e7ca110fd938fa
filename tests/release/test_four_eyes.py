"""Four eyes: the author of a run releases nothing alone, by whatever name, door or rule."""

from __future__ import annotations

from pathlib import Path

import pytest
from release_world import AT, World
from typer.testing import CliRunner

from ratchet.cli.main import app
from ratchet.errors import TransitionError
from ratchet.release.review import approve_version
from ratchet.release.states import State

AUTHOR = ("Ada", " ada ", "ADA", "\uff21da", "A\u200bda", "A\u00adda")
"""The author as written, by case and space, in full-width letters, with signs that do not show."""


@pytest.mark.parametrize("name", AUTHOR)
def test_author_approves_in_no_spelling(tmp_path: Path, name: str) -> None:
    world = World(tmp_path, four_eyes=True)
    version = world.candidate("sft")
    world.ledger.apply(version, world.decision(version, "review"), at=AT)
    with pytest.raises(TransitionError, match="four eyes"):
        world.ledger.approve(version, by=name, reason="mine", at=AT)
    with pytest.raises(TransitionError, match="four eyes"):
        approve_version(world.store, world.ledger, version, by=name, reason="mine", at=AT)
    assert world.ledger.state(version) is State.CANDIDATE


def test_another_person_approves(tmp_path: Path) -> None:
    world = World(tmp_path, four_eyes=True)
    version = world.candidate("sft")
    world.ledger.apply(version, world.decision(version, "review"), at=AT)
    world.ledger.approve(version, by="Adam", reason="looked at it", upto="staging", at=AT)
    assert world.ledger.state(version) is State.STAGING


def test_author_approves_where_one_pair_is_enough(tmp_path: Path) -> None:
    world = World(tmp_path)
    version = world.candidate("sft")
    world.ledger.apply(version, world.decision(version, "review"), at=AT)
    world.ledger.approve(version, by="Ada", reason="alone here", upto="staging", at=AT)
    assert world.ledger.state(version) is State.STAGING


def test_command_line_refuses_the_author(tmp_path: Path) -> None:
    world = World(tmp_path, four_eyes=True)
    version = world.candidate("sft")
    world.ledger.apply(version, world.decision(version, "review"), at=AT)
    said = CliRunner().invoke(
        app, ["approve", version.id[:12], "--by", "ADA", "--reason", "mine", "--home", str(tmp_path)]
    )
    assert said.exit_code == 2
    assert "four eyes" in said.output
    assert world.ledger.state(version) is State.CANDIDATE


def test_rule_of_an_owner_who_is_the_author_promotes_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, four_eyes=True, owner=" ADA", authorised_rule="canary")
    version = world.candidate("sft")
    decision = world.decision(version)
    world.ledger.apply(version, decision, at=AT)
    assert world.ledger.state(version) is State.CANDIDATE
    with pytest.raises(TransitionError, match="a person must have approved"):
        world.ledger.transition(
            version, State.STAGING, by="rule:gate", decision=decision,
            expected_seq=world.ledger.current(world.tenant, world.experiment).seq, at=AT,
        )  # fmt: skip


def test_rule_of_another_owner_is_the_second_pair(tmp_path: Path) -> None:
    world = World(tmp_path, four_eyes=True, authorised_rule="staging")
    version = world.candidate("sft")
    world.ledger.apply(version, world.decision(version), at=AT)
    assert world.ledger.state(version) is State.STAGING


def test_rule_does_not_carry_what_needs_review(tmp_path: Path) -> None:
    world = World(tmp_path, four_eyes=True, authorised_rule="production")
    version = world.candidate("sft")
    world.ledger.apply(version, world.decision(version, "review"), at=AT)
    assert world.ledger.state(version) is State.CANDIDATE
    with pytest.raises(TransitionError, match="given by a person"):
        world.ledger.approve(version, by="rule:gate", reason="by itself", at=AT)
