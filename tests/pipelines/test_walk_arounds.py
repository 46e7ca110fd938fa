"""Nobody gets past a failed gate in a real Dagster instance: launched alone, by automation, from failure, over GraphQL.

The gate fails in two ways: it rejects the candidate, or it cannot decide because evidence was changed. Either way the
release asset can be launched without the gate, and then stands before the door itself: no version moves on, and the run
says why.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.definitions.reconstruct import ReconstructableRepository
from dagster._core.instance.ref import InstanceRef
from dagster_processes import configured, webserver
from small_loop import SFT_ALONE, Loop, small_manifest

from pipelines.definitions import defs
from ratchet.errors import IntegrityError, RatchetError
from ratchet.loop import deciding, judging
from ratchet.loop.context import open_run
from ratchet.release.ledger import Ledger
from ratchet.release.states import State
from ratchet.serving.depot import Depot
from resources.registry import Registry

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
MANIFEST = small_manifest(methods=SFT_ALONE, **{"release.authorised_rule": "staging"})
DOWNSTREAM = "production_policy"


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home in which everything before the gate is done."""
    home = tmp_path_factory.mktemp("judged")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RATCHET_HOME", str(home))
        loop = Loop(home, MANIFEST)
        loop.launch("prepare_experiment")
        loop.launch("ingest_trajectories")
        upto = [name for name in loop.assets("improve_policy") if name not in ("release_decision", DOWNSTREAM)]
        loop.launch("improve_policy", upto)
        loop.instance.dispose()
    return home


class Case:
    """A copy of the home before the gate, on a Dagster instance of its own."""

    def __init__(self, home: Path, *, tampered: bool) -> None:
        """Open it; where it is tampered with, the gate cannot decide, else it rejects."""
        self.home, self.tampered = home, tampered
        configured(home)
        self.instance = dg.DagsterInstance.from_ref(InstanceRef.from_dir(str(home)))
        with open_run(home, MANIFEST) as run:
            if tampered:
                card = run.store.path(run.name("scorecards", "sft.json"))
                data = bytearray(card.read_bytes())
                data[len(data) // 2] ^= 1
                card.write_bytes(data)

    def execute(self, *assets: str) -> dg.DagsterRun:
        """Execute assets of the improvement in a run of their own, whatever comes of it."""
        job = repository().get_reconstructable_job("improve_policy")
        found = dg.execute_job(
            job,
            self.instance,
            asset_selection=[dg.AssetKey(name) for name in assets],
            tags={"dagster/partition": MANIFEST.run_id},
        )
        return self.run(found.run_id)

    def run(self, run_id: str) -> dg.DagsterRun:
        """A run as the instance holds it."""
        found = self.instance.get_run_by_id(run_id)
        assert found is not None
        return found

    def held(self, run_id: str) -> None:
        """Assert that nothing was promoted, and that the run says why."""
        events = Ledger.of(self.home).history(MANIFEST.tenant, MANIFEST.experiment)
        assert {event.state for event in events} <= {State.CANDIDATE, State.REJECTED}
        if self.tampered:
            assert self.run(run_id).status is dg.DagsterRunStatus.FAILURE
            assert events == []
            assert "decision.json: it must be in the store" in self.told(run_id) or "sft.json" in self.told(run_id)
            return
        assert self.run(run_id).status is dg.DagsterRunStatus.SUCCESS
        assert [event.state for event in events if event.kind == "moved"] == [State.REJECTED]
        with open_run(self.home, MANIFEST) as run:
            reasons = deciding.open_decision(run).reasons
        record = self.instance.get_latest_materialization_event(dg.AssetKey(DOWNSTREAM))
        assert record is not None
        assert record.run_id == run_id
        assert record.asset_materialization is not None
        said = str(record.asset_materialization.metadata["summary"].value)
        assert said.startswith("sft stands in rejected: ")
        assert reasons[0] in said
        model = Registry.of(self.home).models.client.get_registered_model(f"{MANIFEST.tenant}.{MANIFEST.experiment}")
        assert model.aliases == {}

    def told(self, run_id: str) -> str:
        """Everything that the run's failures say."""
        return "\n".join(
            entry.dagster_event.step_failure_data.error.to_string()
            for entry in self.instance.all_logs(run_id)
            if entry.dagster_event
            and entry.dagster_event.is_step_failure
            and entry.dagster_event.step_failure_data.error
        )


def repository() -> ReconstructableRepository:
    """The definitions, as Dagster's own processes load them."""
    return ReconstructableRepository.for_module("pipelines.definitions", "defs", working_directory=None)


@pytest.fixture(params=["rejected", "undecided"])
def case(request: pytest.FixtureRequest, judged: Path, tmp_path: Path) -> Iterator[Case]:
    home = Path(shutil.copytree(judged, tmp_path / "home"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RATCHET_HOME", str(home))
        made = Case(home, tampered=request.param == "undecided")
        yield made
        made.instance.dispose()


def test_launched_alone(case: Case) -> None:
    gate = case.execute("release_decision")
    assert gate.status is (dg.DagsterRunStatus.FAILURE if case.tampered else dg.DagsterRunStatus.SUCCESS)
    case.held(case.execute(DOWNSTREAM).run_id)


def test_the_canary_alone(case: Case) -> None:
    """What looks at live tasks moves no version, and serving has nothing to load."""
    case.execute("release_decision", DOWNSTREAM)
    before = Ledger.of(case.home).history(MANIFEST.tenant, MANIFEST.experiment)
    looked = case.execute("canary_window")
    assert Ledger.of(case.home).history(MANIFEST.tenant, MANIFEST.experiment) == before
    if case.tampered:
        assert looked.status is dg.DagsterRunStatus.FAILURE
        assert "decision.json: it must be in the store" in case.told(looked.run_id)
    else:
        record = case.instance.get_latest_materialization_event(dg.AssetKey("canary_window"))
        assert record is not None
        assert record.asset_materialization is not None
        said = str(record.asset_materialization.metadata["summary"].value)
        assert said.endswith("stands in rejected: there are no live tasks to look at")
    with open_run(case.home, MANIFEST) as run:
        depot = Depot(case.home, run.store, Ledger.of(case.home), MANIFEST.tenant, MANIFEST.experiment)
        assert Ledger.of(case.home).current(MANIFEST.tenant, MANIFEST.experiment).by_alias() == {}
        if not case.tampered:
            with pytest.raises(RatchetError, match="it was never promoted"):
                depot.folder(deciding.candidate_version(run))


def test_by_automation(case: Case) -> None:
    """`eager()` asks for the release as soon as the gate was materialised, its failed checks notwithstanding."""
    eager = dg.AutomationCondition.eager()
    assets = [
        asset.map_asset_specs(
            lambda spec: (
                spec.replace_attributes(automation_condition=eager) if spec.key == dg.AssetKey(DOWNSTREAM) else spec
            )
        )
        for asset in defs.assets or ()
        if isinstance(asset, dg.AssetsDefinition)
    ]
    automated = dg.Definitions(assets=assets, resources=defs.resources, executor=dg.in_process_executor)
    release = dg.AssetSelection.assets(DOWNSTREAM)
    before = dg.evaluate_automation_conditions(automated, case.instance, release)
    if case.tampered:
        # The gate fails, so nothing is new; a decision from elsewhere is materialised by hand, as a report is.
        case.instance.report_runless_asset_event(dg.AssetMaterialization("release_decision", partition=MANIFEST.run_id))
    else:
        case.execute("release_decision")
    after = dg.evaluate_automation_conditions(automated, case.instance, release, cursor=before.cursor)
    asked = after.get_requested_partitions(dg.AssetKey(DOWNSTREAM))
    assert asked == {MANIFEST.run_id}
    done = automated.resolve_implicit_global_asset_job_def().execute_in_process(
        instance=case.instance,
        partition_key=MANIFEST.run_id,
        asset_selection=[dg.AssetKey(DOWNSTREAM)],
        raise_on_error=False,
    )
    case.held(done.run_id)


def test_from_failure(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        if not case.tampered:
            # The release fails after the gate's verdict, because MLflow is away: that is where it goes on.
            patch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
            patch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
        failed = case.execute("release_decision", DOWNSTREAM)
    assert failed.status is dg.DagsterRunStatus.FAILURE
    job = repository().get_reconstructable_job("improve_policy")
    options = dg.ReexecutionOptions.from_failure(failed.run_id, case.instance)
    tags = {"dagster/partition": MANIFEST.run_id}
    again = dg.execute_job(job, case.instance, reexecution_options=options, tags=tags)
    assert case.run(again.run_id).parent_run_id == failed.run_id
    case.held(again.run_id)


def test_over_graphql(case: Case) -> None:
    """A real webserver, whose runs are processes of their own: alone, and from failure."""
    with webserver(case.home) as server:
        gate = server.launch("improve_policy", MANIFEST.run_id, ["release_decision"])
        assert server.ended(gate) == ("FAILURE" if case.tampered else "SUCCESS")
        alone = server.launch("improve_policy", MANIFEST.run_id, [DOWNSTREAM])
        server.ended(alone)
        case.held(alone)
        if case.tampered:
            again = server.from_failure(alone)
            assert server.ended(again) == "FAILURE"
            case.held(again)


def test_the_stage_itself_refuses_whoever_calls_it(case: Case) -> None:
    with open_run(case.home, MANIFEST) as run:
        if case.tampered:
            with pytest.raises(IntegrityError, match=r"scorecards/sft\.json"):
                deciding.release_decision(run)
            with pytest.raises(IntegrityError, match=r"decision\.json"):
                deciding.registered_versions(run)
        else:
            assert deciding.release_decision(run).figures["state"] == "reject"
            assert "stands in rejected: " in deciding.registered_versions(run).summary
            assert judging.candidates(run)[0].name == "sft"
