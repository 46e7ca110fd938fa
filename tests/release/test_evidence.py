"""The evidence bundle: complete, verified on reading, and renewed by an approval without losing the first."""

from __future__ import annotations

from pathlib import Path

import pytest
from release_world import World, a_manifest

from ratchet.contracts.manifest import Manifest
from ratchet.errors import IntegrityError, TransitionError
from ratchet.release.evidence import (
    EvidenceBundle,
    bundle_evidence,
    code_version,
    latest_bundle,
    with_approvals,
    write_bundle,
)
from ratchet.release.records import Version


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def bundled(world: World, version: Version, state: str = "review", **changes: object) -> EvidenceBundle:
    fields: dict[str, object] = {
        "manifest": world.manifest,
        "decision": world.decision(version, state),
        "split_lock": "a" * 64,
        "datasets": {"train_sft": "d" * 64},
        "grants": {"g": "e" * 64},
        "scorecards": {"sft": "b" * 64, "baseline": "c" * 64},
        **changes,
    }
    return bundle_evidence(version, **fields)  # type: ignore[arg-type]


def test_bundle_reads_back_with_everything_in_it(world: World) -> None:
    version = world.candidate("sft")
    bundle = bundled(world, version)
    write_bundle(world.store, bundle)
    again = latest_bundle(world.store, version.id)
    assert again == bundle
    assert Manifest.model_validate(again.manifest).digest == world.manifest.digest
    assert again.decision["rules"][1]["figure"] == {"not_computable": "0 accepted results in the window"}
    assert again.code_version == code_version()


def test_version_without_evidence_has_none(world: World) -> None:
    assert latest_bundle(world.store, "0" * 64) is None


def test_changed_bundle_is_refused(world: World) -> None:
    version = world.candidate("sft")
    path = world.store.path(write_bundle(world.store, bundled(world, version)))
    path.write_bytes(path.read_bytes().replace(b"e" * 64, b"f" * 64))
    with pytest.raises(IntegrityError, match="digest must match"):
        latest_bundle(world.store, version.id)


def test_approval_makes_a_new_bundle_and_keeps_the_old(world: World) -> None:
    version = world.candidate("sft")
    decision = world.decision(version, "review")
    world.ledger.apply(version, decision)
    first = bundled(world, version, decision=decision)
    old = write_bundle(world.store, first)
    world.ledger.approve(version, by="Olga", reason="ok")
    new = write_bundle(world.store, with_approvals(first, world.ledger.approvals(version, decision), "9" * 64))
    assert new != old
    assert world.store.exists(old)
    latest = latest_bundle(world.store, version.id)
    assert latest is not None
    assert [event.by for event in latest.approvals] == ["Olga"]
    assert latest.certificate == "9" * 64


def test_manifest_of_another_run_is_refused(world: World) -> None:
    with pytest.raises(IntegrityError, match="registered under"):
        bundled(world, world.candidate("sft"), manifest=a_manifest(canary_share=0.5))


def test_decision_on_another_policy_is_refused(world: World) -> None:
    sft, dpo = world.candidate("sft"), world.candidate("dpo")
    with pytest.raises(TransitionError, match="must be about the policy"):
        bundled(world, sft, decision=world.decision(dpo))
