"""`ratchet verify`: everything that one version was released on, looked at again from what is stored, with no network.

Every file of the evidence is held against its SHA-256, every evidence against its digest, and what can be computed is
computed again: scorecards and audits from their rows, the decision from its inputs, rights from the ledger as it stood.
Each item is a line; what is missing or cannot be checked is a failure, never left out. Data erased since, and grants
withdrawn since, are no failure: the evidence names them by digest, at the time of the decision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple, TypeVar

from ratchet.contracts.canonical import digest_bytes
from ratchet.errors import IntegrityError, RatchetError, UntrustedError
from ratchet.release.authority import approvals_of, refuse_unauthorised, same_person
from ratchet.release.canary import read_window
from ratchet.release.certificate import ReleaseCertificate, certificate_name
from ratchet.release.erasures import REMEDY, erased
from ratchet.release.evidence import (
    EvidenceBundle,
    EvidenceFile,
    bundle_name,
    code_version,
    latest_pointer,
    read_bundle,
)
from ratchet.release.qualification import read_qualification
from ratchet.release.recompute import (
    Opened,
    RightAsOf,
    datasets,
    decided,
    grants,
    manifest,
    plan,
    same,
    scorecards,
    splits,
    trained,
)
from ratchet.release.recorded import Recorded
from ratchet.release.signing import envelopes, read_envelope, require_signed
from ratchet.release.states import PROMOTIONS, State
from ratchet.release.trust import Trust
from ratchet.store import Store
from ratchet.store.base import listing

T = TypeVar("T")
LONGEST = 600
"""Characters of a finding; what does not parse says a lot."""
CHECKS = {
    "manifest": manifest,
    "split lock": splits,
    "datasets": datasets,
    "grants": grants,
    "training": trained,
    "plan": plan,
    "scorecards": scorecards,
    "decision": decided,
}
"""What is computed again, in the order in which it came to be."""


class Finding(NamedTuple):
    """One item that was looked at."""

    item: str
    passed: bool
    words: str
    """What was verified, or the culprit with what is wrong."""


class Source(NamedTuple):
    """Where a version's evidence is: a home, or an exported folder."""

    store: Store
    record: Recorded
    rights: RightAsOf
    trust: Trust


def verify(source: Source) -> list[Finding]:
    """Look at everything that a version was released on.

    Args:
        source: see `home_source` and `open_export`.

    Returns:
        A finding per item, in the order in which the evidence came to be; the version stands if all of them passed.
    """
    record, found = source.record, _Findings()
    label = record.version.label
    found.add("ledger", lambda: f"{len(record.events)} events in one chain; {label} stands in {record.state}")
    found.add("promotions", lambda: _promotions(record))
    found.add("serving evidence", lambda: _serving(record))
    bundle = found.add("bundle", lambda: _bundle(source), lambda one: f"{one.digest[:12]}, {len(one.files)} files")
    if bundle is None:
        return found.all
    tenant = str(bundle.manifest["tenant"])
    gone = found.add("erasures", lambda: erased(source.store, tenant), lambda one: f"{len(one)} objects of the tenant")
    evidence = Opened(source.store, bundle, source.rights, gone or {})
    found.all += _files(evidence)
    for item, check in CHECKS.items():
        found.add(item, partial(check, evidence))
    found.add("decision in the ledger", lambda: _decision(record, bundle))
    found.add("approvals", lambda: _approvals(record, bundle))
    found.add("certificate", lambda: _certificate(source, bundle))
    for name in envelopes(source.store, record.version.id):
        found.add("signature", partial(_envelope, source, name))
    found.add("signed", lambda: _signed(source))
    if bundle.code_version != code_version():
        words = f"decided by {bundle.code_version}, computed again by {code_version()}; a difference may be the code's"
        found.all.append(Finding("code", True, words))
    return found.all


class _Findings:
    """The findings so far."""

    def __init__(self) -> None:
        self.all: list[Finding] = []

    def add(self, item: str, check: Callable[[], T], words: Callable[[T], str] = str) -> T | None:
        """Run a check, and keep what it says or why it failed."""
        try:
            result = check()
        except Exception as error:
            # Forged evidence may break a computation in any way, and what could not be computed is not verified.
            self.all.append(Finding(item, False, _told(error)))
            return None
        self.all.append(Finding(item, True, words(result)))
        return result


def _told(error: Exception) -> str:
    """An error in one line, without a remedy."""
    told = f"it could not be checked ({type(error).__name__}: {error})"
    if isinstance(error, RatchetError):
        told = f"{error.culprit}{'' if error.seen is None else f' is {error.seen!r}'}: {error.rule}"
    told = " ".join(told.split())
    return told if len(told) <= LONGEST else f"{told[:LONGEST]} ..."


def _bundle(source: Source) -> EvidenceBundle:
    version, store = source.record.version, source.store
    names = [name for name in store.names(f"evidence/{version.id}") if name.endswith(".json")]
    pointer = latest_pointer(version.id)
    try:
        held = store.pointer(pointer)
    except ValueError:
        held = "no text"
    if not names and held is None:
        raise IntegrityError(
            f"evidence of {version.label}",
            rule="there is none: only a version that was decided on has it",
            remedy=REMEDY,
        )
    if held not in names:
        raise IntegrityError(pointer, seen=held, rule="it must name a bundle that is there", remedy=REMEDY)
    for name in names:
        data = store.read(name)
        one = read_bundle(data, name)
        if one.to_bytes() != data or name != bundle_name(version.id, one.digest) or one.version != version.id:
            raise IntegrityError(name, rule="it must be written as it was, under its own digest", remedy=REMEDY)
    bundle = read_bundle(store.read(held), held)
    same("bundle's policy", bundle.policy_digest, version.policy.digest)
    same("bundle's manifest", bundle.manifest_digest, version.manifest_digest)
    return bundle


def _files(evidence: Opened) -> Iterator[Finding]:
    """A finding per role of files, and one per file that is not what it was, or was erased."""
    bundle = evidence.bundle
    if not bundle.files:
        yield Finding("files", False, "the bundle lists no files, so none of them can be checked")
    for role in dict.fromkeys(one.role for one in bundle.files):
        item, whole = f"files: {role.replace('_', ' ')}", len(bundle.of(role))
        for one in bundle.of(role):
            gone = evidence.erased(one.name)
            words = f"{one.name}: {gone}" if gone else _wrong(evidence, one)
            if words:
                whole -= 1
                yield Finding(item, gone is not None, words)
        if role == "checkpoint":
            for name in _beside(evidence):
                yield Finding(item, False, f"{name}: it was not there when the version was decided")
        if whole:
            yield Finding(item, True, f"{whole} of {len(bundle.of(role))} as they were")


def _wrong(evidence: Opened, file: EvidenceFile) -> str | None:
    try:
        seen = evidence.sha256(file)
    except RatchetError as error:
        return f"{file.name}: {error.rule}"
    return None if seen == file.sha256 else f"{file.name}: its SHA-256 is {seen}, and was {file.sha256}"


def _beside(evidence: Opened) -> list[str]:
    """Files in the checkpoint folder that the bundle does not know; hidden ones are never loaded."""
    place = str(evidence.bundle.policy["checkpoint"])
    try:
        names = [f"{place}/{name}" for name in listing(evidence.folder)]
    except RatchetError:
        # That it is gone is told of each of its files.
        return []
    return sorted(set(names) - {one.name for one in evidence.bundle.of("checkpoint")})


def _promotions(record: Recorded) -> str:
    """Every promotion again: the decision and the approvals that there were at that moment must open it."""
    count = 0
    for event in record.mine:
        carried = event.kind == "moved" and event.state in PROMOTIONS and event.decision is not None
        if carried and record.decision is not None and event.decision == record.decision.digest:
            before = [one for one in record.events if one.seq < event.seq]
            approvals = approvals_of(before, record.version.id, record.decision.digest)
            refuse_unauthorised(record.version, event.state, record.decision, approvals)
            count += 1
    return f"{count} of them, each opened by its decision"


def _serving(record: Recorded) -> str:
    for digest, body in record.evidences.items():
        kind = read_qualification if b'"kind":"Qualification"' in body else read_window
        same(f"serving evidence {digest[:12]}", kind(body, f"serving evidence {digest[:12]}").digest, digest)
    return f"{len(record.evidences)} qualifications and canary windows"


def _decision(record: Recorded, bundle: EvidenceBundle) -> str:
    if record.decision is None and record.state is State.CANDIDATE:
        return "none yet: it waits as a candidate"
    if record.decision is None:
        raise IntegrityError(record.version.label, rule="the ledger has no decision on it", remedy=REMEDY)
    same("decision of the bundle", bundle.decision_digest, record.decision.digest)
    return f"{record.decision.state} {record.decision.digest[:12]}"


def _approvals(record: Recorded, bundle: EvidenceBundle) -> str:
    said, held = {one.digest for one in bundle.approvals}, {one.digest for one in record.approvals}
    if said != held:
        raise IntegrityError(
            "approvals", seen=len(said), rule=f"the ledger has {len(held)} of this decision, and others", remedy=REMEDY
        )
    for event in record.approvals if record.version.release.four_eyes else ():
        if same_person(event.by, record.version.author):
            raise IntegrityError(
                f"approval {event.seq}", seen=event.by, rule="four eyes: this is the author", remedy=REMEDY
            )
    return ", ".join(f"{one.by} up to {one.upto}" for one in record.approvals) or "none was needed, or none was given"


def _certificate(source: Source, bundle: EvidenceBundle) -> str:
    version = source.record.version
    if bundle.certificate is None:
        if source.record.state in PROMOTIONS:
            raise IntegrityError(f"certificate of {version.label}", rule="it was promoted without one", remedy=REMEDY)
        return f"none: it was never promoted (it stands in {source.record.state})"
    name = certificate_name(version.id, bundle.decision_digest)
    data = source.store.read(name)
    found = ReleaseCertificate.reopen(data, name)
    for what, seen, wanted in (
        ("bytes", digest_bytes(data), digest_bytes(found.to_bytes())),
        ("digest", found.digest, bundle.certificate),
        ("version", found.version, version.id),
        ("policy", found.policy_digest, version.policy.digest),
        ("weights", found.weights_digest, version.policy.weights_digest),
        ("manifest", found.manifest_digest, version.manifest_digest),
        ("decision", found.decision, bundle.decision_digest),
    ):
        same(f"{what} of {name}", seen, wanted)
    if not set(found.approvals) <= {one.digest for one in source.record.approvals}:
        raise IntegrityError(name, rule="it names an approval that the ledger does not have", remedy=REMEDY)
    return f"{found.digest[:12]}, by {found.by} at {found.at.isoformat(timespec='seconds')}"


def _envelope(source: Source, name: str) -> str:
    """One envelope; a key that does not count is told, and is no sign that somebody changed anything."""
    try:
        found = read_envelope(source.store.read(name), name, source.trust)
    except UntrustedError as error:
        return f"{name}: does not count, {error.rule}"
    return f"by {found.key.label} at {found.predicate.signed_at.isoformat(timespec='seconds')}"


def _signed(source: Source) -> str:
    version = source.record.version
    demanded = version.release.signature == "required"
    if not demanded and not envelopes(source.store, version.id):
        return "unsigned, and its manifest does not demand a signature"
    decision = source.record.decision
    found = require_signed(source.store, version, source.trust, decision.digest if decision else None)
    return f"by {found.key.name}, over {len(found.files)} checkpoint files and bundle {found.predicate.bundle[:12]}"


def failed(findings: list[Finding]) -> list[Finding]:
    """The findings that did not pass."""
    return [one for one in findings if not one.passed]
