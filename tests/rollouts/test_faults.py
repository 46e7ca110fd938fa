"""Every part of an episode fails in every way: the attempt is invalid and says where, and no other is touched."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import pytest
from faults import ALWAYS, KINDS, NAN, Fault, Faulty, FaultyEpisode, FaultySandbox, released
from repair_world import section

from ratchet.contracts.environment import Task, ToolCall
from ratchet.contracts.manifest import Reward, RewardPart
from ratchet.contracts.policy import Decoding, Harness
from ratchet.contracts.score import Invalid, Unscored
from ratchet.environments.repair import RepairEnvironment
from ratchet.environments.repair.agents import AGENTS
from ratchet.errors import SandboxError, TooManyInvalid
from ratchet.policies.checkpoint import STARTER, load
from ratchet.policies.rendering import Rendering
from ratchet.rollouts import live
from ratchet.rollouts.episodes import run_batch
from ratchet.rollouts.judged import Judged, Request, attempt_all, faults, judge, refuse_excess
from ratchet.rollouts.record import to_trajectory
from ratchet.rollouts.rollout import Rollout
from ratchet.rollouts.scripted import play
from ratchet.sandbox import Program

PATIENCE_S = 1.5
REWARD = Reward(parts=(RewardPart(verifier="hidden_tests", weight=1.0),))
IMPATIENT = REWARD.model_copy(update={"verifier_timeout_s": PATIENCE_S})
TOOLS = ("read_report", "next_fix", "apply_fix", "revert", "run_tests", "submit")
HARNESS = Harness(tools=TOOLS, max_calls=8, decoding=Decoding(temperature=1.0, max_tokens_per_turn=3))
SEEN = {
    "raise": "OSError: {} died",
    "hang": f"Overdue: no answer within {PATIENCE_S:g} s",
    "kill": "Ended: it raised SystemExit: 137",
}
GARBAGE = {
    ("reset", "garbage"): "ValueError: Message is not what its contract says: content",
    ("reset", "nan"): "ValueError: Message is not what its contract says: content",
    ("tool", "garbage"): "TypeError: dict is no ToolResult",
    ("tool", "nan"): "ValueError: ToolResult is not what its contract says: sandbox_s",
    ("deliverable", "garbage"): "TypeError: str is no Deliverable",
    ("deliverable", "nan"): "ValueError: Deliverable is not what its contract says: submitted",
    ("verifier", "garbage"): "TypeError: bool is no Verdict",
    ("verifier", "nan"): "ValueError: Verdict is not what its contract says: target_passed",
}


@cache
def policy() -> tuple[Any, Rendering]:
    model, tokenizer = load(STARTER)
    return model, Rendering(tokenizer)


@pytest.fixture(autouse=True)
def _impatient(environment: RepairEnvironment, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The loop waits for `PATIENCE_S`; the episodes keep their own, longer deadline."""
    monkeypatch.setattr(live, "GRACE_S", PATIENCE_S - environment.spec.limits.episode_timeout_s)
    released.clear()
    yield
    released.set()


def attempted(
    environment: Any, requests: Sequence[Request], *, retries: int = 0, spec: Reward = IMPATIENT
) -> list[Judged]:
    with ThreadPoolExecutor(4) as pool:

        def act(some: Sequence[Request]) -> list[Rollout]:
            return run_batch(*policy(), environment, HARNESS, some, pool=pool)

        return attempt_all(environment, requests, spec, act, pool, retries)


def core(judged: Judged) -> Any:
    """Everything about an attempt that no clock measured."""
    rollout = judged.rollout
    spoken = [(one.read, one.turn.ids, one.call, one.result.content) for one in rollout.exchanges]
    return rollout.task.task_id, rollout.seed, spoken, rollout.deliverable, judged.outcome


@pytest.fixture(scope="module")
def requests(tasks: list[Task]) -> list[Request]:
    return [(task, 0) for task in tasks[:7]]


@pytest.fixture(scope="module")
def whole(environment: RepairEnvironment, requests: list[Request]) -> list[Judged]:
    """The same attempts where nothing fails."""
    return attempted(environment, requests, spec=REWARD)


@pytest.mark.parametrize("place", ["reset", "tool", "deliverable", "close", "verifier"])
def test_a_fault_makes_its_attempt_invalid_says_where_and_touches_no_other(
    environment: RepairEnvironment, requests: list[Request], whole: list[Judged], place: str
) -> None:
    kinds = [kind for kind in KINDS if place != "close" or kind in SEEN]
    broken = {requests[index][0].task_id: Fault(place, kind) for index, kind in enumerate(kinds)}
    found = attempted(Faulty(environment, broken), requests)
    for index, kind in enumerate(kinds):
        told = SEEN[kind].format(place) if kind in SEEN else GARBAGE[place, kind]
        assert (found[index].invalid or "").startswith(f"{place}: {told}"), kind
        assert found[index].outcome.reward is None
        assert not found[index].outcome.accepted
    assert [core(one) for one in found[len(kinds) :]] == [core(one) for one in whole[len(kinds) :]]
    counted = faults(found)
    assert counted.attempts == len(requests)
    assert counted.invalid == Counter(one.invalid for one in found[: len(kinds)])
    for one in found:
        log = to_trajectory(
            one.rollout, environment.spec, one.outcome.score if one.invalid else Unscored(),
            policy="p", policy_digest="d", decoding=HARNESS.decoding, tenant="t", grant_id="g",
        )  # fmt: skip
        assert isinstance(log.ratchet.score, Invalid) == (one.invalid is not None)


def test_a_sandbox_that_fails_under_an_episode_makes_it_invalid(
    environment: RepairEnvironment, tasks: list[Task], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed sandbox is really killed: the processes of every slot that is started, until the sandbox gives up."""
    told = {
        "raise": "tool: OSError: sandbox died",
        "hang": "tool: Overdue: no answer within",
        "kill": "tool: SandboxError: bubblewrap sandbox",
        "garbage": "tool: SandboxError: execution of has_close_elements is 'object is no Execution'",
        "nan": "tool: SandboxError: execution of has_close_elements is 'Execution is not what its contract says: cpu_s",
    }
    for kind in KINDS:
        broken = Faulty(environment, {tasks[0].task_id: Fault("sandbox", kind)})
        if kind == "kill":  # three sandboxes start, and die
            monkeypatch.setattr(live, "GRACE_S", 30.0)
        else:
            monkeypatch.setattr(live, "GRACE_S", PATIENCE_S - environment.spec.limits.episode_timeout_s)
        rollout = play(broken, "expert", AGENTS["expert"], tasks[0], 0)
        assert (rollout.invalid or "").startswith(told[kind]), rollout.invalid
        assert rollout.deliverable is None
        assert judge(broken, rollout, REWARD).outcome.reward is None


@pytest.mark.parametrize("place", ["reset", "tool", "deliverable", "close"])
def test_a_scripted_agent_s_attempt_fails_the_same_way(
    environment: RepairEnvironment, tasks: list[Task], place: str
) -> None:
    for kind in KINDS if place != "close" else SEEN:
        rollout = play(
            Faulty(environment, {tasks[0].task_id: Fault(place, kind)}), "expert", AGENTS["expert"], tasks[0], 0
        )
        told = SEEN[kind].format(place) if kind in SEEN else GARBAGE[place, kind]
        assert (rollout.invalid or "").startswith(f"{place}: {told}"), rollout.invalid
        assert rollout.deliverable is None


@pytest.mark.parametrize("place", ["reset", "tool", "sandbox", "deliverable", "verifier"])
def test_a_retry_that_succeeds_counts_once_and_equals_the_attempt_without_a_fault(
    environment: RepairEnvironment, requests: list[Request], whole: list[Judged], place: str
) -> None:
    broken = Faulty(environment, {task.task_id: Fault(place, "raise", times=2) for task, _ in requests[:2]})
    found = attempted(broken, requests, retries=2)
    assert [core(one) for one in found] == [core(one) for one in whole]
    # An episode in which nothing is executed meets no fault of the sandbox.
    hit = [task.task_id for task, _ in requests[:2] if broken.struck[task.task_id]]
    struck = [one for one in found if one.failed]
    assert [one.rollout.task.task_id for one in struck] == hit
    assert hit
    assert place == "sandbox" or len(hit) == 2
    counted = faults(found)
    assert (counted.attempts, counted.invalid, sum(counted.mended.values())) == (len(requests), {}, len(hit))
    assert all(f"{place} died" in reason for one in struck for reason in one.failed)
    # Where only the verification failed, the episode is not played again.
    assert {broken.opened[name, 0] for name in hit} == {1 if place == "verifier" else 3}
    assert all(broken.opened[task.task_id, seed] == 1 for task, seed in requests[2:])


def test_retries_end_with_the_budget(environment: RepairEnvironment, requests: list[Request]) -> None:
    broken = Faulty(environment, {requests[0][0].task_id: Fault("reset", "raise", ALWAYS)})
    found = attempted(broken, requests[:2], retries=2)
    assert broken.opened[requests[0][0].task_id, 0] == 3
    assert found[0].invalid == "reset: OSError: reset died"
    assert found[0].failed == ("reset: OSError: reset died",) * 2
    assert str(faults(found)) == "1 of 2 invalid (1 x reset: OSError: reset died)"
    with pytest.raises(TooManyInvalid, match=r"1 of 2 invalid.*1 x reset: OSError: reset died"):
        refuse_excess("batch", found, 0.4)
    refuse_excess("batch", found, 0.4, of=4)


@pytest.mark.parametrize("cut", [{"outcomes": ()}, {"cpu_s": NAN}, None])
def test_an_execution_that_is_none_neither_passes_nor_fails_the_code(
    environment: RepairEnvironment, tasks: list[Task], cut: dict[str, Any] | None
) -> None:
    class Cut(FaultySandbox):
        def run(self, program: Program) -> Any:
            return None if cut is None else self.inner.run(program).model_copy(update=cut)

    sandbox = Cut(environment.sandbox, Fault("sandbox", "garbage"), lambda: True)
    cut_off = RepairEnvironment(section(), sandbox, seed=1)
    handed_in = environment.probes(tasks[0])["honest"]
    if cut == {"outcomes": ()}:  # to the verifier, a test that is missing has failed
        assert not cut_off.verify(tasks[0], handed_in).target_passed
    else:
        with pytest.raises(SandboxError, match="execution of"):
            cut_off.verify(tasks[0], handed_in)
    with pytest.raises(SandboxError, match="execution of"):
        cut_off.open(tasks[0], 0).call(ToolCall(name="run_tests"))


def test_an_episode_that_opens_too_late_is_closed_then(environment: RepairEnvironment, tasks: list[Task]) -> None:
    closed = threading.Event()

    class Closing(FaultyEpisode):
        def __exit__(self, *error: Any) -> None:
            closed.set()

    class Late(Faulty):
        def open(self, task: Task, seed: int) -> FaultyEpisode:
            released.wait(60)
            return Closing(self, task, seed)

    (found,) = attempted(Late(environment, {}), [(tasks[0], 0)])
    assert (found.invalid or "").startswith("reset: Overdue")
    assert not closed.is_set()
    released.set()
    assert closed.wait(30)
