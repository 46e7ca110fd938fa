"""The evidence bundle: everything that a release rests on, in one JSON object in the store.

It holds manifest, reward specification, decision and approvals in full, the digests of what is too large or too private
to copy (split lock, data, grants, scorecards, certificate), and the SHA-256 of every file that these are kept in. An
approval makes a new bundle beside the old one; a pointer names the latest.

Digests are those of the time of the decision: data that is erased later, or a grant that is withdrawn later, leaves the
evidence as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

import ratchet
from ratchet.contracts.canonical import digest, digest_bytes, plain
from ratchet.contracts.evidence import Evidence
from ratchet.contracts.manifest import Manifest
from ratchet.contracts.model import Contract
from ratchet.errors import IntegrityError
from ratchet.release.authority import refuse_unauthorised
from ratchet.release.decision import Decision
from ratchet.release.records import Event, Version
from ratchet.store import Store

Role = Literal[
    "manifest", "split_lock", "contamination", "dataset", "training", "policy", "checkpoint", "reward_audit",
    "policy_audit", "calibration", "incumbent", "plan", "rows", "scorecard", "gate_inputs", "decision", "left_out",
]  # fmt: skip
"""What a file of the evidence is."""


class EvidenceFile(Contract):
    """One file in the store that the evidence consists of."""

    role: Role = Field(description="What it is.")
    about: str = Field(description="What it is about: a policy by name, or the experiment.")
    name: str = Field(description="Place in the store.")
    sha256: str = Field(description="SHA-256 of its bytes.")


class EvidenceBundle(Evidence, owner="ratchet.release"):
    """What one version was released, or refused, on."""

    version: str = Field(description="Id of the version in the release ledger.")
    policy: dict[str, Any] = Field(description="The policy: checkpoint, weights digest, harness, parent.")
    policy_digest: str = Field(description="Digest of weights and harness.")
    manifest: dict[str, Any] = Field(description="The manifest in full.")
    manifest_digest: str = Field(description="Its digest.")
    split_lock: str = Field(description="Digest of the split lock.")
    datasets: dict[str, str] = Field(description="Digest of every authorised dataset by its purpose or name.")
    grants: dict[str, str] = Field(description="Digest of every grant record by its id.")
    code_version: str = Field(description="Release and source digest of the code.")
    environment_version: str = Field(description="Version of the environment.")
    reward: dict[str, Any] = Field(description="The reward specification in full.")
    reward_digest: str = Field(description="Its digest.")
    scorecards: dict[str, str] = Field(description="Digest of every scorecard by the name of its policy.")
    further: dict[str, str] = Field(description="Digests of further inputs by name, e.g. calibration or audit.")
    decision: dict[str, Any] = Field(description="The decision in full, every rule with its figures.")
    decision_digest: str = Field(description="Its digest.")
    approvals: tuple[Event, ...] = Field(description="Approvals of the decision, as the ledger has them.")
    certificate: str | None = Field(description="Digest of the release certificate; None where it did not pass.")
    files: tuple[EvidenceFile, ...] = Field(default=(), description="Every file that the evidence is kept in.")

    @property
    def core(self) -> str:
        """Digest of everything but approvals and certificate, which follow the decision and are held by the ledger."""
        return digest(self.model_dump(mode="json", exclude={"approvals", "certificate"}))

    def of(self, role: Role, about: str | None = None) -> list[EvidenceFile]:
        """The files of a role, or those about one policy."""
        return [one for one in self.files if one.role == role and about in (None, one.about)]


def bundle_evidence(
    version: Version,
    manifest: Manifest,
    decision: Decision,
    *,
    split_lock: str,
    datasets: Mapping[str, str],
    grants: Mapping[str, str],
    scorecards: Mapping[str, str],
    further: Mapping[str, str] | None = None,
    approvals: Sequence[Event] = (),
    certificate: str | None = None,
    files: Sequence[EvidenceFile] = (),
) -> EvidenceBundle:
    """Gather the evidence of one version; all strings are digests, `files` is what they are kept in.

    Raises:
        TransitionError: the decision is about another policy or manifest.
        IntegrityError: the manifest is not the one that the version was registered under.
    """
    refuse_unauthorised(version, None, decision, [])
    if manifest.digest != version.manifest_digest:
        raise IntegrityError(
            f"manifest of {version.label}",
            seen=manifest.digest,
            rule=f"it was registered under {version.manifest_digest}",
            remedy="hand over that manifest",
        )
    return EvidenceBundle.issue(
        version=version.id,
        policy=plain(version.policy),
        policy_digest=version.policy.digest,
        manifest=plain(manifest),
        manifest_digest=manifest.digest,
        split_lock=split_lock,
        datasets=dict(datasets),
        grants=dict(grants),
        code_version=code_version(),
        environment_version=manifest.environment.version,
        reward=plain(manifest.reward),
        reward_digest=digest(manifest.reward),
        scorecards=dict(scorecards),
        further=dict(further or {}),
        decision=plain(decision),
        decision_digest=decision.digest,
        approvals=tuple(approvals),
        certificate=certificate,
        files=tuple(files),
    )


def with_approvals(bundle: EvidenceBundle, approvals: Sequence[Event], certificate: str | None) -> EvidenceBundle:
    """The same evidence with the approvals given since, and the certificate that they led to."""
    fields = {name: getattr(bundle, name) for name in type(bundle).model_fields}
    return EvidenceBundle.issue(**{**fields, "approvals": tuple(approvals), "certificate": certificate})


def write_bundle(store: Store, bundle: EvidenceBundle) -> str:
    """Keep a bundle, point the version's pointer at it and return its name in the store."""
    name = bundle_name(bundle.version, bundle.digest)
    store.create_same(name, bundle.to_bytes())
    pointer = latest_pointer(bundle.version)
    seen = store.pointer(pointer)
    if seen != name:
        store.swap(pointer, seen, name)
    return name


def latest_bundle(store: Store, version: str) -> EvidenceBundle | None:
    """The latest bundle of a version, verified by digest; None where there is none."""
    name = store.pointer(latest_pointer(version))
    return read_bundle(store.read(name), name) if name else None


def read_bundle(data: bytes, source: str) -> EvidenceBundle:
    """Reopen a stored bundle. Raises IntegrityError where it was changed."""
    return EvidenceBundle.reopen(data, source)


def bundle_name(version: str, bundle: str) -> str:
    """Place in the store of a bundle of a version."""
    return f"evidence/{version}/{bundle}.json"


@cache
def code_version() -> str:
    """Release of Ratchet and the digest of its Python sources, which says what ran, with or without a repository."""
    root = Path(ratchet.__file__).parent
    sources = {str(path.relative_to(root)): digest_bytes(path.read_bytes()) for path in sorted(root.rglob("*.py"))}
    return f"{ratchet.__version__}+{digest(sources)[:16]}"


def latest_pointer(version: str) -> str:
    """Place in the store of the pointer to the latest bundle of a version."""
    return f"evidence/{version}/latest"
