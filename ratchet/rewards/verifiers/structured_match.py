"""One delivered JSON file equals the expected value, or contains it, with numeric tolerance."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from ratchet.contracts.attempt import Attempt
from ratchet.contracts.model import Contract
from ratchet.contracts.score import Invalid, Scored
from ratchet.rewards.verifiers.comparing import Unread, difference, read_json
from ratchet.rewards.verifiers.declared import declared


class StructuredMatch(Contract):
    """What a task declares under `verification.structured_match`."""

    file: str = Field(description="Delivered JSON file.")
    expected: Any = Field(description="The expected value.")
    subset: bool = Field(default=False, description="Delivered objects may have further keys.")
    absolute: float = Field(default=0.0, ge=0, allow_inf_nan=False, description="Numbers may differ by this much.")
    relative: float = Field(default=0.0, ge=0, allow_inf_nan=False, description="... or by this share.")


def structured_match(attempt: Attempt) -> Scored | Invalid:
    """The parsed file matches; the evidence names the first place where it does not."""
    want = declared(attempt, "structured_match", StructuredMatch)
    text = attempt.deliverable.files.get(want.file)
    if text is None:
        return Scored(value=0.0, evidence={"file": want.file, "differs": "no such file"})
    try:
        got = read_json(text)
    except Unread as error:
        return Scored(value=0.0, evidence={"file": want.file, "differs": f"no JSON: {error}"})
    found = difference(got, want.expected, absolute=want.absolute, relative=want.relative, subset=want.subset)
    return Scored(value=float(found is None), evidence={"file": want.file, "differs": found})
