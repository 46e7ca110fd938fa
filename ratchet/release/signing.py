"""The signature of a release: an in-toto statement over checkpoint files and evidence bundle, in a DSSE envelope.

The subjects of the statement (https://in-toto.io/Statement/v1) are the files, each with its SHA-256: every file of the
checkpoint and the stored bundle, which in turn has the SHA-256 of all other evidence. The predicate names version,
decision, manifest and time. The envelope (https://github.com/secure-systems-lab/dsse) is what in-toto, cosign and
securesystemslib read, so a reader needs nothing of Ratchet to verify it.

An approval makes a new bundle, which is signed anew where a key is at hand. Where it is not, the signature of the
bundle before still counts, if both say the same of everything but approvals and certificate: those are held by the
ledger's chain.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import AwareDatetime, Field, ValidationError

from ratchet.contracts.canonical import canonical_json, digest_bytes
from ratchet.contracts.model import Contract
from ratchet.errors import IntegrityError, SignatureError, UntrustedError
from ratchet.release.decision import Decision
from ratchet.release.evidence import EvidenceBundle, bundle_name, latest_bundle, read_bundle
from ratchet.release.keys import configured_signer
from ratchet.release.records import Version
from ratchet.release.trust import Trust, TrustedKey
from ratchet.store import Store, open_store
from ratchet.store.base import listing_digest

if TYPE_CHECKING:
    from securesystemslib.signer import Signer

STATEMENT = "https://in-toto.io/Statement/v1"
PAYLOAD = "application/vnd.in-toto+json"
PREDICATE = "urn:ratchet:release:v1"
SIGN = "have the owner sign it: `ratchet keys sign VERSION`, with RATCHET_SIGNING_KEY set"


class Predicate(Contract):
    """What the statement says of its subjects."""

    version: str = Field(description="Id of the version in the release ledger.")
    tenant: str = Field(description="Whose policy it is.")
    experiment: str = Field(description="Experiment it belongs to.")
    policy: str = Field(description="Name of the policy.")
    policy_digest: str = Field(description="Digest of weights and harness.")
    checkpoint: str = Field(description="Place of the checkpoint folder in the store.")
    weights_digest: str = Field(description="Digest over the checkpoint's files.")
    manifest_digest: str = Field(description="Manifest it was judged under.")
    decision: str = Field(description="Digest of the decision.")
    bundle: str = Field(description="Digest of the evidence bundle.")
    signed_at: AwareDatetime = Field(description="When, by the clock of who signed.")


class Signature(NamedTuple):
    """A signature that counts."""

    key: TrustedKey
    predicate: Predicate
    name: str
    """Place of the envelope in the store."""
    files: dict[str, str]
    """SHA-256 of the checkpoint's files by their name in its folder."""
    bundle_sha256: str | None
    """SHA-256 of the stored bundle that it is over."""


def sign_bundle(store: Store, bundle: EvidenceBundle, signer: Signer, *, at: datetime) -> str:
    """Sign a bundle that is in the store, with the checkpoint files it names; once by each key.

    Returns:
        The place of the envelope in the store.

    Raises:
        IntegrityError: the bundle in the store is not this one.
        SignatureError: the key cannot sign.
    """
    from securesystemslib.dsse import Envelope

    place = envelope_name(bundle.version, bundle.digest, signer.public_key.keyid)
    if store.exists(place):
        return place
    stored = bundle_name(bundle.version, bundle.digest)
    if read_bundle(store.read(stored), stored).digest != bundle.digest:
        raise IntegrityError(stored, rule="it must hold the bundle that is signed", remedy="run the release again")
    envelope = Envelope(canonical_json(statement(bundle, at)).encode(), PAYLOAD, {})
    try:
        envelope.sign(signer)
    # A KMS raises errors of its provider's kind.
    except Exception as error:
        raise SignatureError(
            f"signature of version {bundle.version[:12]}",
            rule=f"the key must sign ({type(error).__name__}: {error})",
            remedy="see that the key in RATCHET_SIGNING_KEY can be used from here, and sign again",
        ) from error
    store.create(place, canonical_json(envelope.to_dict()).encode())
    return place


def sign_where_configured(home: Path, store: Store, bundle: EvidenceBundle, at: datetime) -> str | None:
    """Sign a bundle by the key of `RATCHET_SIGNING_KEY`; None where there is none."""
    signer = configured_signer(home)
    return sign_bundle(store, bundle, signer, at=at) if signer else None


def statement(bundle: EvidenceBundle, at: datetime) -> dict[str, Any]:
    """The in-toto statement about a bundle and the checkpoint files that it names."""
    policy = bundle.policy
    predicate = Predicate(
        version=bundle.version,
        tenant=bundle.manifest["tenant"],
        experiment=bundle.manifest["experiment"],
        policy=policy["name"],
        policy_digest=bundle.policy_digest,
        checkpoint=policy["checkpoint"],
        weights_digest=policy["weights_digest"],
        manifest_digest=bundle.manifest_digest,
        decision=bundle.decision_digest,
        bundle=bundle.digest,
        signed_at=at.astimezone(UTC),
    )
    files = {one.name: one.sha256 for one in bundle.files if one.role == "checkpoint"}
    files[bundle_name(bundle.version, bundle.digest)] = digest_bytes(bundle.to_bytes())
    return {
        "_type": STATEMENT,
        "subject": [{"name": name, "digest": {"sha256": files[name]}} for name in sorted(files)],
        "predicateType": PREDICATE,
        "predicate": predicate.model_dump(mode="json"),
    }


def require_signed(store: Store, version: Version, trust: Trust, decision: str | None = None) -> Signature:
    """The door of a version whose manifest demands a signature: one that counts, about this version as it stands.

    It reads no checkpoint: the digest over the files that were signed must be the version's, and whoever loads the
    files holds them against that.

    Args:
        store: where bundles and envelopes are.
        version: the version, as the ledger has it.
        trust: the keys that count (`Trust.of(home)`).
        decision: digest of the decision that it is promoted on; that of its latest bundle by default.

    Raises:
        SignatureError: it is not signed, or no signature counts; says why of each.
    """
    bundle = latest_bundle(store, version.id)
    wanted = decision or (bundle.decision_digest if bundle else None)
    reasons = []
    latest = bundle.digest if bundle else ""
    for name in sorted(envelopes(store, version.id), key=lambda name: latest not in name):
        try:
            found = read_envelope(store.read(name), name, trust)
            _refuse_other(found, store, version, wanted, bundle)
            return found
        except (SignatureError, IntegrityError) as error:
            reasons.append(f"{error.culprit}: {error.rule}")
    raise SignatureError(
        f"version {version.label}",
        seen="unsigned" if not reasons else f"{len(reasons)} signature{'s'[: len(reasons) != 1]}, none that counts",
        rule="its manifest demands the signature of a trusted key" + (f" ({'; '.join(reasons)})" if reasons else ""),
        remedy=SIGN,
    )


def refuse_unsigned(home: Path | None, version: Version, decision: Decision | None) -> None:
    """Raise SignatureError where the version's manifest demands a signature and there is none that counts."""
    if version.release.signature != "required":
        return
    if home is None:
        raise SignatureError(
            f"version {version.label}",
            rule="its manifest demands a signature, which is looked for in the store of a home",
            remedy="open the ledger by its home (`Ledger.of`)",
        )
    require_signed(open_store(home), version, Trust.of(home), decision.digest if decision else None)


def read_envelope(data: bytes, source: str, trust: Trust) -> Signature:
    """Read an envelope and verify its signature, and that its statement is one about a release.

    Raises:
        UntrustedError: none of its keys counts.
        SignatureError: it is no such envelope, or was changed.
    """
    from securesystemslib.dsse import Envelope
    from securesystemslib.exceptions import VerificationError

    remedy = "restore the envelope from its origin, or sign the version again"
    try:
        envelope = Envelope.from_dict(json.loads(data))
        whole = canonical_json(envelope.to_dict()).encode() == data
        body = json.loads(envelope.payload)
        predicate = Predicate.model_validate(body["predicate"])
        kinds = (envelope.payload_type, body["_type"], body["predicateType"])
        files = {one["name"]: one["digest"]["sha256"] for one in body["subject"]}
    except (ValueError, KeyError, TypeError, AttributeError, ValidationError) as error:
        raise SignatureError(
            source, rule=f"it must be an envelope with a statement about a release ({error})", remedy=remedy
        ) from None
    if not whole or kinds != (PAYLOAD, STATEMENT, PREDICATE):
        raise SignatureError(source, rule="it must be written as Ratchet writes it", remedy=remedy)
    key = _counting(envelope.signatures, source, trust, predicate.signed_at)
    try:
        envelope.verify([key.key()], 1)
    except VerificationError:
        raise SignatureError(
            source, rule=f"the signature by {key.label} does not fit what it is over", remedy=remedy
        ) from None
    prefix = f"{predicate.checkpoint}/"
    inside = {name.removeprefix(prefix): value for name, value in files.items() if name.startswith(prefix)}
    if listing_digest(inside) != predicate.weights_digest:
        raise SignatureError(
            source, rule="the files that it is over must be those of the checkpoint that it names", remedy=remedy
        )
    return Signature(key, predicate, source, inside, files.get(bundle_name(predicate.version, predicate.bundle)))


def envelopes(store: Store, version: str) -> list[str]:
    """Places of the envelopes of a version."""
    return [name for name in store.names(f"signatures/{version}") if name.endswith(".dsse.json")]


def envelope_name(version: str, bundle: str, key_id: str) -> str:
    """Place in the store of the envelope over a bundle by a key."""
    return f"signatures/{version}/{bundle}/{key_id}.dsse.json"


def _counting(signatures: dict[str, Any], source: str, trust: Trust, at: datetime) -> TrustedKey:
    """The trusted key among the signers of an envelope."""
    reasons = []
    for key_id in signatures:
        known = trust.by_id(key_id)
        if known is None:
            reasons.append(f"key {key_id[:12]} is not trusted here")
        elif (refusal := known.refusal(at)) is not None:
            reasons.append(f"{known.label}: {refusal}")
        else:
            return known
    raise UntrustedError(
        source,
        rule=f"it must be signed by a trusted key ({'; '.join(reasons) or 'it has no signature'})",
        remedy="sign the version again with a key that is trusted, or add its key with `ratchet keys trust`",
    )


def _refuse_other(
    found: Signature, store: Store, version: Version, decision: str | None, latest: EvidenceBundle | None
) -> None:
    """Raise SignatureError where a signature is about another version, decision or evidence."""
    said = found.predicate
    pairs: list[tuple[str, str | None, str | None]] = [
        ("version", said.version, version.id),
        ("policy", said.policy_digest, version.policy.digest),
        ("weights", said.weights_digest, version.policy.weights_digest),
        ("checkpoint", said.checkpoint, version.policy.checkpoint),
        ("manifest", said.manifest_digest, version.manifest_digest),
        ("decision", said.decision, decision),
    ]
    name = bundle_name(said.version, said.bundle)
    data = store.read(name)
    signed = read_bundle(data, name)
    pairs += [("bundle", signed.digest, said.bundle), ("stored bundle", found.bundle_sha256, digest_bytes(data))]
    if latest is not None and latest.decision_digest == decision:
        pairs.append(("evidence", signed.core, latest.core))
    for what, seen, wanted in pairs:
        if seen != wanted:
            raise SignatureError(
                found.name, seen=seen, rule=f"the {what} it is about must be {wanted}", remedy="sign the version again"
            )
