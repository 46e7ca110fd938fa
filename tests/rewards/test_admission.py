"""Admission: a verifier that disagrees with itself, changes what it reads or scores nothing is refused by name."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from reward_world import WEAK, TinyEnvironment, attempt, delivered, reward, tiny_task, verdict

from ratchet.contracts.attempt import Attempt, CallStep
from ratchet.contracts.environment import Deliverable, Task, ToolCall, ToolResult, Verdict
from ratchet.contracts.manifest import StepPart
from ratchet.contracts.score import Invalid, Scored
from ratchet.errors import RatchetError, SandboxError
from ratchet.rewards.identity import source_version
from ratchet.rewards.verifiers import STEP_VERIFIERS, VERIFIERS
from ratchet.rewards.verifiers.admission import admit, refusals, reopen_admission
from ratchet.sandbox import open_sandbox

STEPS = tuple(
    CallStep(call=ToolCall(name=name), result=ToolResult(content=name, status="ok")) for name in ("a", "a", "b")
)
SAMPLE = [attempt(task=tiny_task(number), seen=verdict(target=number % 2 == 0), steps=STEPS) for number in range(4)]
SPEC = reward(steps=(StepPart(verifier="needed_calls", weight=0.5),))
_calls = itertools.count()
_seen: list[Attempt] = []


def counts(work: Attempt) -> Scored:
    """Every third call is another opinion."""
    return Scored(value=float(next(_calls) % 3 == 0))


def clocks(work: Attempt) -> Scored:
    """The value stands, the evidence does not."""
    return Scored(value=1.0, evidence={"at": time.perf_counter_ns()})


def remembers(work: Attempt) -> Scored:
    """What it saw first is worth more."""
    _seen.append(work)
    return Scored(value=float(work is _seen[0] or (work == _seen[-1] and len(_seen) % 2 == 0)))


def edits(work: Attempt) -> Scored:
    """It takes a note in the task."""
    work.task.payload["seen"] = work.task.payload.get("seen", 0) + 1
    return Scored(value=1.0)


def sorts(work: Attempt) -> Scored:
    """It leaves the files of the deliverable changed, the same way each time."""
    work.deliverable.files["note"] = "read"
    return Scored(value=1.0)


def raises(work: Attempt) -> Scored:
    """It never comes to a score."""
    raise OSError("no such database")


def per_step(work: Attempt) -> list[Scored]:
    """A step verifier that draws."""
    return [Scored(value=float(next(_calls) % 2)) for _ in work.steps or ()]


def test_the_verifiers_of_the_house_are_admitted_with_their_digests() -> None:
    admitted = admit(SAMPLE, SPEC)
    assert admitted.verifiers == {"hidden_tests": source_version(VERIFIERS["hidden_tests"])}
    assert admitted.step_verifiers == {"needed_calls": source_version(STEP_VERIFIERS["needed_calls"])}
    assert reopen_admission(admitted.to_bytes(), "admission.json") == admitted
    assert admit(SAMPLE, WEAK).verifiers.keys() == {"hidden_tests", "visible_tests"}


def fresh() -> list[Attempt]:
    return [one.model_copy(deep=True) for one in SAMPLE]


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        (counts, "verifier counts disagrees with itself"),
        (clocks, "verifier clocks disagrees with itself"),
        (remembers, "verifier remembers disagrees with itself"),
        (edits, "verifier edits changes the attempt that it reads (task 0)"),
        (sorts, "verifier sorts changes the attempt that it reads (task 0)"),
        (raises, "verifier raises scores no attempt of the sample"),
    ],
)
def test_a_verifier_that_is_not_fit_is_refused_by_name(
    rule: Callable[[Attempt], Any], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(VERIFIERS, rule.__name__, rule)
    with pytest.raises(RatchetError) as caught:
        admit(fresh(), reward(parts={"hidden_tests": 1.0, rule.__name__: 1.0}))
    assert why in str(caught.value)
    assert "hidden_tests" not in str(caught.value)


def hangs(work: Attempt) -> Scored:
    """It waits for what never comes."""
    threading.Event().wait()
    raise AssertionError("it came")


def test_a_verifier_that_never_comes_back_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(VERIFIERS, "hangs", hangs)
    with pytest.raises(RatchetError, match="verifier hangs: "):
        admit(fresh(), reward(parts={"hangs": 1.0}, verifier_timeout_s=0.3))


def test_a_step_verifier_that_draws_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STEP_VERIFIERS, "per_step", per_step)
    with pytest.raises(RatchetError, match="step verifier per_step disagrees with itself"):
        admit(fresh(), reward(steps=(StepPart(verifier="per_step", weight=1.0),)))


def test_what_has_no_weight_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STEP_VERIFIERS, "per_step", per_step)
    assert admit(fresh(), reward(steps=(StepPart(verifier="per_step", weight=0.0),))).step_verifiers == {}


def test_step_verifiers_need_episodes_and_a_sample_must_hold_something() -> None:
    without = [one.model_copy(update={"steps": None}) for one in SAMPLE]
    with pytest.raises(RatchetError, match="needed_calls scores no attempt"):
        admit(without, SPEC)
    with pytest.raises(RatchetError, match="0 attempts"):
        admit([], SPEC)
    with pytest.raises(RatchetError, match="hidden_tests scores no attempt"):
        admit([attempt().model_copy(update={"verdict": Invalid(reason="sandbox: gone")})], SPEC)


def test_hidden_tests_that_flicker_are_refused_and_a_failing_sandbox_is_not_their_fault() -> None:
    with open_sandbox() as sandbox:
        environment = TinyEnvironment(sandbox)
        sample = [
            attempt(work, task, environment.verify(task, work))
            for task in environment.tasks()[:2]
            for work in (environment.probes(task)["honest"], environment.probes(task)["no_op"])
        ]
        assert admit(sample, WEAK, verify=environment.verify).verified == 4
        with pytest.raises(RatchetError, match="the hidden verification disagrees with itself on 4 of 4"):
            admit(sample, WEAK, verify=_flickering(environment))

    def gone(task: Task, work: Deliverable) -> Verdict:
        raise SandboxError("sandbox", rule="it must answer", remedy="start it")

    admit(sample, WEAK, verify=gone)


def _flickering(environment: TinyEnvironment) -> Callable[[Task, Deliverable], Verdict]:
    def verify(task: Task, work: Deliverable) -> Verdict:
        found = environment.verify(task, work)
        return found.model_copy(update={"target_passed": not found.target_passed})

    return verify


def test_an_author_tries_a_verifier_on_attempts_of_his_own() -> None:
    def mine(work: Attempt) -> Scored:
        return Scored(value=float(work.deliverable.submitted))

    work = [attempt(delivered(tiny_task(), submitted=submitted)) for submitted in (True, False)]
    assert refusals("verifier", "mine", mine, work) == []
    assert refusals("verifier", "clocks", clocks, work) == ["verifier clocks disagrees with itself on 2 of 2 (task 0)"]
