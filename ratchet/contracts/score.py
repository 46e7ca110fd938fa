"""Scores are tri-state, and a quantity that cannot be computed says so in words.

An infrastructure failure is `Invalid`, never a score of 0; an episode nobody has judged is `Unscored`; a figure without
a meaning is `NotComputable`, never 0, NaN or `$0.00`, and it stays so through every sum that uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal

from pydantic import Field, model_serializer, model_validator

from ratchet.contracts.model import Contract


class Scored(Contract):
    """A judged episode."""

    kind: Literal["scored"] = "scored"
    value: float = Field(ge=0.0, le=1.0, allow_inf_nan=False, description="The score, in [0, 1].")
    evidence: dict[str, Any] = Field(default_factory=dict, description="What the score rests on, as plain JSON.")


class Invalid(Contract):
    """The infrastructure failed: the episode says nothing about the policy."""

    kind: Literal["invalid"] = "invalid"
    reason: str = Field(min_length=1, description="What failed: reset, tool, sandbox, verifier or judge, and how.")


class Unscored(Contract):
    """Nobody has judged the episode yet."""

    kind: Literal["unscored"] = "unscored"


Score = Annotated[Scored | Invalid | Unscored, Field(discriminator="kind")]


class NotComputable(Contract):
    """A figure that cannot be computed, and why. Serialises as `{"not_computable": reason}`."""

    reason: str = Field(min_length=1, description="Why there is no number, in words that are shown in its place.")

    def __str__(self) -> str:
        return f"not computable: {self.reason}"

    @model_serializer
    def _as_words(self) -> dict[str, str]:
        return {"not_computable": self.reason}

    @model_validator(mode="before")
    @classmethod
    def _from_words(cls, value: Any) -> Any:
        """Read the serialised form, so that evidence that holds quantities can be reopened."""
        if isinstance(value, dict) and set(value) == {"not_computable"}:
            return {"reason": value["not_computable"]}
        return value

    @classmethod
    def parse(cls, value: Any) -> Any:
        """Turn the serialised form back into a `NotComputable`; anything else is returned as it is."""
        if isinstance(value, dict) and set(value) == {"not_computable"}:
            return cls(reason=value["not_computable"])
        return value


Quantity = float | NotComputable


def combine(operation: Callable[..., float], *quantities: Quantity) -> Quantity:
    """Apply `operation` to the numbers, or return the first `NotComputable` among them.

    A ZeroDivisionError, an overflow or a result that is not finite becomes `NotComputable` too.
    """
    import math

    numbers: list[float] = []
    for quantity in quantities:
        if isinstance(quantity, NotComputable):
            return quantity
        numbers.append(quantity)
    try:
        result = operation(*numbers)
    except (ZeroDivisionError, OverflowError) as error:
        return NotComputable(reason=str(error))
    return result if math.isfinite(result) else NotComputable(reason="the result is not a finite number")


def total(quantities: Iterable[Quantity]) -> Quantity:
    """Sum quantities; one that cannot be computed makes the sum so."""
    return combine(lambda *numbers: float(sum(numbers)), *quantities)


def compose_scores(parts: Iterable[Scored | Invalid | Unscored]) -> Scored | Invalid | Unscored | None:
    """Return the first invalid part, else the first unscored part, else None: then every part is scored."""
    parts = list(parts)
    for kind in (Invalid, Unscored):
        for part in parts:
            if isinstance(part, kind):
                return part
    return None
