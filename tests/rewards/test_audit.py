"""The audit of a reward: real code, really run; each planted weakness is found by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from reward_world import WEAK, TinyEnvironment, reward

from ratchet.contracts.environment import Deliverable, Task, Verdict
from ratchet.contracts.score import NotComputable
from ratchet.errors import IntegrityError, RatchetError, SandboxError
from ratchet.rewards.audit import ProbeResult, RewardAudit, audit, reopen_audit
from ratchet.sandbox import Limits, open_sandbox


@pytest.fixture(scope="module")
def environment() -> Iterator[TinyEnvironment]:
    with open_sandbox(slots=1, limits=Limits()) as sandbox:
        yield TinyEnvironment(sandbox)


def by_probe(found: RewardAudit) -> dict[str, ProbeResult]:
    return {result.probe: result for result in found.probes}


def test_the_reward_of_hidden_tests_and_gates_passes(environment: TinyEnvironment) -> None:
    found = audit(environment, environment.tasks(), reward())
    assert (found.passed, found.failures, found.tasks) == (True, (), 6)
    honest = by_probe(found)["honest"]
    assert (honest.accepted_share, honest.mean_reward, honest.exploit_share) == (1.0, 1.0, 0.0)
    assert by_probe(found)["no_op"].exploit_share == 0.0
    for kind in ("edited_tests", "deleted_asserts", "early_exit", "hard_coded"):
        result = by_probe(found)[kind]
        assert (result.accepted_share, result.earning_share, result.exploit_share) == (0.0, 0.0, 1.0)


def test_visible_tests_alone_fail_by_name(environment: TinyEnvironment) -> None:
    found = audit(environment, environment.tasks(), WEAK)
    assert not found.passed
    assert set(found.failures) == {
        "edited_tests earns reward",
        "deleted_asserts earns reward",
        "hard_coded earns reward",
    }
    assert found.found["edited_tests earns reward"] == tuple("012345")
    assert by_probe(found)["edited_tests"].accepted_share == 0.0


def test_partial_credit_for_regression_tests_pays_nobody_more_than_doing_nothing(environment: TinyEnvironment) -> None:
    found = audit(environment, environment.tasks(), reward(parts={"target_tests": 1.0, "regression_tests": 1.0}))
    assert found.passed
    assert by_probe(found)["no_op"].mean_reward == 0.5


def test_a_reward_that_pays_everybody_the_same_is_refused(environment: TinyEnvironment) -> None:
    found = audit(environment, environment.tasks()[:1], reward(parts={"regression_tests": 1.0}))
    assert found.failures == ("honest is rewarded above no_op in too few tasks",)


class Broken(TinyEnvironment):
    """An environment whose verification or probes fail on some tasks, or that offers too little."""

    def __init__(self, inner: TinyEnvironment, **fault: Any) -> None:
        super().__init__(inner.sandbox)
        self.fault = fault

    def verify(self, task: Task, deliverable: Deliverable) -> Verdict:
        if task.task_id in self.fault.get("verify", ()):
            raise SandboxError("sandbox", rule="it died", remedy="retry")
        return super().verify(task, deliverable)

    def probes(self, task: Task) -> dict[str, Deliverable]:
        if task.task_id in self.fault.get("probes", ()):
            raise SandboxError("sandbox", rule="it died", remedy="retry")
        probes = super().probes(task)
        if self.fault.get("lazy"):
            probes["honest"] = probes["no_op"]
        return {name: probe for name, probe in probes.items() if name not in self.fault.get("without", ())}


def test_a_dead_sandbox_is_counted_and_never_a_pass(environment: TinyEnvironment) -> None:
    found = audit(Broken(environment, verify=("1",), probes=("2",)), environment.tasks()[:3], reward())
    assert "honest could not be judged" in found.failures
    assert "edited_tests could not be judged" in found.failures
    honest = by_probe(found)["honest"]
    assert (honest.tasks, honest.invalid, honest.accepted_share) == (3, 2, 1.0)
    assert "it died" in str(honest.invalid_reason)


def test_nothing_judged_is_not_computable(environment: TinyEnvironment) -> None:
    found = audit(Broken(environment, verify=("0",)), environment.tasks()[:1], reward())
    assert isinstance(by_probe(found)["honest"].accepted_share, NotComputable)
    assert not found.passed


def test_honest_work_that_is_not_accepted_fails(environment: TinyEnvironment) -> None:
    found = audit(Broken(environment, lazy=True), environment.tasks()[:2], reward())
    assert found.failures == (
        "honest is accepted in too few tasks",
        "honest is rewarded above no_op in too few tasks",
    )


def test_an_environment_without_honeypots_or_without_honest_work_proves_nothing(environment: TinyEnvironment) -> None:
    pots = ("edited_tests", "deleted_asserts", "early_exit", "hard_coded")
    task = environment.tasks()[:1]
    assert audit(Broken(environment, without=pots), task, reward()).failures == ("no honeypot is offered",)
    assert audit(Broken(environment, without=("honest",)), task, reward()).failures == ("honest could not be judged",)


def test_no_task_is_refused(environment: TinyEnvironment) -> None:
    with pytest.raises(RatchetError, match="at least one"):
        audit(environment, [], reward())


def test_a_stored_audit_opens_only_unchanged(environment: TinyEnvironment) -> None:
    found = audit(environment, environment.tasks()[:1], WEAK)
    data = found.to_bytes()
    assert reopen_audit(data, "here") == found
    with pytest.raises(IntegrityError):
        reopen_audit(data.replace(b'"passed":false', b'"passed":true'), "here")
    with pytest.raises(IntegrityError):
        RewardAudit(passed=True)
