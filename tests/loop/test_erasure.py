"""After an erasure a search for what the data said finds nothing: in the store, the home, MLflow, or Dagster."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.instance.ref import InstanceRef
from loop_world import MANIFEST
from partner_world import PARTNER, PHRASE, TENANT, WORD, end, grant, land, leak, policy
from searching import found

from pipelines.definitions import defs
from ratchet.contracts.canonical import canonical_json
from ratchet.errors import IntegrityError, RatchetError, RightsError
from ratchet.intake import erase as intake_erase
from ratchet.intake import index
from ratchet.loop import data, deciding, erasing, places
from ratchet.loop.context import open_run
from ratchet.loop.erasing import STATEMENT, certificates, erase, plan
from ratchet.loop.places import Item, Scope
from ratchet.loop.tracing import trace_grant
from ratchet.rights import Ledger
from resources.instance_purge import project_purges
from resources.mlflow_models import as_global_uri
from resources.projection import project_run
from resources.registry import Registry

BY = {"by": "steward", "reason": "the partner withdrew"}


@pytest.fixture
def home(both: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(both, tmp_path / "home"))


@pytest.fixture
def shown(home: Path, mlflow_database: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, Any]]:
    """The home after everything that can quote a log has quoted it, with a Dagster instance inside it."""
    monkeypatch.setenv("RATCHET_HOME", str(home))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    shutil.copy(mlflow_database, home / "mlflow.db")
    settings = {"telemetry": {"enabled": False}}
    (home / "dagster").mkdir()
    with (
        open_run(home, MANIFEST) as run,
        dg.DagsterInstance.from_ref(InstanceRef.from_dir(str(home / "dagster"), overrides=settings)) as instance,
    ):
        prompt = run.heldout_tasks()[0].prompt
        land(run, "leak.jsonl", lambda record: leak(record, prompt))
        assert data.contamination_report(run).figures["findings"] > 0
        project_run(run)
        trace_episode(home, MANIFEST.tenant, MANIFEST.experiment)
        instance.add_dynamic_partitions("tenants", [TENANT])
        instance.add_dynamic_partitions("experiments", [MANIFEST.run_id])
        launch(instance, "ingest_trajectories", TENANT, ["rights_ledger", "trajectories"])
        launch(instance, "improve_policy", MANIFEST.run_id, ["contamination_report"])
        (home / "logs").mkdir()
        (home / "logs" / "dagster.log").write_text(f"a server printed {PHRASE}\n")
        yield home, instance


def launch(instance: dg.DagsterInstance, job: str, key: str, assets: list[str]) -> None:
    """Run assets with their checks; that of the contamination fails here, and quotes what it found."""
    defs.resolve_job_def(job).execute_in_process(
        raise_on_error=False,
        instance=instance,
        partition_key=key,
        asset_selection=[dg.AssetKey(name) for name in assets],
        run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
    )


def trace_episode(home: Path, tenant: str, experiment: str) -> None:
    """Trace something about the data into the experiment, as an agent's own tracing would."""
    registry = Registry.of(home)
    with warnings.catch_warnings(), as_global_uri(registry.models.uri):
        # MLflow warns, when it first traces, of a type hint of its own.
        warnings.simplefilter("ignore")
        import mlflow

        experiment_id = registry.models.experiment(f"{tenant}.{experiment}")
        span = registry.models.client.start_trace("episode", inputs={"text": PHRASE}, experiment_id=experiment_id)
        registry.models.client.end_trace(span.request_id, outputs={"text": PHRASE})
        mlflow.flush_trace_async_logging()


def test_a_search_for_what_was_planted_finds_it_everywhere_before_and_nowhere_after(
    shown: tuple[Path, dg.DagsterInstance],
) -> None:
    home, instance = shown
    purges = project_purges(instance)
    with open_run(home, MANIFEST) as run:
        before = found(home, WORD)
        for place in ("landing/", "store/experiments/", f"store/{TENANT}/", "dagster/", "mlflow.db", "logs/"):
            assert any(name.startswith(place) for name in before), place
        end(run)
        planned = plan(home, PARTNER, run.now(), purges)
        assert found(home, WORD) == before
        kinds = {item.kind for item in planned.items}
        assert kinds >= {
            "landing file", "landing mark", "contamination certificate", "report", "training work", "cache",
            "server log", "MLflow artifact", "MLflow trace", "Dagster run", "intake trajectories", "intake key",
        }  # fmt: skip
        done = erase(home, PARTNER, at=run.now(), purges=purges, **BY)
        assert found(home, WORD) == []
        assert found(home, PHRASE) == []
        text = done.certificate.to_bytes().decode()
        assert WORD not in text
        assert len(done.certificate.objects) == len(planned.items)
        assert done.certificate.affected == tuple(sorted(policy(run, name).digest for name in ("sft", "grpo")))
        assert done.certificate.statement == STATEMENT
        again = erase(home, PARTNER, at=run.now(), purges=purges, **BY)
        assert (again.removed, again.certificate) == (0, done.certificate)
        kept = index(run.store, TENANT)
        assert set(kept["grant_id"]) == {MANIFEST.grants[0].grant_id}
        assert trace_grant(home, PARTNER, run.now())["erasures"][0]["counts"]["landing file"] == 2
        # The rest goes on: the report and MLflow's pages are made anew, with the rights as they are now.
        project_run(run)
        assert "withdrawn" in canonical_json(deciding.report_of(run)["lineage"])
        assert found(home, WORD) == []
        assert data.contamination_report(run).figures["findings"] == 0


def test_the_ledger_notes_an_erasure_and_stays_whole(home: Path) -> None:
    with open_run(home, MANIFEST) as run:
        end(run)
        done = erase(home, PARTNER, at=run.now(), **BY)
        events = Ledger.at_home(home).history(PARTNER)
        assert [event.kind for event in events] == ["grant", "withdraw", "erase", "erase"]
        assert events[2].reason == "begun: the partner withdrew"
        assert events[3].reason.startswith(f"certificate {done.certificate.digest}: ")
        right = run.rights.effective(PARTNER, run.now())
        assert [one.digest for one in certificates(run.store, right)] == [done.certificate.digest]
        place = next(name for name in run.store.names(f"{TENANT}/erasures") if "/certificates/" in name)
        path = run.store.path(place)
        path.write_bytes(path.read_bytes().replace(b'"by":"steward"', b'"by":"someone"'))
        with pytest.raises(IntegrityError):
            certificates(run.store, right)


def test_data_whose_right_holds_or_that_is_held_is_not_erased(home: Path) -> None:
    with open_run(home, MANIFEST) as run:
        before = found(home, WORD)
        with pytest.raises(RightsError, match=r"erasure of grant 'partner' is 'active'"):
            erase(home, PARTNER, at=run.now(), **BY)
        end(run)
        end(run, "legal_hold", hold=True)
        with pytest.raises(RightsError, match=r"erasure of grant 'partner': a legal hold forbids it"):
            plan(home, PARTNER, run.now())
        with pytest.raises(RightsError, match="a legal hold forbids it"):
            erase(home, PARTNER, at=run.now(), **BY)
        with pytest.raises(RightsError, match="knows no such grant"):
            plan(home, "nobody", run.now())
        assert found(home, WORD) == before
        end(run, "legal_hold", hold=False)
        erase(home, PARTNER, at=run.now(), **BY)
        assert found(home, WORD) == []


@pytest.mark.parametrize("where", ["before", "between", "after"])
def test_an_interrupted_erasure_is_gone_on_with_and_its_certificate_misses_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    class Killed(BaseException):
        pass

    def killed(*_: object, **__: object) -> None:
        raise Killed

    target = {"before": (places, "emptied"), "between": (intake_erase, "erase"), "after": (erasing, "_certify")}[where]
    with open_run(home, MANIFEST) as run:
        end(run)
        whole = len(plan(home, PARTNER, run.now()).items)
        with monkeypatch.context() as patched:
            patched.setattr(*target, killed)
            with pytest.raises(Killed):
                erase(home, PARTNER, at=run.now(), **BY)
        assert certificates(run.store, run.rights.effective(PARTNER, run.now())) == []
        done = erase(home, PARTNER, at=run.now(), **BY)
        assert found(home, WORD) == []
        assert len(done.certificate.objects) == whole
        assert not [name for name in run.store.names(f"{TENANT}/erasures") if "/begun/" in name]


def test_a_place_that_cannot_be_emptied_leaves_no_certificate(home: Path) -> None:
    class Away:
        def listed(self, scope: Scope) -> list[Item]:
            return [Item("elsewhere", "there", 1, "it holds data")]

        def purge(self, scope: Scope) -> None:
            raise RatchetError("there", rule="it must answer", remedy="start it")

    with open_run(home, MANIFEST) as run:
        end(run)
        with pytest.raises(RatchetError, match="it must answer"):
            erase(home, PARTNER, at=run.now(), purges=[Away()], **BY)
        assert certificates(run.store, run.rights.effective(PARTNER, run.now())) == []
        assert index(run.store, TENANT)["grant_id"].eq(PARTNER).sum() == 1


def test_what_another_grant_brought_is_untouched_and_can_be_learned_from(home: Path) -> None:
    with open_run(home, MANIFEST) as run:
        first = MANIFEST.grants[0].grant_id
        kept = list((home / "landing" / TENANT / first).iterdir())
        mine = {name: run.store.read(name) for name in run.store.names(f"{TENANT}/trajectories/{first}")}
        assert kept
        assert mine
        grant(run, "other")
        end(run)
        erase(home, PARTNER, at=run.now(), **BY)
        assert all(path.exists() for path in kept)
        assert {name: run.store.read(name) for name in mine} == mine
        found_here = data.demonstrations(run, ["expert"], accepted_only=True, purpose="train_sft")
        assert found_here.grant_ids == (first,)
        assert data.certificate(run, found_here)[0].passed


def test_a_grant_id_that_is_no_name_of_a_folder_reaches_nothing_else(home: Path) -> None:
    outside = home / "landing" / "elsewhere" / "theirs.jsonl"
    outside.parent.mkdir(parents=True)
    outside.write_text("{}\n")
    with open_run(home, MANIFEST) as run:
        for name in ("../elsewhere", "..", "."):
            grant(run, name)
            end(run, grant_id=name)
            erase(home, name, at=run.now(), **BY)
    assert outside.exists()
    assert json.loads(outside.read_text()) == {}
    assert list((home / "landing" / TENANT / PARTNER).iterdir())
