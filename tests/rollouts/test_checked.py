"""A result that was checked before is answered by what was checked; nothing else is, however equal it looks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from ratchet.contracts.environment import ToolResult
from ratchet.contracts.model import revalidated
from ratchet.rollouts import checked
from ratchet.rollouts.checked import AT_MOST, SHORT, checked_result


class Text(str):
    """A text that claims to be any other one."""

    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return True


class Own(ToolResult):
    """An environment's own kind of result."""

    note: str = "own"


class Bare(ToolResult):
    """Another kind of result with no more fields."""


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checked, "_known", {})


def forged(**fields: Any) -> ToolResult:
    """A result that nobody checked; by default one that is sound."""
    sound: dict[str, Any] = {"content": "x", "status": "ok", "violation": None, "honeypot": None}
    return ToolResult.model_construct(**{**sound, "ends_episode": False, "sandbox_s": 0.0, **fields})


def told(check: Callable[[Any], ToolResult], value: object) -> str:
    """What a check says of a value, to the last byte and type."""
    try:
        found = check(value)
    except (TypeError, ValueError, AttributeError) as error:
        return f"{type(error).__name__}: {error}"
    return f"{type(found).__name__} {found!r} {sorted(found.model_fields_set)}"


def test_equal_results_are_one_that_is_not_the_environment_s() -> None:
    first, second = (ToolResult(content="passed all", status="ok", sandbox_s=0.25) for _ in range(2))
    found = checked_result(first)
    assert found == first
    assert found is not first
    assert checked_result(second) is found
    assert checked_result(first.model_copy(update={"ends_episode": True})).ends_episode


def test_few_and_short_results_are_remembered() -> None:
    long = forged(content="x" * (SHORT + 1))
    assert checked_result(long) == checked_result(long) == long
    assert checked_result(long) is not checked_result(long)
    for number in range(AT_MOST + 3):
        assert checked_result(forged(content=str(number))).content == str(number)
    assert len(checked._known) == 3


@pytest.mark.parametrize(
    "twin",
    [
        forged(ends_episode=0),
        forged(ends_episode=0.0),
        forged(sandbox_s=False),
        forged(sandbox_s=0),
        forged(sandbox_s=-0.0),
        forged(sandbox_s=math.nan),
        forged(sandbox_s=-1.0),
        forged(content=Text("x")),
        forged(content="\ud800"),
        forged(content=["x"]),
        forged(status=Text("ok")),
        forged(violation=""),
        Own(content="x", status="ok"),
        Bare(content="x", status="ok"),
        {"content": "x", "status": "ok"},
        None,
    ],
    ids=repr,
)
def test_what_only_looks_equal_is_checked_anew(twin: Any) -> None:
    sound = checked_result(forged())
    for _ in range(2):
        assert told(checked_result, twin) == told(lambda value: revalidated(ToolResult, value), twin)
    assert told(checked_result, forged()) == told(lambda value: revalidated(ToolResult, value), forged())
    assert checked_result(forged()) is sound


def test_values_under_each_other_s_names_are_not_confused() -> None:
    checked_result(forged(violation="answer_key"))
    swapped = forged()
    rest = swapped.__dict__.copy()
    swapped.__dict__.clear()
    swapped.__dict__.update({name: rest[name] for name in ("content", "status")})
    swapped.__dict__.update({"honeypot": "answer_key", "violation": None, "ends_episode": False, "sandbox_s": 0.0})
    found = checked_result(swapped)
    assert (found.violation, found.honeypot) == (None, "answer_key")


def test_fields_that_are_missing_or_too_many_are_told_every_time() -> None:
    checked_result(forged())
    lacking, more, extra = forged(), forged(), forged()
    del lacking.__dict__["status"]
    more.__dict__["reward"] = 1.0
    object.__setattr__(extra, "__pydantic_extra__", {"reward": 1.0})
    hollow = object.__new__(ToolResult)
    for value in (lacking, more, extra, hollow):
        said = {told(checked_result, value), told(lambda value: revalidated(ToolResult, value), value)}
        assert len(said) == 1
        assert "Error" in said.pop()


def test_an_environment_that_changes_its_result_later_changes_nothing_that_was_checked() -> None:
    mine = forged(content="before")
    found = checked_result(mine)
    mine.__dict__["content"] = "after"
    assert found.content == "before"
    assert checked_result(mine).content == "after"
    assert checked_result(forged(content="before")) is found


def test_a_result_that_changes_while_it_is_checked_does_not_stand_for_what_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mine = forged(content="before")

    def meanwhile(kind: type[ToolResult], value: ToolResult) -> ToolResult:
        value.__dict__["content"] = "after"
        return revalidated(kind, value)

    with monkeypatch.context() as patched:
        patched.setattr(checked, "revalidated", meanwhile)
        assert checked_result(mine).content == "after"
    assert checked_result(forged(content="before")).content == "before"


PLAIN = (
    some.none() | some.booleans() | some.integers(-1, 2) | some.sampled_from([0.0, -0.0, 1.0, -1.0, math.nan, 1e300])
)
VALUES: some.SearchStrategy[Any] = PLAIN | some.sampled_from(["", "x", "ok", "error", "\ud800"]) | some.just([])
FIELDS = some.fixed_dictionaries({}, optional=dict.fromkeys([*ToolResult.model_fields, "other"], VALUES))


@given(some.lists(FIELDS, max_size=8))
def test_any_results_in_any_order_are_told_as_without_a_memory(made: list[dict[str, Any]]) -> None:
    for fields in made:
        value = forged(**fields)
        value.__dict__.update(fields)
        assert told(checked_result, value) == told(lambda value: revalidated(ToolResult, value), value)
