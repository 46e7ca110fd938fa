"""What the release ledger holds: versions, events, incidents and the slots that follow from them."""

from __future__ import annotations

from functools import cached_property
from typing import Literal

from pydantic import Field

from ratchet.contracts.canonical import digest
from ratchet.contracts.manifest import Manifest, Release
from ratchet.contracts.model import Contract
from ratchet.contracts.policy import Policy
from ratchet.release.states import State

ALIASES = {
    "staging": "staging",
    "canary": "canary",
    "previous_production": "previous-production",
    "production": "production",
}
"""Slots by the alias that they have in a registry; `production`, the write that moves traffic, comes last."""


def version_id(tenant: str, experiment: str, manifest_digest: str, policy_digest: str) -> str:
    """Identity of a version: the same weights and harness under other rules are another one."""
    return digest({"tenant": tenant, "experiment": experiment, "manifest": manifest_digest, "policy": policy_digest})


class Version(Contract):
    """A policy as it stands for release in one experiment, with the release rules it was registered under."""

    tenant: str = Field(description="Whose policy it is.")
    experiment: str = Field(description="Experiment it belongs to.")
    policy: Policy = Field(description="The policy.")
    manifest_digest: str = Field(description="Manifest it was trained and judged under.")
    author: str = Field(description="Author of the run, for four eyes.")
    release: Release = Field(description="Owner, authorised rule and margins of that manifest.")

    @classmethod
    def of(cls, manifest: Manifest, policy: Policy) -> Version:
        """The version that `policy` is under `manifest`."""
        return cls(
            tenant=manifest.tenant,
            experiment=manifest.experiment,
            policy=policy,
            manifest_digest=manifest.digest,
            author=manifest.author,
            release=manifest.release,
        )

    @cached_property
    def id(self) -> str:
        """SHA-256 of tenant, experiment, manifest and policy."""
        return version_id(self.tenant, self.experiment, self.manifest_digest, self.policy.digest)

    @property
    def label(self) -> str:
        """Name and start of the id, for people."""
        return f"{self.policy.name} ({self.id[:12]})"


class Event(Contract):
    """One line of the ledger. It is never changed, and carries the digest of the line before it."""

    id: int = Field(ge=1, description="Position in the whole ledger, without gaps: the cursor of a sensor.")
    tenant: str = Field(description="Whose event it is.")
    experiment: str = Field(description="Experiment it is about.")
    seq: int = Field(ge=1, description="Position in the line of this tenant and experiment.")
    version: str = Field(description="Id of the version.")
    kind: Literal["registered", "decided", "approved", "moved", "watched", "withdrawn", "expired"] = Field(
        description="What happened; `watched`: live tasks came to a verdict; the last two say that a right behind the "
        "version ended. These three move nothing."
    )
    before: State | None = Field(description="State before; None when it was registered.")
    state: State = Field(description="State after.")
    upto: State | None = Field(default=None, description="How far an approval reaches.")
    by: str = Field(min_length=1, description="Person, or `rule:NAME`.")
    reason: str = Field(description="Why, in words; may be empty for a promotion.")
    at: str = Field(description="ISO 8601 with zone.")
    decision: str | None = Field(default=None, description="Digest of the decision that carried it.")
    evidence: str | None = Field(
        default=None, description="Digest of the qualification or of the canary window that it rests on."
    )
    content: str | None = Field(
        default=None, description="Digest of the version in full, with its author and rules, where it was registered."
    )
    previous: str = Field(description="Digest of the line before; empty for the first.")

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the line; without evidence or content it is what it was before there were any."""
        absent = {name for name in ("evidence", "content") if getattr(self, name) is None}
        return digest(self.model_dump(mode="json", exclude=absent))


class Slots(Contract):
    """Which version stands where, at one position of the line."""

    seq: int = Field(description="Position to hand to `transition` as `expected_seq`; 0 where nothing happened yet.")
    staging: Version | None = Field(default=None, description="Newest version in staging.")
    canary: Version | None = Field(default=None, description="Version in canary.")
    production: Version | None = Field(default=None, description="Version in production; None: the baseline serves.")
    previous_production: Version | None = Field(default=None, description="What a rollback would restore.")

    def by_alias(self) -> dict[str, Version]:
        """The slots that are taken, by the alias they have in a registry, `production` last."""
        slots = {alias: getattr(self, slot) for slot, alias in ALIASES.items()}
        return {alias: version for alias, version in slots.items() if version is not None}


class Incident(Contract):
    """A projection that somebody changed by hand: what was seen and what the ledger says."""

    tenant: str = Field(description="Whose registry it is.")
    experiment: str = Field(description="Experiment it is about.")
    what: str = Field(min_length=1, description="What is wrong, in words.")
    seen: str = Field(description="What was found.")
    expected: str = Field(description="What the ledger says.")
    repaired: bool = Field(description="Whether it was put right.")
    at: str = Field(description="ISO 8601 with zone: when it was noticed, not when it was done.")
