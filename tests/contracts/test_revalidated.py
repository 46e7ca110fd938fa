"""What foreign code hands over is checked anew: a value that no record could hold is refused, whatever it hides in."""

from __future__ import annotations

import pytest

from ratchet.contracts.environment import Message, ToolCall, ToolResult
from ratchet.contracts.model import revalidated
from ratchet.rewards.judges.base import Judgement


def test_what_holds_comes_back_equal_and_is_another_object() -> None:
    result = ToolResult(content="é" * 9000, status="ok", sandbox_s=0.5)
    assert revalidated(ToolResult, result) == result
    assert revalidated(ToolResult, result) is not result


WITHOUT_JSON = {
    "half a character": "\ud800",
    "a number of 4,401 digits": 10**4400,
    "nan": float("nan"),
    "an infinity": float("-inf"),
}


@pytest.mark.parametrize("size", [10, 10_000])
@pytest.mark.parametrize("value", WITHOUT_JSON.values(), ids=WITHOUT_JSON)
def test_what_cannot_be_written_as_json_is_refused_in_short_and_long_ones(value: object, size: int) -> None:
    with pytest.raises(ValueError, match=r"ToolCall cannot be written as JSON: (UnicodeEncodeError|ValueError)"):
        revalidated(ToolCall, ToolCall(name="x" * size, arguments={"deep": [{"in": value}]}))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_field_that_takes_any_number_is_refused_where_it_is_none(value: float) -> None:
    assert revalidated(Judgement, Judgement(category="good", cost_usd=0.5)) == Judgement(category="good", cost_usd=0.5)
    with pytest.raises(ValueError, match="Judgement"):
        revalidated(Judgement, Judgement.model_construct(category="good", cost_usd=value))


def test_an_instance_that_was_never_validated_proves_nothing() -> None:
    with pytest.raises(TypeError, match="Message is no ToolResult"):
        revalidated(ToolResult, Message(role="tool", content="x"))
    for made in (
        ToolResult.model_construct(content="x", status="ok", sandbox_s=float("nan")),
        ToolResult.model_construct(content="x"),
        ToolResult.model_construct(content=b"x", status="ok"),
    ):
        with pytest.raises(ValueError, match=r"is not what its contract says: (sandbox_s|status|content)"):
            revalidated(ToolResult, made)
