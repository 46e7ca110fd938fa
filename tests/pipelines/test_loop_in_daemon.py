"""The loop by itself: a real Dagster daemon goes through two full cycles with time compressed.

Schedules tick by the minute and sensors by the second, from the environment variables of `pipelines.timing`; everything
else is as it is shipped. The first experiment is finished by `nightly_improvement_loop`, promoted to canary by the
gate under the owner's rule, and to production by `canary_regression` on live tasks. Logs from outside then make
`retraining_trigger` repeat the experiment, and its candidate is compared with that very version.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import dagster as dg
import pytest
import yaml
from dagster._core.instance.ref import InstanceRef
from dagster._core.scheduler.instigation import InstigatorTick, TickStatus
from dagster_processes import ROOT, WHERE, configured, running
from serving_world import outcome
from small_loop import Loop, small_manifest

from ratchet.contracts.manifest import Manifest
from ratchet.contracts.trajectory import Step, Trajectory
from ratchet.intake import write_atif
from ratchet.loop import deciding, judging
from ratchet.loop.context import reopen_run, runs
from ratchet.loop.incumbent import pinned
from ratchet.loop.intake import ingest_landing
from ratchet.policies.checkpoint import STARTER, load, save
from ratchet.release.ledger import Ledger
from ratchet.release.records import Version
from ratchet.release.states import State
from ratchet.serving.outcomes import Spool

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
T = TypeVar("T")
SOON = {"RATCHET_NIGHTLY_CRON": "* * * * *", "RATCHET_SWEEP_CRON": "* * * * *", "RATCHET_SENSOR_INTERVAL_S": "2"}
CYCLE_S = 1500.0
"""A cycle takes about two minutes on two free cores."""
FIVE = ("nightly_improvement_loop", "daily_retention_sweep", "retraining_trigger", "judge_drift", "canary_regression")
LIVE = 60
"""Live tasks of each arm: enough for the e-process to promote what accepts every task beside one that accepts none."""


def worn(folder: Path) -> Path:
    """A base that has forgotten most of what the starter knows: what is relearned from few logs is a large gain."""
    import torch

    model, tokenizer = load(STARTER)
    torch.manual_seed(0)
    with torch.no_grad():
        for weights in model.parameters():
            weights.add_(torch.randn_like(weights) * 0.35 * weights.std())
    save(model, tokenizer, folder)
    return folder


def manifest(base: Path) -> Manifest:
    """The smallest experiment whose candidate the gate really promotes: expert logs enough, and every seed counts."""
    return small_manifest(
        **{
            "base.checkpoint": str(base),
            "splits.train": 40,
            "splits.validation": 10,
            "splits.heldout": 40,
            "logs": [{"agent": "expert", "episodes": 120, "format": "atif"}],
            "methods": [
                {
                    "name": "sft",
                    "method": "sft",
                    "start": "base",
                    "data": {"policies": ["expert"]},
                    "settings": {"lr": 1e-3, "epochs": 12, "batch_size": 16},
                }
            ],
            "evaluation.minimum_effect": 0.01,
            "release.authorised_rule": "production",
            "release.canary_share": 0.5,
            # Wall clock, on a machine that does other things, too.
            "release.max_latency_ratio": 100.0,
        }
    )


class World:
    """A home with an opened experiment, its Dagster instance, and what happens in both while the daemon runs."""

    def __init__(self, home: Path) -> None:
        """Open the experiment as `ratchet run` does, up to what the nightly loop goes on from."""
        self.home, self.manifest = home, manifest(worn(home / "base"))
        loop = Loop(home, self.manifest, problems=164)
        loop.launch("prepare_experiment")
        loop.launch("ingest_trajectories")
        loop.instance.dispose()
        concurrency = yaml.safe_load((ROOT / "dagster.yaml").read_text(encoding="utf-8"))["concurrency"]
        configured(home, run_coordinator=QUEUED, concurrency=concurrency)
        self.instance = dg.DagsterInstance.from_ref(InstanceRef.from_dir(str(home)))
        self.ledger = Ledger.of(home)

    @property
    def production(self) -> Version | None:
        """The version in production."""
        return self.ledger.current(self.manifest.tenant, self.manifest.experiment).production

    @property
    def canary(self) -> Version | None:
        """The version in canary."""
        return self.ledger.current(self.manifest.tenant, self.manifest.experiment).canary

    def live_tasks(self, version: Version) -> None:
        """Outcomes of live tasks, as a server keeps them: the canary does every task, the baseline none."""
        spool = Spool(self.home, reopen_run(self.home, self.manifest.run_id).store, version.tenant, version.experiment)
        for number in range(LIVE):
            spool.add(outcome(f"c{number}", "canary", version.id, version.id, True))
            spool.add(outcome(f"p{number}", "production", "baseline", version.id, False))
        spool.flush()

    def logs_from_outside(self) -> None:
        """A log of the team's own agent lands and is taken in."""
        folder = self.home / "landing" / self.manifest.tenant / self.manifest.grants[0].grant_id
        own = next(folder.glob("*.expert.atif.jsonl"))
        log = Trajectory.model_validate_json(own.read_text(encoding="utf-8").splitlines()[0])
        note = Step(step_id=len(log.steps) + 1, source="user", message="Thank you, that works in our branch as well.")
        write_atif([log.model_copy(update={"steps": [*log.steps, note]})], folder / "outside.jsonl")
        ingest_landing(self.home, self.manifest.tenant, reopen_run(self.home, self.manifest.run_id).now())

    def ticks(self, name: str) -> list[InstigatorTick]:
        """Every tick of a schedule or sensor."""
        (state,) = [one for one in self.instance.all_instigator_state() if one.instigator_name == name]
        return list(self.instance.get_ticks(state.instigator_origin_id, state.selector_id))

    def ran(self, job: str, key: str) -> list[dg.DagsterRun]:
        """Runs of a job for a partition that succeeded."""
        found = self.instance.get_runs(dg.RunsFilter(job_name=job, tags={"dagster/partition": key}))
        failed = [run for run in found if run.status is dg.DagsterRunStatus.FAILURE]
        assert not failed, (self.home / "dagster._daemon.log").read_text()[-3000:]
        return [run for run in found if run.status is dg.DagsterRunStatus.SUCCESS]


QUEUED = {"module": "dagster._core.run_coordinator", "class": "QueuedRunCoordinator"}


def until(found: Callable[[], T | None], what: str, child: subprocess.Popen[bytes]) -> T:
    """Wait for something that the daemon does."""
    deadline = time.monotonic() + CYCLE_S
    while not (seen := found()):
        assert child.poll() is None, "the daemon has ended"
        assert time.monotonic() < deadline, f"no {what} in {CYCLE_S} s"
        time.sleep(1.0)
    return seen


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    home = tmp_path_factory.mktemp("daemon")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RATCHET_HOME", str(home))
        patch.setenv("DAGSTER_HOME", str(home))
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        for name, value in SOON.items():
            patch.setenv(name, value)
        made = World(home)
        for kind in ("schedule", "sensor"):
            command = [sys.executable, "-m", "dagster", kind, "start", "--start-all", *WHERE]
            subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
        yield made
        made.instance.dispose()


def test_two_cycles_of_the_loop_run_by_themselves(world: World) -> None:
    first = world.manifest.run_id
    with running(world.home, ["dagster._daemon", "run", *WHERE], **SOON) as daemon:
        version = until(lambda: world.canary, "canary of the first cycle", daemon)
        world.live_tasks(version)
        assert until(lambda: world.production, "production of the first cycle", daemon).id == version.id
        until(lambda: world.ran("improve_policy", first), "end of the nightly loop", daemon)
        until(lambda: world.ticks("retraining_trigger"), "first look at the trajectories", daemon)
        world.logs_from_outside()
        second = until(lambda: runs(world.home)[1:], "second experiment", daemon)[0]
        until(lambda: world.ran("retrain_policy", second), "end of the retraining", daemon)
        # Nothing is left to do, so the nightly loop finds everything done and the sweep finds nothing due.
        until(lambda: world.ran("improve_policy", second), "nightly loop of the second experiment", daemon)
        until(lambda: world.ran("sweep_retention", world.manifest.tenant), "sweep", daemon)
        until(lambda: [one for one in world.ticks("judge_drift") if one.is_completed], "look at the judge", daemon)
    with reopen_run(world.home, second) as run:
        held, decision = pinned(run), deciding.open_decision(run)
        assert held is not None
        assert held.version == decision.incumbent_version == version.id
        cards = judging.scorecards(run)
        assert [card.name for card in cards] == ["incumbent", "baseline", "sft"]
        assert cards[2].comparison is not None
        assert cards[2].comparison.reference_digest == version.policy.digest
        assert cards[0].rows_digest == cards[2].incumbent_rows_digest
    assert decision.state in ("promote", "review", "reject")
    for name in FIVE:
        ticks = world.ticks(name)
        assert ticks, name
        assert not [one.error for one in ticks if one.status is TickStatus.FAILURE], name
    moved = [(event.by, event.state) for event in world.ledger.history() if event.version == version.id]
    assert ("rule:canary", State.PRODUCTION) in moved
    assert world.ledger.verify() == len(world.ledger.history())
