"""Many episodes at once: what breaks is invalid alone, ids concatenate exactly, the log is what a trainer reads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import pytest

from ratchet.contracts.environment import Deliverable, Message, Task, ToolCall, ToolResult, Verdict
from ratchet.contracts.manifest import Reward, RewardPart
from ratchet.contracts.policy import Decoding, Harness
from ratchet.contracts.score import Invalid, Scored, Unscored
from ratchet.contracts.training import samples
from ratchet.contracts.trajectory import Trajectory
from ratchet.environments.repair import RepairEnvironment
from ratchet.environments.repair.agents import AGENTS
from ratchet.environments.repair.episode import RepairEpisode
from ratchet.errors import TooManyInvalid
from ratchet.loop.trainer import completion
from ratchet.policies.checkpoint import STARTER, load
from ratchet.policies.rendering import Rendering
from ratchet.rollouts.episodes import run_batch
from ratchet.rollouts.judged import judge, judge_all, refuse_excess
from ratchet.rollouts.record import to_trajectory
from ratchet.rollouts.rollout import Rollout
from ratchet.rollouts.scripted import play

REWARD = Reward(parts=(RewardPart(verifier="hidden_tests", weight=1.0),))
TOOLS = ("read_report", "next_fix", "apply_fix", "revert", "run_tests", "submit", "edit_tests")
HARNESS = Harness(tools=TOOLS, max_calls=12, decoding=Decoding(temperature=1.3, max_tokens_per_turn=3))


@cache
def policy() -> tuple[Any, Rendering]:
    model, tokenizer = load(STARTER)
    return model, Rendering(tokenizer)


def roll(environment: Any, requests: list[tuple[Task, int]], harness: Harness = HARNESS, **more: Any) -> list[Rollout]:
    with ThreadPoolExecutor(4) as pool:
        return run_batch(*policy(), environment, harness, requests, pool=pool, **more)


def spoken(rollout: Rollout) -> list[tuple[list[int], str]]:
    return [(exchange.turn.ids, exchange.result.content) for exchange in rollout.exchanges]


class Breaking:
    """The real environment, except that one phase of some tasks raises."""

    def __init__(self, inner: RepairEnvironment, phase: str, broken: set[str]) -> None:
        self.inner, self.spec, self.phase, self.broken = inner, inner.spec, phase, broken

    def _fail(self, phase: str, task: Task) -> None:
        if phase == self.phase and task.task_id in self.broken:
            raise OSError(f"{phase} of {task.task_id} died")

    def open(self, task: Task, seed: int) -> RepairEpisode:
        self._fail("open", task)
        return BreakingEpisode(self, task)

    def verify(self, task: Task, deliverable: Deliverable) -> Verdict:
        self._fail("verify", task)
        return self.inner.verify(task, deliverable)


class BreakingEpisode(RepairEpisode):
    def __init__(self, outer: Breaking, task: Task) -> None:
        super().__init__(task, outer.spec, outer.inner.sandbox, "short", outer.inner.true_fix)
        self.outer = outer

    def observation(self) -> list[Message]:
        self.outer._fail("observation", self.task)
        return super().observation()

    def call(self, call: ToolCall) -> ToolResult:
        if self.calls == 2:
            self.outer._fail("call", self.task)
        return super().call(call)

    def deliverable(self) -> Deliverable:
        self.outer._fail("deliverable", self.task)
        return super().deliverable()

    def __exit__(self, *error: Any) -> None:
        self.outer._fail("close", self.task)
        super().__exit__(*error)


@pytest.mark.parametrize(
    ("phase", "told"),
    [("open", "reset"), ("observation", "reset"), ("call", "tool"), ("deliverable", "deliverable"), ("close", "close")],
)
def test_an_episode_that_breaks_is_invalid_and_no_other_is_touched(
    environment: RepairEnvironment, tasks: list[Task], phase: str, told: str
) -> None:
    requests = [(task, 0) for task in tasks[:8]]
    broken = {tasks[1].task_id, tasks[6].task_id}
    whole = roll(environment, requests)
    found = roll(Breaking(environment, phase, broken), requests)
    for rollout, reference in zip(found, whole, strict=True):
        if rollout.task.task_id in broken:
            assert rollout.invalid == f"{told}: OSError: {phase} of {rollout.task.task_id} died"
            assert rollout.deliverable is None
        else:
            assert rollout.invalid is None
            assert spoken(rollout) == spoken(reference)
            assert rollout.deliverable == reference.deliverable


def test_a_batch_in_which_every_episode_breaks_is_a_batch_of_invalid_ones(
    environment: RepairEnvironment, tasks: list[Task]
) -> None:
    broken = Breaking(environment, "open", {task.task_id for task in tasks})
    found = roll(broken, [(task, 0) for task in tasks[:3]])
    assert [rollout.calls for rollout in found] == [0, 0, 0]
    assert all(rollout.invalid for rollout in found)
    assert roll(environment, []) == []


def test_a_verifier_that_breaks_makes_the_score_invalid_never_0(
    environment: RepairEnvironment, tasks: list[Task]
) -> None:
    requests = [(task, 0) for task in tasks[:4]]
    broken = Breaking(environment, "verify", {tasks[2].task_id})
    with ThreadPoolExecutor(4) as pool:
        judged = judge_all(broken, roll(broken, requests), REWARD, pool)
    reasons = [one.outcome.score.reason if isinstance(one.outcome.score, Invalid) else None for one in judged]
    assert reasons == [None, None, f"verifier: OSError: verify of {tasks[2].task_id} died", None]
    assert judged[2].outcome.reward is None
    assert not judged[2].outcome.accepted


@pytest.mark.parametrize("phase", ["open", "call", "deliverable"])
def test_a_broken_episode_is_judged_invalid_with_its_reason(
    environment: RepairEnvironment, tasks: list[Task], phase: str
) -> None:
    broken = Breaking(environment, phase, {tasks[0].task_id})
    judged = judge(broken, roll(broken, [(tasks[0], 0)])[0], REWARD)
    assert isinstance(judged.outcome.score, Invalid)
    assert "OSError" in judged.outcome.score.reason
    assert judged.outcome.reward is None


def test_a_scripted_episode_that_breaks_is_invalid_too(environment: RepairEnvironment, tasks: list[Task]) -> None:
    broken = Breaking(environment, "call", {tasks[0].task_id})
    rollout = play(broken, "expert", AGENTS["expert"], tasks[0], 0)
    assert rollout.invalid == f"tool: OSError: call of {tasks[0].task_id} died"
    assert rollout.deliverable is None
    assert rollout.calls == 2


def test_more_invalid_episodes_than_the_manifest_allows_stop_the_stage(
    environment: RepairEnvironment, tasks: list[Task]
) -> None:
    broken = Breaking(environment, "open", {tasks[0].task_id})
    with ThreadPoolExecutor(4) as pool:
        judged = judge_all(broken, roll(broken, [(task, 0) for task in tasks[:4]]), REWARD, pool)
    refuse_excess("batch", judged, 0.25)
    with pytest.raises(TooManyInvalid, match=r"1 of 4 invalid.*open of"):
        refuse_excess("batch", judged, 0.24)
    refuse_excess("nothing", [], 0.0)


def test_token_ids_concatenate_exactly(environment: RepairEnvironment, tasks: list[Task]) -> None:
    for rollout in roll(environment, [(task, seed) for task in tasks[:8] for seed in (0, 1)]):
        held: list[int] = []
        for index, (exchange, prompt) in enumerate(zip(rollout.exchanges, rollout.prompts(), strict=True)):
            assert prompt == held + exchange.read
            assert (prompt == rollout.prompt_ids) == (index == 0)
            held = prompt + exchange.turn.ids
            assert len(exchange.turn.ids) == len(exchange.turn.logprobs)
        ids, mask, logprobs = completion(rollout)
        assert rollout.prompt_ids + ids == held
        assert len(ids) == len(mask) == len(logprobs)
        assert sum(mask) == rollout.tokens_out
        assert len(held) == rollout.tokens_in + rollout.tokens_out
        sampled = [token for exchange in rollout.exchanges for token in exchange.turn.ids]
        assert [token for token, bit in zip(ids, mask, strict=True) if bit] == sampled


def recorded(rollout: Rollout, environment: RepairEnvironment, score: Any = None) -> Trajectory:
    return to_trajectory(
        rollout,
        environment.spec,
        score or Unscored(),
        policy="starter",
        policy_digest="d" * 64,
        decoding=HARNESS.decoding,
        tenant="t",
        grant_id="g",
    )


def test_the_log_gives_a_trainer_the_very_tokens_and_mask_of_the_rollout(
    environment: RepairEnvironment, tasks: list[Task]
) -> None:
    malformed = 0
    for rollout in roll(environment, [(task, seed) for task in tasks[:10] for seed in (0, 1)]):
        read = Trajectory.model_validate_json(recorded(rollout, environment).model_dump_json())
        (sample,) = samples(read)
        ids, mask, logprobs = completion(rollout)
        before = len(rollout.prompt_ids)
        assert sample.input_ids == rollout.prompt_ids + ids
        assert sample.sampled_mask == [False] * before + [bool(bit) for bit in mask]
        assert sample.logprobs == [0.0] * before + logprobs
        assert read.ratchet.calls == rollout.calls == len(sample.step_ids)
        assert read.ratchet.deliverable == rollout.deliverable
        malformed += rollout.malformed
    assert malformed, "a hot policy should have said something that is no call"


def test_a_trajectory_is_known_by_its_content_and_ends_where_the_rollout_did(
    environment: RepairEnvironment, tasks: list[Task]
) -> None:
    (rollout,) = roll(environment, [(tasks[0], 0)])
    first, again = recorded(rollout, environment), recorded(rollout, environment)
    other = recorded(rollout, environment, Scored(value=0.0))
    assert first.trajectory_id == again.trajectory_id != other.trajectory_id
    assert len(first.steps) == 1 + rollout.calls
    assert [step.source for step in first.steps] == ["user"] + ["agent"] * rollout.calls


@pytest.mark.parametrize("phase", ["open", "observation", "call", "deliverable"])
def test_an_invalid_episode_is_logged_as_invalid(environment: RepairEnvironment, tasks: list[Task], phase: str) -> None:
    broken = Breaking(environment, phase, {tasks[0].task_id})
    judged = judge(broken, roll(broken, [(tasks[0], 0)])[0], REWARD)
    trajectory = recorded(judged.rollout, environment, judged.outcome.score)
    assert isinstance(trajectory.ratchet.score, Invalid)
    assert trajectory.ratchet.deliverable is None
    assert trajectory.steps


def test_a_scripted_log_has_no_tokens_to_train_on_as_sampled(environment: RepairEnvironment, tasks: list[Task]) -> None:
    rollout = play(environment, "expert", AGENTS["expert"], tasks[0], 0)
    trajectory = to_trajectory(
        rollout, environment.spec, Unscored(),
        policy="expert", policy_digest=None, decoding=None, tenant="t", grant_id="g",
    )  # fmt: skip
    assert samples(trajectory) == []
    assert [step.tool_calls[0].function_name for step in trajectory.steps[1:]] == [
        exchange.call.name for exchange in rollout.exchanges
    ]


def test_an_episode_is_the_same_in_any_batch(environment: RepairEnvironment, tasks: list[Task]) -> None:
    requests = [(task, seed) for task in tasks[:5] for seed in (0, 1)]
    together = roll(environment, requests)
    for request, reference in zip(requests, together, strict=True):
        (alone,) = roll(environment, [request])
        assert spoken(alone) == spoken(reference)
    batches = [roll(environment, requests[start : start + 4]) for start in range(0, len(requests), 4)]
    assert [spoken(one) for batch in batches for one in batch] == [spoken(one) for one in together]


def test_attempts_that_open_alike_are_rendered_once_and_share_no_list(
    environment: RepairEnvironment, tasks: list[Task], monkeypatch: pytest.MonkeyPatch
) -> None:
    rendered: list[int] = []
    render = Rendering.prompt

    def counted(self: Rendering, messages: list[Message]) -> list[int]:
        rendered.append(len(messages))
        return render(self, messages)

    monkeypatch.setattr(Rendering, "prompt", counted)
    found = roll(environment, [(task, seed) for task in tasks[:2] for seed in range(4)])
    assert len(rendered) == len({tuple(rollout.opening) for rollout in found}) <= 2
    assert [rollout.prompt_ids for rollout in found[1:4]] == [found[0].prompt_ids] * 3
    assert len({id(rollout.prompt_ids) for rollout in found}) == 8


def test_salt_and_seed_change_what_is_drawn(environment: RepairEnvironment, tasks: list[Task]) -> None:
    requests = [(task, 0) for task in tasks[:6]]

    def drawn(**more: Any) -> list[Any]:
        return [spoken(one) for one in roll(environment, requests, **more)]

    assert drawn() == drawn() != drawn(salt="x")
    assert drawn() != [spoken(one) for one in roll(environment, [(task, 1) for task, _ in requests])]


def test_greedy_decoding_overrides_the_harness(environment: RepairEnvironment, tasks: list[Task]) -> None:
    greedy = Decoding(temperature=0, max_tokens_per_turn=3)
    requests = [(tasks[0], seed) for seed in (0, 1)]
    first, second = roll(environment, requests, decoding=greedy)
    assert spoken(first) == spoken(second)


def test_the_harness_ends_an_episode_at_its_own_limit(environment: RepairEnvironment, tasks: list[Task]) -> None:
    short = HARNESS.model_copy(update={"max_calls": 1})
    for rollout in roll(environment, [(task, 0) for task in tasks[:4]], short):
        assert rollout.calls == 1
        assert rollout.deliverable is not None


def test_a_tool_that_the_harness_leaves_out_is_no_call(environment: RepairEnvironment, tasks: list[Task]) -> None:
    few = HARNESS.model_copy(update={"tools": ("read_report",)})
    found = roll(environment, [(task, 0) for task in tasks[:4]], few)
    used = [exchange for rollout in found for exchange in rollout.exchanges if exchange.call.name != "read_report"]
    assert used
    assert {exchange.result.status for exchange in used} == {"malformed"}
    assert all(rollout.deliverable.touched == () for rollout in found)


def test_an_unfinished_turn_is_malformed_and_the_conversation_goes_on(
    environment: RepairEnvironment, tasks: list[Task]
) -> None:
    cut = Decoding(temperature=1.0, max_tokens_per_turn=1)
    for rollout in roll(environment, [(task, 0) for task in tasks[:4]], decoding=cut):
        assert {exchange.turn.finish_reason for exchange in rollout.exchanges} <= {"length", "stop"}
        for exchange, after in zip(rollout.exchanges, rollout.exchanges[1:], strict=False):
            if exchange.turn.finish_reason == "length":
                assert exchange.result.status == "malformed"
                assert after.read[0] == policy()[1].end
