"""A failed gate holds: in the same run Dagster stops, and launched alone the stage itself refuses."""

from __future__ import annotations

from collections.abc import Iterator

import dagster as dg
import pytest
from dagster._core.errors import DagsterAssetCheckFailedError
from small_loop import Loop, small_manifest

from ratchet.contracts.trajectory import Step, Trajectory
from ratchet.errors import ContaminationError, RightsError
from ratchet.intake import write_atif
from ratchet.loop.context import open_run
from ratchet.rights import Event, Ledger, utc_now


@pytest.fixture(scope="module")
def leaky(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loop]:
    """A loop whose logs from outside hold the prompt of a held-out task."""
    home = tmp_path_factory.mktemp("leaky")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RATCHET_HOME", str(home))
        loop = Loop(home, small_manifest())
        loop.launch("prepare_experiment")
        with open_run(home, loop.manifest) as run:
            secret = run.heldout_tasks()[0]
        folder = home / "landing" / loop.manifest.tenant / loop.manifest.grants[0].grant_id
        (own,) = folder.glob("*.jsonl")
        log = Trajectory.model_validate_json(own.read_text(encoding="utf-8").splitlines()[0])
        told = Step(step_id=len(log.steps) + 1, source="user", message=f"By the way:\n{secret.prompt}")
        write_atif([log.model_copy(update={"steps": [*log.steps, told]})], folder / "outside.jsonl")
        loop.launch("ingest_trajectories")
        yield loop
        loop.instance.dispose()


def test_a_failed_blocking_check_stops_the_same_run(leaky: Loop) -> None:
    with pytest.raises(DagsterAssetCheckFailedError, match="zero_contamination"):
        leaky.launch("improve_policy")
    assert leaky.materialized("contamination_report")
    assert not leaky.materialized("sft_policy")


@pytest.mark.parametrize("asset", ["sft_policy", "grpo_policy"])
def test_launched_alone_after_a_failed_check_the_stage_itself_refuses(leaky: Loop, asset: str) -> None:
    leaky.launch("improve_policy", ["baseline_policy"])
    with pytest.raises(ContaminationError, match="open findings must be 0"):
        leaky.launch("improve_policy", [asset])
    assert not leaky.materialized(asset)


def test_the_failed_check_shows_the_leak(leaky: Loop) -> None:
    key = dg.AssetCheckKey(dg.AssetKey("contamination_report"), "zero_contamination")
    with pytest.raises(DagsterAssetCheckFailedError):
        leaky.launch("improve_policy")
    (record,) = leaky.instance.event_log_storage.get_asset_check_execution_history(key, limit=1)
    assert record.event is not None
    evaluation = record.event.asset_check_evaluation
    assert evaluation is not None
    assert not evaluation.passed
    assert "| layer |" in str(evaluation.metadata["table"].value)


def test_a_withdrawn_right_refuses_training_that_is_launched_alone(leaky: Loop) -> None:
    manifest = leaky.manifest
    withdrawal = Event(
        kind="withdraw", grant_id=manifest.grants[0].grant_id, tenant=manifest.tenant, by="owner", at=utc_now()
    )
    Ledger.at_home(leaky.home).append(withdrawal)
    with pytest.raises(RightsError, match="withdrawn"):
        leaky.launch("improve_policy", ["baseline_policy", "sft_policy"])
