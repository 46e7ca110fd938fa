"""One delivered file is the expected text, to the character or after normalisation."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ratchet.contracts.attempt import Attempt
from ratchet.contracts.model import Contract
from ratchet.contracts.score import Invalid, Scored
from ratchet.rewards.verifiers.comparing import same_text
from ratchet.rewards.verifiers.declared import declared


class ExactMatch(Contract):
    """What a task declares under `verification.exact_match`."""

    file: str = Field(description="Delivered file.")
    expected: tuple[str, ...] = Field(min_length=1, description="Accepted texts; one of them must match.")
    text: Literal["exact", "normalised"] = Field(
        default="exact", description="`normalised` forgives typesetting, case and white space."
    )


def exact_match(attempt: Attempt) -> Scored | Invalid:
    """The file is one of the accepted texts."""
    want = declared(attempt, "exact_match", ExactMatch)
    got = attempt.deliverable.files.get(want.file)
    if got is None:
        return Scored(value=0.0, evidence={"file": want.file, "found": "no such file"})
    equal = any(got == text if want.text == "exact" else same_text(got, text) for text in want.expected)
    return Scored(value=float(equal), evidence={"file": want.file, "text": want.text, "equal": equal})
