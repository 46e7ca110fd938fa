"""The record of a policy in the store: what it is and how it was trained, under a digest that is checked on reading.

The validation figure in it decides which candidate the gate looks at, so a record that was changed opens nothing.
"""

from __future__ import annotations

from pydantic import Field

from ratchet.contracts.evidence import Evidence
from ratchet.contracts.policy import Policy


class PolicyRecord(Evidence, owner="ratchet.policies"):
    """A policy as a stage left it."""

    policy: Policy = Field(description="The policy with its harness and training facts.")


def seal(policy: Policy) -> bytes:
    """Return the bytes of a policy's record."""
    return PolicyRecord.issue(policy=policy).to_bytes()


def read_policy(data: bytes, source: str) -> Policy:
    """Read a policy back. Raises IntegrityError where the record was changed."""
    return PolicyRecord.reopen(data, source).policy
