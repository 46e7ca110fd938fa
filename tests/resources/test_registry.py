"""MLflow as a projection of the ledger, on a database and on a real server: shown, repaired, and asked for reviews."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from registry_world import Show
from release_world import AT

from ratchet.release.evidence import bundle_evidence, latest_bundle, write_bundle
from ratchet.release.records import Version
from ratchet.release.review import approve_version

ROOT = Path(__file__).parents[2]


def test_slots_states_and_digests_are_shown(show: Show, two: tuple[Version, Version]) -> None:
    first, second = two
    assert show.aliases() == {"production": "second", "previous-production": "first"}
    tags = show.tags(second)
    assert tags["ratchet.state"] == "production"
    assert tags["ratchet.policy"] == second.policy.digest
    assert tags["ratchet.weights"] == second.policy.weights_digest
    assert tags["ratchet.by"] == "Olga"
    assert show.tags(first)["ratchet.state"] == "superseded"


def test_baseline_has_a_run_but_no_version(show: Show, two: tuple[Version, Version]) -> None:
    experiment = show.client.get_experiment_by_name(show.name)
    runs = show.client.search_runs([experiment.experiment_id])
    assert sorted(run.info.run_name for run in runs) == ["baseline", "first", "second"]
    assert len(list(show.registry.models.versions(show.name))) == len(two)


def test_figure_that_cannot_be_computed_is_absent_with_a_tag_that_says_why(
    show: Show, two: tuple[Version, Version]
) -> None:
    run = show.client.get_run(show.client.get_model_version(show.name, show.number(two[1])).run_id)
    assert run.data.metrics["acceptance"] == 0.61
    assert "cost_per_accepted" not in run.data.metrics
    assert run.data.tags["ratchet.not_computable.cost_per_accepted"] == "0 accepted results in the window"
    assert [point.value for point in show.client.get_metric_history(run.info.run_id, "curve/reward")] == [0.1, 0.4]


def test_version_comes_from_a_logged_model_with_checkpoint_and_report(show: Show, two: tuple[Version, Version]) -> None:
    item = show.client.get_model_version(show.name, show.number(two[1]))
    assert item.source.startswith("models:/m-")
    model = show.client.get_logged_model(item.source.removeprefix("models:/"))
    folder = Path(model.artifact_location.removeprefix("file://"))
    assert sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()) == [
        "checkpoint/config.json",
        "checkpoint/model.safetensors",
        "report.html",
    ]


def test_projecting_again_makes_nothing_new(show: Show, two: tuple[Version, Version]) -> None:
    experiment = show.client.get_experiment_by_name(show.name).experiment_id
    before = len(show.client.search_runs([experiment])), len(list(show.registry.models.versions(show.name)))
    assert show.project(show.world.baseline, two[0].policy, two[1].policy) == []
    assert (len(show.client.search_runs([experiment])), len(list(show.registry.models.versions(show.name)))) == before


def test_upload_that_died_half_way_is_made_again_without_a_second_run(fresh: Show) -> None:
    version = fresh.world.candidate("sft")
    experiment = fresh.registry.models.experiment(fresh.name)
    tags = {"ratchet.version": version.id}
    run = fresh.client.create_run(experiment, tags=tags)
    fresh.client.create_logged_model(experiment, name="sft", source_run_id=run.info.run_id, tags=tags)
    assert fresh.project(version.policy) == []
    assert [found.info.run_name for found in fresh.client.search_runs([experiment])] == ["sft"]
    assert fresh.registry.models.logged(experiment, version.id) is not None


def test_ledger_that_moved_on_is_lag_and_no_incident(show: Show, two: tuple[Version, Version]) -> None:
    show.world.ledger.rollback(show.world.tenant, show.world.experiment, by="Olga", reason="slow")
    third = show.world.produce("third")
    assert show.reconcile() == []
    assert show.aliases() == {"production": "third", "previous-production": "first"}
    assert show.tags(two[1])["ratchet.state"] == "rolled_back"
    assert show.tags(two[1])["ratchet.reason"] == "slow"
    assert show.tags(third)["ratchet.state"] == "production"


def test_pass_that_died_half_way_is_lag_and_no_incident(show: Show, two: tuple[Version, Version]) -> None:
    third = show.world.produce("third")
    show.reconcile()
    show.client.set_registered_model_tag(show.name, "ratchet.seq", str(show.world.seq - 4))
    show.client.set_registered_model_alias(show.name, "production", show.number(two[1]))
    assert show.reconcile() == []
    assert show.aliases()["production"] == third.policy.name


def test_alias_moved_by_hand_is_an_incident_and_is_put_right(show: Show, two: tuple[Version, Version]) -> None:
    old = show.number(two[0])
    show.client.set_registered_model_alias(show.name, "production", old)
    expected = (f"alias production of {show.name}", f"version {old}", f"version {show.number(two[1])}", True)
    assert show.reconcile() == [expected]
    assert show.aliases()["production"] == "second"
    (kept,) = show.world.ledger.incidents(show.world.tenant, show.world.experiment)
    assert (kept.what, kept.seen, kept.expected, kept.repaired) == expected
    assert show.reconcile() == []


def test_deleted_alias_is_an_incident_and_is_put_right(show: Show, two: tuple[Version, Version]) -> None:
    show.client.delete_registered_model_alias(show.name, "previous-production")
    ((what, seen, _, repaired),) = show.reconcile()
    assert (what, seen, repaired) == (f"alias previous-production of {show.name}", "deleted", True)
    assert show.aliases() == {"production": "second", "previous-production": "first"}


def test_alias_in_an_empty_slot_is_an_incident_and_is_removed(show: Show, two: tuple[Version, Version]) -> None:
    show.client.set_registered_model_alias(show.name, "canary", show.number(two[0]))
    ((what, _, expected, repaired),) = show.reconcile()
    assert (what, expected, repaired) == (f"alias canary of {show.name}", "not set", True)
    assert "canary" not in show.aliases()


def test_foreign_alias_is_an_incident_and_is_removed(show: Show, two: tuple[Version, Version]) -> None:
    show.client.set_registered_model_alias(show.name, "champion", show.number(two[0]))
    assert [what for what, *_ in show.reconcile()] == [f"alias champion of {show.name}"]
    assert sorted(show.aliases()) == ["previous-production", "production"]


def test_foreign_version_is_reported_once_and_loses_the_alias(show: Show, two: tuple[Version, Version]) -> None:
    foreign = show.client.create_model_version(show.name, "file:///elsewhere", await_creation_for=0)
    show.client.set_registered_model_alias(show.name, "production", str(foreign.version))
    found = show.reconcile()
    assert [(what, repaired) for what, _, _, repaired in found] == [
        (f"version {foreign.version} of {show.name}", False),
        (f"alias production of {show.name}", True),
    ]
    assert show.aliases()["production"] == "second"
    show.reconcile()
    assert len(show.world.ledger.incidents()) == 2


def test_deleted_version_is_made_again_with_its_alias(show: Show, two: tuple[Version, Version]) -> None:
    show.client.delete_model_version(show.name, show.number(two[1]))
    whats = [what for what, *_ in show.reconcile()]
    assert whats == [f"version 2 of {show.name}", f"alias production of {show.name}"]
    assert show.aliases() == {"production": "second", "previous-production": "first"}
    assert show.number(two[1]) == "3"
    assert show.reconcile() == []


@pytest.mark.parametrize(("key", "value"), [("ratchet.state", "canary"), ("ratchet.weights", "0" * 64)])
def test_edited_tag_is_an_incident_and_is_put_right(
    show: Show, two: tuple[Version, Version], key: str, value: str
) -> None:
    before = show.tags(two[1])
    show.client.set_model_version_tag(show.name, show.number(two[1]), key, value)
    assert [what for what, *_ in show.reconcile()] == [f"tag {key} of version 2 of {show.name}"]
    assert show.tags(two[1]) == before


def test_removed_identity_tag_does_not_make_a_second_version(show: Show, two: tuple[Version, Version]) -> None:
    show.client.delete_model_version_tag(show.name, show.number(two[1]), "ratchet.version")
    assert [what for what, *_ in show.reconcile()] == [f"tag ratchet.version of version 2 of {show.name}"]
    assert show.number(two[1]) == "2"


def test_removed_position_tag_does_not_hide_a_moved_alias(show: Show, two: tuple[Version, Version]) -> None:
    show.client.delete_registered_model_tag(show.name, "ratchet.seq")
    show.client.set_registered_model_alias(show.name, "production", show.number(two[0]))
    assert [what for what, *_ in show.reconcile()] == [
        f"tag ratchet.seq of {show.name}",
        f"alias production of {show.name}",
    ]


def test_production_is_written_after_previous_production(
    show: Show, two: tuple[Version, Version], monkeypatch: pytest.MonkeyPatch
) -> None:
    show.world.produce("third")
    order: list[str] = []
    write = show.client.set_registered_model_alias

    def spy(name: str, alias: str, version: str) -> None:
        order.append(alias)
        write(name, alias, version)

    monkeypatch.setattr(show.client, "set_registered_model_alias", spy)
    show.reconcile()
    assert order == ["previous-production", "production"]


def reviewed(fresh: Show) -> Version:
    """A version that waits for a person, projected with its evidence."""
    world = fresh.world
    version = world.candidate("sft")
    decision = world.decision(version, "review")
    world.ledger.apply(version, decision, at=AT)
    bundle = bundle_evidence(
        version, world.manifest, decision, split_lock="a" * 64, datasets={}, grants={}, scorecards={"sft": "b" * 64}
    )
    write_bundle(world.store, bundle)
    assert fresh.project(version.policy) == []
    return version


def answer(fresh: Show, version: Version, **tags: str) -> None:
    for key, value in tags.items():
        fresh.client.set_model_version_tag(fresh.name, fresh.number(version), key.replace("_", "."), value)


def test_answer_in_mlflow_is_read_acted_on_and_settled(fresh: Show) -> None:
    world, version = fresh.world, reviewed(fresh)
    answer(fresh, version, ratchet_review_by="Olga", ratchet_review_reason="looks right", ratchet_review="Approve")
    (review,) = fresh.registry.answers(world.ledger, world.tenant, world.experiment).fit
    assert (review.version.id, review.answer, review.by, review.reason) == (
        version.id,
        "approve",
        "Olga",
        "looks right",
    )
    approve_version(world.store, world.ledger, review.version, by=review.by, reason=review.reason)
    fresh.registry.settle(review, "in canary")
    assert fresh.registry.answers(world.ledger, world.tenant, world.experiment) == ([], [])
    assert fresh.reconcile() == []
    assert fresh.aliases() == {"canary": "sft"}
    assert fresh.tags(version)["ratchet.review.outcome"] == "approve by Olga (looks right): in canary"


def test_evidence_in_mlflow_follows_the_approval(fresh: Show) -> None:
    world, version = fresh.world, reviewed(fresh)
    first = latest_bundle(world.store, version.id)
    assert first is not None
    assert fresh.tags(version)["ratchet.evidence"] == first.digest
    approve_version(world.store, world.ledger, version, by="Olga", reason="ok")
    fresh.reconcile()
    renewed = latest_bundle(world.store, version.id)
    assert renewed is not None
    assert fresh.tags(version)["ratchet.evidence"] == renewed.digest != first.digest
    assert renewed.certificate is not None


@pytest.mark.parametrize(
    ("tags", "lack"),
    [
        ({"ratchet_review": "approve"}, "`ratchet.review.by` must name who answers"),
        ({"ratchet_review": "approve", "ratchet_review_by": "Olga"}, "`ratchet.review.reason` must say why"),
        (
            {"ratchet_review": "maybe", "ratchet_review_by": "Olga", "ratchet_review_reason": "x"},
            "`ratchet.review` says approve or reject",
        ),
    ],
)
def test_incomplete_answer_waits_and_is_told_once_what_it_lacks(fresh: Show, tags: dict[str, str], lack: str) -> None:
    world, version = fresh.world, reviewed(fresh)
    answer(fresh, version, **tags)
    found = fresh.registry.answers(world.ledger, world.tenant, world.experiment)
    assert found.fit == []
    (unfit,) = found.unfit
    assert unfit.said.endswith(f"not acted on: {lack}")
    fresh.registry.tell(world.tenant, world.experiment, unfit)
    assert fresh.registry.answers(world.ledger, world.tenant, world.experiment) == ([], [])
    shown = fresh.tags(version)
    assert shown["ratchet.review.outcome"] == unfit.said
    assert shown["ratchet.review"] == tags["ratchet_review"]
    answer(fresh, version, ratchet_review_by="Olga", ratchet_review_reason="y", ratchet_review=" APPROVED ")
    (review,) = fresh.registry.answers(world.ledger, world.tenant, world.experiment).fit
    assert (review.answer, review.by, review.reason) == ("approve", "Olga", "y")


def test_answer_on_a_version_that_is_not_the_ledgers_is_told_so(fresh: Show) -> None:
    world = fresh.world
    reviewed(fresh)
    tags = {"ratchet.review": "approve", "ratchet.review.by": "Olga", "ratchet.review.reason": "x"}
    fresh.client.create_model_version(fresh.name, "file:///elsewhere", await_creation_for=0, tags=tags)
    found = fresh.registry.answers(world.ledger, world.tenant, world.experiment)
    assert found.fit == []
    assert [(one.number, one.said) for one in found.unfit] == [
        ("2", "approve by Olga (x): not acted on: the release ledger holds no such version")
    ]


def test_command_repairs_every_line_and_prints_incidents(show: Show, two: tuple[Version, Version]) -> None:
    show.client.delete_registered_model_alias(show.name, "production")
    environment = {key: value for key, value in os.environ.items() if key != "MLFLOW_TRACKING_URI"}
    done = subprocess.run(
        [sys.executable, "-m", "resources.registry", "reconcile", "--home", str(show.world.home)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [
        f"incident: alias production of {show.name} was deleted, expected version 2; put right"
    ]
    assert show.aliases()["production"] == "second"


def test_same_story_on_a_real_server(tmp_path: Path, mlflow_url: str) -> None:
    show = Show(tmp_path, mlflow_url, experiment="on_a_server")
    first, second = show.world.produce("first"), show.world.produce("second")
    assert show.project(show.world.baseline, first.policy, second.policy) == []
    assert show.aliases() == {"production": "second", "previous-production": "first"}
    answer(show, second, ratchet_review_by="Olga", ratchet_review_reason="x", ratchet_review="reject")
    (review,) = show.registry.answers(show.world.ledger, show.world.tenant, "on_a_server").fit
    assert review.answer == "reject"


def test_ledger_rolls_back_while_the_server_is_down(tmp_path: Path) -> None:
    from mlflow.exceptions import MlflowException

    show = Show(tmp_path, "http://127.0.0.1:9")
    show.world.produce("first")
    show.world.produce("second")
    _, restored = show.world.ledger.rollback(show.world.tenant, show.world.experiment, by="Olga", reason="x")
    assert restored is not None
    os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] = "0"
    try:
        with pytest.raises(MlflowException):
            show.reconcile()
    finally:
        del os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"]
    assert show.world.ledger.incidents() == []
