"""What a harness does around the weights: instruction, options, approval rules, and turns that are taken back."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
import torch

from ratchet.contracts.environment import Message, Task, searchable
from ratchet.contracts.policy import Decoding, Harness, unknown_rules
from ratchet.contracts.score import Unscored
from ratchet.environments.repair import RepairEnvironment
from ratchet.policies.checkpoint import STARTER, fresh, load, load_tokenizer
from ratchet.policies.rendering import Rendering
from ratchet.rollouts.engine import Session
from ratchet.rollouts.episodes import run_batch
from ratchet.rollouts.record import to_trajectory
from ratchet.rollouts.rollout import Rollout

TOOLS = ("read_report", "next_fix", "apply_fix", "revert", "run_tests", "submit", "edit_tests")
DECODING = Decoding(temperature=1.3, max_tokens_per_turn=3)
HARNESS = Harness(tools=TOOLS, max_calls=12, decoding=DECODING)


@cache
def policy() -> tuple[Any, Rendering]:
    model, tokenizer = load(STARTER)
    return model, Rendering(tokenizer)


def roll(environment: Any, tasks: list[Task], **changed: Any) -> list[Rollout]:
    with ThreadPoolExecutor(4) as pool:
        harness = HARNESS.model_copy(update=changed)
        return run_batch(*policy(), environment, harness, [(task, 0) for task in tasks[:12]], pool=pool)


def test_a_turn_that_is_taken_back_leaves_no_trace_in_what_comes_after() -> None:
    model = fresh(load_tokenizer(STARTER), seed=4, width=32, layers=2, heads=2).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" not in name:
                parameter.mul_(8)
    session = Session(model, 1, Decoding(temperature=1.0, max_tokens_per_turn=4), ["a", "b", "c"])
    held = {0: [5, 6, 7], 1: [8, 9], 2: [30, 31, 32, 33]}
    added = held
    for step in range(6):
        turns = session.turn(added)
        added = {}
        for row, turn in turns.items():
            if (row + step) % 3 == 0:  # another row each time, also one twice in a row of turns
                session.take_back(row, turn.ids)
                added[row] = held[row][-1:]
                continue
            with torch.inference_mode():
                plain = torch.log_softmax(model(input_ids=torch.tensor([held[row] + turn.ids])).logits[0].double(), -1)
            for at, (token, logprob) in enumerate(zip(turn.ids, turn.logprobs, strict=True), len(held[row]) - 1):
                assert logprob == pytest.approx(float(plain[at, token]), abs=1e-4)
            held[row] = [*held[row], *turn.ids, 40 + step]
            added[row] = [40 + step]


def test_retries_take_back_what_is_no_call_within_the_budget_of_calls(
    environment: RepairEnvironment, tasks: list[Task]
) -> None:
    wild = Decoding(temperature=2.5, max_tokens_per_turn=3)
    without = roll(environment, tasks, decoding=wild)
    found = roll(environment, tasks, decoding=wild, retries=2)
    assert all(not one.taken_back for one in without)
    assert sum(len(one.taken_back) for one in found) > 5
    assert sum(one.malformed for one in found) < sum(one.malformed for one in without)
    for one in found:
        assert one.invalid is None
        assert one.calls + len(one.taken_back) <= HARNESS.max_calls
        kept = sum(len(exchange.turn.ids) for exchange in one.exchanges)
        assert one.tokens_out == kept + sum(len(turn.ids) for turn in one.taken_back)
        # What was taken back is in no prompt, and what was read again for it counts once.
        rendering = policy()[1]
        assert one.exchanges[0].read == one.prompt_ids
        for exchange, after in pairwise(one.exchanges):
            close = [] if exchange.turn.finish_reason == "stop" else [rendering.end]
            assert after.read == close + rendering.result(exchange.result.content)


def test_an_approval_rule_holds_a_call_back_and_the_environment_never_hears_of_it(
    environment: RepairEnvironment, tasks: list[Task]
) -> None:
    heard: list[str] = []
    usual = Decoding(temperature=1.0, max_tokens_per_turn=3)
    found = roll(environment, tasks, decoding=usual, approval_rules=("apply_fix", "submit after run_tests"))
    before = roll(environment, tasks, decoding=usual)
    calls = [exchange for one in found for exchange in one.exchanges]
    assert any(exchange.call.name == "apply_fix" for exchange in calls)
    answers = [exchange.result.content for one in before for exchange in one.exchanges]
    assert "applied" in answers
    assert "approval needed" not in answers
    assert "applied" not in [exchange.result.content for exchange in calls]
    for one in found:
        for previous, exchange in zip([None, *one.exchanges], one.exchanges, strict=False):
            asked = exchange.result.content == "approval needed"
            if exchange.call.name == "submit":
                assert asked == (previous is None or previous.call.name != "run_tests")
                heard.append("submit")
            else:
                assert asked == (exchange.call.name == "apply_fix")
    assert heard


def test_the_instruction_comes_first_and_is_in_the_log(environment: RepairEnvironment, tasks: list[Task]) -> None:
    (one, *_) = roll(environment, tasks, system_prompt="run tests")
    _, rendering = policy()
    user = [Message(role="user", content=text) for text in one.opening]
    assert one.prompt_ids == rendering.prompt([Message(role="system", content="run tests"), *user])
    log = to_trajectory(
        one, environment.spec, Unscored(), policy="p", policy_digest="d", decoding=DECODING, tenant="t", grant_id="g"
    )
    assert [(step.source, step.message) for step in log.steps[:2]] == [
        ("system", "run tests"),
        ("user", one.opening[0]),
    ]
    assert [step.step_id for step in log.steps] == list(range(1, len(log.steps) + 1))


def test_what_the_environment_leaves_open_a_harness_chooses(environment: RepairEnvironment, tasks: list[Task]) -> None:
    offered = searchable(environment)
    assert offered.options == {"observation": ("short", "full")}
    assert unknown_rules(offered.approval_rules, TOOLS) == []
    with environment.open(tasks[0], 0, options={"observation": "full"}) as told:
        assert told.observation()[0].content == tasks[0].prompt
    (one, *_) = roll(environment, tasks[:1], options={"observation": "full"})
    assert one.opening == [tasks[0].prompt]
    assert one.invalid is None
