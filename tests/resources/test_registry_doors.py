"""What MLflow gives a slot to: versions with a valid certificate and untouched files, whatever was done by hand."""

from __future__ import annotations

import shutil
from pathlib import Path

from registry_world import Show
from release_world import AT

from ratchet.release.certificate import certify, write_certificate
from ratchet.release.records import Version


def test_a_version_without_a_valid_certificate_gets_no_slot_and_is_reported_once(
    show: Show, two: tuple[Version, Version]
) -> None:
    third = show.world.produce("third")
    place = show.world.store.path(f"certificates/{third.id}")
    shutil.move(place, place.with_name("away"))
    for _ in range(2):
        ((what, seen, expected, repaired),) = show.reconcile()
        assert (what, repaired) == (f"alias production of {show.name}", False)
        assert seen.startswith(f"certificates/{third.id}")
        assert expected == f"a valid release certificate of {third.label}"
        assert show.aliases()["production"] == "second"
    assert len(show.world.ledger.incidents()) == 1
    shutil.move(place.with_name("away"), place)
    assert show.reconcile() == []
    assert show.aliases() == {"production": "third", "previous-production": "second"}


def test_a_tampered_checkpoint_gets_no_slot_and_after_a_rollback_the_old_version_has_it(
    show: Show, two: tuple[Version, Version]
) -> None:
    third = show.world.produce("third")
    weights = show.world.store.folder(third.policy.checkpoint) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"!")
    ((_, seen, _, repaired),) = show.reconcile()
    assert seen.startswith(f"checkpoint {third.policy.checkpoint}")
    assert not repaired
    show.world.ledger.rollback(show.world.tenant, show.world.experiment, by="Olga", reason="tampered")
    assert show.reconcile() == []
    assert show.aliases() == {"production": "second", "previous-production": "first"}


def test_a_certificate_that_is_about_to_be_written_is_waited_for(show: Show, two: tuple[Version, Version]) -> None:
    world = show.world
    third = world.candidate("third")
    world.ledger.apply(third, world.decision(third, incumbent=two[1].policy))
    world.ledger.approve(third, by="Olga", reason="good", upto="canary")
    assert show.reconcile() == []
    assert "canary" not in show.aliases()
    decision = world.ledger.decision(third)
    assert decision is not None
    approvals = world.ledger.approvals(third, decision)
    write_certificate(world.store, certify(third, decision, {}, approvals=approvals, by="Olga", at=AT))
    assert show.reconcile() == []
    assert show.aliases()["canary"] == "third"


def test_what_is_done_by_hand_on_a_real_server_is_reported_and_put_right(tmp_path: Path, mlflow_url: str) -> None:
    show = Show(tmp_path, mlflow_url, experiment="by_hand")
    first, second = show.world.produce("first"), show.world.produce("second")
    assert show.project(show.world.baseline, first.policy, second.policy) == []
    assert show.aliases() == {"production": "second", "previous-production": "first"}
    show.client.set_registered_model_alias(show.name, "production", show.number(first))
    assert [what for what, *_ in show.reconcile()] == [f"alias production of {show.name}"]
    show.client.delete_registered_model_alias(show.name, "production")
    show.client.set_registered_model_alias(show.name, "champion", show.number(first))
    foreign = show.client.create_model_version(show.name, "s3://elsewhere/foreign")
    show.client.set_registered_model_alias(show.name, "canary", foreign.version)
    found = {what: (seen, expected, repaired) for what, seen, expected, repaired in show.reconcile()}
    assert found[f"alias production of {show.name}"] == ("deleted", f"version {show.number(second)}", True)
    assert found[f"alias champion of {show.name}"] == (f"version {show.number(first)}", "not set", True)
    assert found[f"alias canary of {show.name}"] == (f"version {foreign.version}", "not set", True)
    assert found[f"version {foreign.version} of {show.name}"][2] is False
    assert show.aliases() == {"production": "second", "previous-production": "first"}
    show.client.delete_model_version(show.name, foreign.version)
    show.world.ledger.rollback(show.world.tenant, show.world.experiment, by="Olga", reason="slow")
    assert show.reconcile() == []
    assert show.aliases() == {"production": "first"}
