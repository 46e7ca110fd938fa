"""The records of a run's policies in the store, under digests that are checked on reading.

What a policy is and how it was trained: its validation figure decides which candidate the gate looks at, so that a
record that was changed opens nothing. And why a candidate of the manifest was left out: a candidate of which neither
record is there was not made yet, or was taken away.
"""

from __future__ import annotations

from pydantic import Field

from ratchet.contracts.evidence import Evidence
from ratchet.contracts.policy import Policy
from ratchet.errors import NothingToLearn


class PolicyRecord(Evidence, owner="ratchet.policies"):
    """A policy as a stage left it."""

    policy: Policy = Field(description="The policy with its harness and training facts.")


class LeftOut(Evidence, owner="ratchet.policies"):
    """A candidate of the manifest that was not made, because its method found nothing to learn from."""

    name: str = Field(description="Name of the candidate.")
    method: str = Field(description="The method.")
    start: str = Field(description="What it would have started from.")
    seen: str = Field(description="What was found, as in `no pair`.")
    rule: str = Field(description="What must hold, in a sentence.")
    remedy: str = Field(description="What the reader can do about it.")

    @property
    def reason(self) -> str:
        """Why, and what to do about it, in one line."""
        return f"{self.seen}: {self.rule}; {self.remedy}"


def seal(policy: Policy) -> bytes:
    """Return the bytes of a policy's record."""
    return PolicyRecord.issue(policy=policy).to_bytes()


def read_policy(data: bytes, source: str) -> Policy:
    """Read a policy back. Raises IntegrityError where the record was changed."""
    return PolicyRecord.reopen(data, source).policy


def seal_left_out(name: str, method: str, start: str, error: NothingToLearn) -> bytes:
    """Return the bytes of the record of a candidate that was left out.

    Args:
        name: name of the candidate.
        method: its method.
        start: what it would have started from.
        error: what the method refused with.
    """
    seen = str(error.seen or "")
    return LeftOut.issue(
        name=name, method=method, start=start, seen=seen, rule=error.rule, remedy=error.remedy
    ).to_bytes()


def read_left_out(data: bytes, source: str) -> LeftOut:
    """Read it back. Raises IntegrityError where the record was changed."""
    return LeftOut.reopen(data, source)
