"""Reference calls: what matches, once each and only where it succeeded, and what is refused before anything runs."""

from __future__ import annotations

from typing import Any

import pytest

from ratchet.contracts.attempt import CallStep
from ratchet.contracts.environment import Task, ToolCall, ToolResult
from ratchet.errors import EvaluationError
from ratchet.evaluation.references import matched_calls
from ratchet.evaluation.run import plan


def task(**payload: Any) -> Task:
    return Task(
        task_id="t", prompt="p", repo="r", issue_id="i", segment="s", payload=payload, environment="e",
        environment_version="1",
    )  # fmt: skip


def step(name: str, status: Any = "ok", **arguments: Any) -> CallStep:
    return CallStep(call=ToolCall(name=name, arguments=arguments), result=ToolResult(content="", status=status))


BOOK = {"name": "book", "arguments": {"seat": 4, "class": "b"}}
PAY = {"name": "pay", "arguments": {"amount": 10}}


def test_same_tool_and_arguments_match_in_any_order_and_whatever_else_is_called() -> None:
    steps = [step("pay", amount=10), step("look"), step("book", **{"class": "b", "seat": 4})]
    assert matched_calls(task(reference_calls=[BOOK, PAY]), steps) == 2


def test_a_repeated_call_matches_once_and_a_failed_or_other_one_never() -> None:
    right = task(reference_calls=[BOOK, PAY])
    assert matched_calls(right, [step("pay", amount=10), step("pay", amount=10)]) == 1
    assert matched_calls(right, [step("pay", "error", amount=10), step("pay", "refused", amount=10)]) == 0
    assert matched_calls(right, [step("pay", amount=11), step("book", seat=4)]) == 0
    assert matched_calls(task(reference_calls=[PAY, PAY]), [step("pay", amount=10)] * 3) == 2


def test_no_reference_calls_are_not_zero_matches() -> None:
    assert matched_calls(task(), [step("pay", amount=10)]) is None
    assert matched_calls(task(reference_calls=[]), [step("pay", amount=10)]) == 0


@pytest.mark.parametrize("wrong", ["pay", [{"arguments": {}}], [{"name": "pay", "amount": 10}], None, [1]])
def test_reference_calls_that_are_none_stop_the_plan_before_anything_runs(wrong: Any) -> None:
    with pytest.raises(EvaluationError, match="reference_calls of task 't'"):
        plan("lock", "environment", "reward", [task(reference_calls=wrong)], [0])
