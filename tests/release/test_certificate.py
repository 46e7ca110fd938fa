"""The certificate: made only for what passed or was approved, and refused by consumers when anything was changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from release_world import AT, World

from ratchet.errors import IntegrityError, TransitionError
from ratchet.release.certificate import (
    ReleaseCertificate,
    certificate_name,
    certify,
    check_certificate,
    verify_certificate,
    write_certificate,
)
from ratchet.release.records import Version


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, authorised_rule="staging")


def promoted(world: World, name: str = "sft") -> tuple[Version, str]:
    version = world.candidate(name)
    decision = world.decision(version)
    world.ledger.apply(version, decision, at=AT)
    certificate = certify(version, decision, {"code": "c" * 64}, by="rule:gate", at=AT)
    write_certificate(world.store, certificate)
    return version, certificate_name(version.id, decision.digest)


def test_consumer_gets_the_certificate_of_an_untouched_version(world: World) -> None:
    version, _ = promoted(world)
    certificate = verify_certificate(world.store, world.ledger, version)
    assert certificate.verdict == "promote"
    assert certificate.inputs == {"split_lock": "a" * 64, "scorecard": "b" * 64, "code": "c" * 64}


def test_changed_weights_are_named(world: World) -> None:
    version, _ = promoted(world)
    weights = world.store.path(version.policy.checkpoint) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"!")
    with pytest.raises(IntegrityError, match="checkpoint checkpoints/sft"):
        verify_certificate(world.store, world.ledger, version)


def test_added_file_in_the_checkpoint_is_noticed(world: World) -> None:
    version, _ = promoted(world)
    (world.store.path(version.policy.checkpoint) / "chat_template.jinja").write_text("x")
    with pytest.raises(IntegrityError, match="checkpoint checkpoints/sft"):
        verify_certificate(world.store, world.ledger, version)


def test_missing_certificate_opens_nothing(world: World) -> None:
    version, name = promoted(world)
    world.store.path(name).unlink()
    with pytest.raises(IntegrityError, match="must be in the store"):
        verify_certificate(world.store, world.ledger, version)


def test_edited_certificate_opens_nothing(world: World) -> None:
    version, name = promoted(world)
    path = world.store.path(name)
    path.write_bytes(path.read_bytes().replace(b"rule:gate", b"rule:fate"))
    with pytest.raises(IntegrityError, match="digest must match"):
        verify_certificate(world.store, world.ledger, version)


def test_certificate_of_another_version_opens_nothing(world: World) -> None:
    _, other = promoted(world, "dpo")
    version, name = promoted(world, "sft")
    world.store.path(name).write_bytes(world.store.read(other))
    with pytest.raises(IntegrityError, match="version in certificate"):
        verify_certificate(world.store, world.ledger, version)


def test_version_that_left_the_line_opens_nothing_though_its_certificate_is_whole(world: World) -> None:
    version, _ = promoted(world)
    world.ledger.transition(version, "quarantined", by="rule:rights", reason="withdrawn", expected_seq=world.seq)
    with pytest.raises(TransitionError, match="quarantined"):
        verify_certificate(world.store, world.ledger, version)


def test_candidate_is_not_served_on_a_certificate_alone(world: World) -> None:
    version = world.candidate("sft")
    write_certificate(world.store, certify(version, world.decision(version), {}, by="x", at=AT))
    with pytest.raises(TransitionError, match="candidate"):
        verify_certificate(world.store, world.ledger, version)


def test_restored_production_still_verifies(world: World) -> None:
    first = world.produce("first")
    decision = world.ledger.decision(first)
    assert decision is not None
    write_certificate(world.store, certify(first, decision, {}, by="rule:gate", at=AT))
    world.produce("second")
    world.ledger.rollback(world.tenant, world.experiment, by="Olga", reason="slow")
    assert verify_certificate(world.store, world.ledger, first).policy == "first"


def test_rejection_gets_no_certificate(world: World) -> None:
    version = world.candidate("sft")
    with pytest.raises(TransitionError, match="certificate of sft"):
        certify(version, world.decision(version, "reject"), {}, by="x", at=AT)


def test_review_gets_one_only_with_an_approval_of_this_decision(world: World) -> None:
    version = world.candidate("sft")
    decision = world.decision(version, "review")
    with pytest.raises(TransitionError, match="certificate of sft"):
        certify(version, decision, {}, by="x", at=AT)
    world.ledger.apply(version, decision)
    (approval, *_) = world.ledger.approve(version, by="Olga", reason="ok")
    certificate = certify(version, decision, {}, approvals=[approval], by="Olga", at=AT)
    assert certificate.approvals == (approval.digest,)


def test_decision_on_another_policy_gets_no_certificate(world: World) -> None:
    sft, dpo = world.candidate("sft"), world.candidate("dpo")
    with pytest.raises(TransitionError, match="must be about the policy"):
        certify(sft, world.decision(dpo), {}, by="x", at=AT)


def test_input_that_differs_from_the_decisions_is_named(world: World) -> None:
    version = world.candidate("sft")
    with pytest.raises(IntegrityError, match="input split_lock"):
        certify(version, world.decision(version), {"split_lock": "0" * 64}, by="x", at=AT)


def test_writing_again_keeps_the_first(world: World) -> None:
    version, name = promoted(world)
    before = world.store.read(name)
    later = certify(version, world.decision(version), {}, by="somebody else", at=AT)
    assert write_certificate(world.store, later).by == "rule:gate"
    assert world.store.read(name) == before


def test_nobody_constructs_one(world: World) -> None:
    with pytest.raises(IntegrityError, match="can be made only by"):
        ReleaseCertificate(version="x")


def test_offline_check_needs_no_ledger(world: World) -> None:
    version, name = promoted(world)
    folder = world.store.path(version.policy.checkpoint)
    assert check_certificate(world.store.read(name), name, version, folder).policy == "sft"
