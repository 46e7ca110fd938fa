"""The release certificate: what was verified, with which verdict, when and by whom; every consumer verifies it itself.

A certificate that passes says that the files in the checkpoint folder are the ones that the gate judged, under the
decision and manifest it names. It is protected by content digests alone: whoever can write to both the store and the
ledger can make another one, but not the signature that a manifest may demand beside it (`release.signing`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal

from pydantic import AwareDatetime, Field

from ratchet.contracts.evidence import Evidence
from ratchet.errors import IntegrityError, TransitionError
from ratchet.release.authority import refuse_unauthorised
from ratchet.release.decision import Decision
from ratchet.release.ledger import Ledger
from ratchet.release.records import Event, Version
from ratchet.release.signing import refuse_unsigned
from ratchet.release.states import PROMOTIONS
from ratchet.store import Store, folder_digest

REMEDY = "serve the previous version, and restore the file from its origin or release a new version"


class ReleaseCertificate(Evidence, owner="ratchet.release"):
    """What a promoted version was released on."""

    version: str = Field(description="Id of the version in the release ledger.")
    tenant: str = Field(description="Whose policy it is.")
    experiment: str = Field(description="Experiment it belongs to.")
    policy: str = Field(description="Name of the policy.")
    policy_digest: str = Field(description="Digest of weights and harness.")
    weights_digest: str = Field(description="Digest over the checkpoint's files.")
    manifest_digest: str = Field(description="Manifest it was judged under.")
    decision: str = Field(description="Digest of the decision.")
    verdict: Literal["promote", "review"] = Field(description="What the gate said; `review` was then approved.")
    approvals: tuple[str, ...] = Field(description="Digests of the approvals in the ledger.")
    inputs: dict[str, str] = Field(description="Digest of every input by its name.")
    at: AwareDatetime = Field(description="When it was made.")
    by: str = Field(description="Person or rule that asked for it.")


def certify(
    version: Version,
    decision: Decision,
    inputs: Mapping[str, str],
    *,
    approvals: Sequence[Event] = (),
    by: str,
    at: datetime,
) -> ReleaseCertificate:
    """Make the certificate of a version.

    Args:
        version: the version, as the ledger has it.
        decision: the decision on it.
        inputs: digests by name, beside those that the decision names.
        approvals: approvals of the decision (`Ledger.approvals`); a `review` needs one.
        by: person or rule.
        at: time with zone.

    Raises:
        TransitionError: the decision is not about this version, is a rejection, or is a review that nobody approved.
        IntegrityError: an input has another digest than the decision says.
    """
    refuse_unauthorised(version, None, decision, [])
    given = [event for event in approvals if event.version == version.id and event.decision == decision.digest]
    if decision.state == "reject" or (decision.state == "review" and not given):
        raise TransitionError(
            f"certificate of {version.label}",
            seen=decision.state,
            rule="it is made for a version that passed, or that a person approved after review",
            remedy="have it approved, or train a better candidate",
        )
    for name in sorted(inputs.keys() & decision.inputs.keys()):
        if inputs[name] != decision.inputs[name]:
            raise IntegrityError(
                f"input {name} of {version.label}",
                seen=inputs[name],
                rule=f"the decision was taken on {decision.inputs[name]}",
                remedy="decide anew on the present inputs",
            )
    assert decision.state != "reject"
    return ReleaseCertificate.issue(
        version=version.id,
        tenant=version.tenant,
        experiment=version.experiment,
        policy=version.policy.name,
        policy_digest=version.policy.digest,
        weights_digest=version.policy.weights_digest,
        manifest_digest=version.manifest_digest,
        decision=decision.digest,
        verdict=decision.state,
        approvals=tuple(event.digest for event in given),
        inputs={**decision.inputs, **inputs},
        at=at,
        by=by,
    )


def certificate_name(version: str, decision: str) -> str:
    """Name in the store of the certificate of a version under a decision."""
    return f"certificates/{version}/{decision}.json"


def write_certificate(store: Store, certificate: ReleaseCertificate) -> ReleaseCertificate:
    """Keep a certificate and return the one that is kept: the first of a version and decision stays."""
    name = certificate_name(certificate.version, certificate.decision)
    store.create(name, certificate.to_bytes())
    return ReleaseCertificate.reopen(store.read(name), name)


def check_certificate(data: bytes, source: str, version: Version, folder: Path) -> ReleaseCertificate:
    """Verify a certificate and the checkpoint folder against a version, without ledger or network.

    Raises:
        IntegrityError: naming the certificate, or the checkpoint, whichever is not what was judged.
    """
    certificate = ReleaseCertificate.reopen(data, source)
    for field, stated, expected in (
        ("version", certificate.version, version.id),
        ("policy", certificate.policy_digest, version.policy.digest),
        ("weights", certificate.weights_digest, version.policy.weights_digest),
        ("manifest", certificate.manifest_digest, version.manifest_digest),
    ):
        if stated != expected:
            raise IntegrityError(
                f"{field} in certificate {source}", seen=stated, rule=f"{version.label} has {expected}", remedy=REMEDY
            )
    seen = folder_digest(folder) if folder.is_dir() else None
    if seen != certificate.weights_digest:
        raise IntegrityError(
            f"checkpoint {version.policy.checkpoint} of {version.label}",
            seen=seen or "missing",
            rule=f"its files must have the digest {certificate.weights_digest} that was judged",
            remedy=REMEDY,
        )
    return certificate


def released_under(ledger: Ledger, version: Version) -> str:
    """Digest of the decision under which a version was promoted last. Raises TransitionError where it never was."""
    for event in reversed(ledger.history(version.tenant, version.experiment)):
        if event.version == version.id and event.kind == "moved" and event.decision and event.state in PROMOTIONS:
            return event.decision
    raise TransitionError(version.label, rule="it was never promoted", remedy="promote it first")


def verify_certificate(store: Store, ledger: Ledger, version: Version | str) -> ReleaseCertificate:
    """The door of every consumer of a promoted version: certificate, checkpoint files and standing in the ledger.

    Raises:
        TransitionError: the version does not stand in staging, canary or production now.
        IntegrityError: certificate or checkpoint is missing or is not what was judged, or names another decision.
        SignatureError: the manifest demands a signature, and none counts by now.
    """
    entry = ledger.version(version if isinstance(version, str) else version.id)
    state = ledger.state(entry)
    if state not in PROMOTIONS:
        raise TransitionError(
            entry.label, seen=str(state), rule=f"it must stand in {', '.join(PROMOTIONS)}", remedy="promote it first"
        )
    decision = released_under(ledger, entry)
    name = certificate_name(entry.id, decision)
    certificate = check_certificate(store.read(name), name, entry, store.folder(entry.policy.checkpoint))
    if certificate.decision != decision:
        raise IntegrityError(name, seen=certificate.decision, rule=f"the ledger says {decision}", remedy=REMEDY)
    refuse_unsigned(ledger.home, entry, ledger.decision(entry))
    return certificate
