"""A verifier of anybody's that fails in any way makes the outcome invalid and is named; no fault is a 0."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from reward_world import delivered, reward, tiny_task, verdict

from ratchet.contracts.attempt import Attempt, CallStep
from ratchet.contracts.environment import ToolCall, ToolResult
from ratchet.contracts.manifest import StepPart
from ratchet.contracts.score import Invalid, Scored
from ratchet.rewards.compose import Outcome, judge_outcome
from ratchet.rewards.gates import GATES
from ratchet.rewards.verifiers import STEP_VERIFIERS, VERIFIERS

NAN = float("nan")
released = threading.Event()


def constructed(value: Any, **evidence: Any) -> Callable[[Attempt], Any]:
    return lambda attempt: Scored.model_construct(kind="scored", value=value, evidence=evidence)


def broken(attempt: Attempt) -> Any:
    raise OSError("no disk")


def hanging(attempt: Attempt) -> Any:
    released.wait(60)


def ending(attempt: Attempt) -> Any:
    raise SystemExit(137)


FAULTS: dict[str, tuple[Callable[[Attempt], Any], str]] = {
    "raise": (broken, "OSError: no disk"),
    "hang": (hanging, "Overdue: no answer within 0.5 s"),
    "kill": (ending, "Ended: it raised SystemExit: 137"),
    "nothing": (lambda attempt: None, "returned NoneType"),
    "true": (lambda attempt: True, "returned bool"),
    "a number": (lambda attempt: 0.0, "returned float"),
    "nan": (constructed(NAN), "returned Scored, which is no score in [0, 1]"),
    "infinite": (constructed(float("inf")), "no score in [0, 1]"),
    "over 1": (constructed(1.5), "no score in [0, 1]"),
    "under 0": (constructed(-0.5), "no score in [0, 1]"),
    "a string": (constructed("1.0"), "no score in [0, 1]"),
    "nan in its evidence": (constructed(1.0, seen=NAN), "its evidence is no plain JSON"),
    "an object in its evidence": (constructed(1.0, seen=object()), "its evidence is no plain JSON"),
}
STEPS = (CallStep(call=ToolCall(name="submit"), result=ToolResult(content="", status="ok")),)


@pytest.fixture(autouse=True)
def _release() -> Iterator[None]:
    released.clear()
    yield
    released.set()


def judged(**over: Any) -> Outcome:
    task = tiny_task()
    spec = reward(**over).model_copy(update={"verifier_timeout_s": 0.5})
    return judge_outcome(task, delivered(task), verdict(), calls=1, malformed=0, spec=spec, steps=STEPS)


def reason(outcome: Outcome) -> str:
    assert isinstance(outcome.score, Invalid)
    assert outcome.reward is None
    assert not outcome.accepted
    return outcome.score.reason


@pytest.mark.parametrize("name", FAULTS)
def test_a_verifier_that_fails_is_named_and_never_0(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rule, told = FAULTS[name]
    monkeypatch.setitem(VERIFIERS, "faulty", rule)
    found = reason(judged(parts={"hidden_tests": 1.0, "faulty": 1.0}))
    assert found.startswith("verifier faulty: ")
    assert told in found


@pytest.mark.parametrize("name", FAULTS)
def test_a_step_verifier_that_fails_is_named_too(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rule, told = FAULTS[name]
    whole = name in ("raise", "hang", "kill", "nothing", "true", "a number")
    monkeypatch.setitem(STEP_VERIFIERS, "faulty", rule if whole else lambda attempt: [rule(attempt)])
    found = reason(judged(steps=(StepPart(verifier="faulty", weight=1.0),)))
    assert found.startswith("step verifier faulty: ")
    assert told in found or whole


@pytest.mark.parametrize("name", ["raise", "hang", "kill", "nothing", "nan"])
def test_a_gate_that_fails_vetoes_nothing_and_passes_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(GATES, "no_secret", FAULTS[name][0])
    assert reason(judged()).startswith("gate no_secret: ")
