"""Live tasks over HTTP: the starter policy repairs real functions in a real sandbox, and every outcome is kept."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from release_world import AT, a_decision, a_manifest
from serving_http import Client, running
from serving_world import ServingWorld, until

from ratchet.contracts.environment import Task
from ratchet.contracts.manifest import Reward
from ratchet.contracts.policy import Harness, Policy
from ratchet.environments.repair import RepairEnvironment
from ratchet.environments.repair.episode import TOOLS
from ratchet.policies.checkpoint import STARTER
from ratchet.release.canary import canary_window
from ratchet.release.certificate import certify, write_certificate
from ratchet.release.live import LiveOutcome, read_live
from ratchet.release.records import Version
from ratchet.serving.assign import arm_of
from ratchet.serving.outcomes import Spool
from ratchet.serving.server import Service
from ratchet.serving.tasks import LiveTasks, Work

REWARD = Reward.model_validate({"parts": [{"verifier": "hidden_tests", "weight": 1.0}]})
HARNESS = Harness(tools=tuple(TOOLS), max_calls=20)


def starter(world: ServingWorld, name: str, calls: int) -> Policy:
    """The starter's weights under a harness of its own."""
    weights = world.store.publish_folder(STARTER, f"checkpoints/{name}")
    harness = HARNESS.model_copy(update={"max_calls": calls})
    return Policy(name=name, method="sft", checkpoint=f"checkpoints/{name}", weights_digest=weights, harness=harness)


class Line:
    """A line with the starter as baseline, and the starter with fewer calls in canary, at half of the tasks."""

    def __init__(self, home: Path, environment: RepairEnvironment) -> None:
        self.world = ServingWorld(home, canary_share=0.5)
        self.world.baseline = starter(self.world, "base-starter", 20)
        self.version = self._canary(starter(self.world, "curt", 6))
        self.spool = Spool(home, self.world.store, self.world.tenant, self.world.experiment)
        self.pool = ThreadPoolExecutor(4)
        work = Work(environment, REWARD, a_manifest().prices)
        desk = self.world.desk()
        self.service = Service(desk, self.spool, LiveTasks(desk, self.spool, work, self.pool), poll_s=0.05, flush_s=0.1)

    def _canary(self, policy: Policy) -> Version:
        from ratchet.release.qualification import Probe, qualify
        from ratchet.serving.served import Served, forward_logprobs

        world = self.world
        version = world.ledger.register(world.manifest, policy, by="Ada", at=AT)
        model = Served(version.id, policy, STARTER).model
        said = tuple(forward_logprobs(model, (5, 6), (7, 8), (True, True)))
        probe = Probe(prompt_ids=(5, 6), completion_ids=(7, 8), sampled=(True, True), served=said, trained=said)
        weights = policy.weights_digest
        world.ledger.qualify(
            qualify(version, served_digest=weights, engine="e", probes=[probe], previous_weights=weights, by="x", at=AT)
        )
        decision = a_decision(world.manifest, policy, world.baseline)
        world.ledger.apply(version, decision, at=AT)
        world.ledger.approve(version, by="Olga", reason="good", upto="canary", at=AT)
        approvals = world.ledger.approvals(version, decision)
        write_certificate(world.store, certify(version, decision, {}, approvals=approvals, by="Olga", at=AT))
        return version


@pytest.fixture
def line(tmp_path: Path, environment: RepairEnvironment) -> Iterator[Line]:
    made = Line(tmp_path, environment)
    yield made
    made.pool.shutdown()
    made.spool.close()


def post(client: Client, task: Task, live_id: str) -> dict[str, Any]:
    answer = client.post("/v1/tasks", {"task": task.model_dump(mode="json"), "live_id": live_id})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_tasks_go_to_their_arms_and_their_outcomes_into_the_store(line: Line, tasks: list[Task]) -> None:
    with running(line.service) as client:
        answers = [post(client, task, f"live-{number}") for number, task in enumerate(tasks[:24])]
        again = post(client, tasks[0], "live-0")
        until(lambda: client.get("/health")["outcomes_waiting"] == 0)
    assert again == {**answers[0], "repeated": True}
    kept = read_live(line.world.store, line.world.tenant, line.world.experiment).outcomes
    assert [one.model_dump(mode="json") | {"repeated": False} for one in kept] == answers
    for one in kept:
        assert one.arm == arm_of(line.version.id, one.live_id, 0.5)
        assert one.version == (line.version.id if one.arm == "canary" else "baseline")
        assert one.canary == line.version.id
        assert one.cost > 0
        assert one.latency_s > 0
    assert {one.arm for one in kept} == {"canary", "production"}
    assert {one.accepted for one in kept} <= {True, False}
    assert any(one.accepted for one in kept)
    window = canary_window(line.version, kept, at=AT)
    assert window.pairs > 0
    assert window.canary.tasks + window.production.tasks == len(kept)


def test_a_broken_sandbox_makes_outcomes_invalid_and_no_arm_worse(
    line: Line, tasks: list[Task], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert line.service.tasks is not None

    def broken(task: Task, seed: int) -> Any:
        raise OSError("no room on the disk")

    with running(line.service) as client:
        monkeypatch.setattr(line.service.tasks.work.environment, "open", broken)
        answers = [post(client, task, f"live-{number}") for number, task in enumerate(tasks[:6])]
    assert {answer["score"]["kind"] for answer in answers} == {"invalid"}
    kept = [LiveOutcome.model_validate({k: v for k, v in one.items() if k != "repeated"}) for one in answers]
    window = canary_window(line.version, kept, at=AT)
    assert (window.pairs, window.canary.tasks, window.production.tasks) == (0, 0, 0)
    assert window.canary.invalid + window.production.invalid == 6


def test_a_task_of_another_environment_is_refused(line: Line, tasks: list[Task]) -> None:
    foreign = tasks[0].model_copy(update={"environment_version": "2"})
    with running(line.service) as client:
        answer = client.post("/v1/tasks", {"task": foreign.model_dump(mode="json")})
    assert answer.status_code == 400
    assert "repair 2" in answer.json()["error"]["message"]
