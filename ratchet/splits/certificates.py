"""Certificates and waivers in the store, and how a person's waivers enter a certificate.

A waiver is stored once, by the id of its finding: the id depends on the protected task and on the content of the
document, so the decision holds for every certificate that has the finding, and for no changed document. A certificate
with waivers has a digest of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from pydantic import ValidationError

from ratchet.contracts.canonical import canonical_json
from ratchet.errors import ContaminationError, IntegrityError
from ratchet.splits.evidence import ContaminationCertificate, Waiver
from ratchet.store import Store


def waive(
    certificate: ContaminationCertificate, finding_id: str, *, by: str, reason: str, at: datetime
) -> ContaminationCertificate:
    """Return the certificate with a person's waiver of one finding; it has a digest of its own.

    Raises:
        ContaminationError: there is no such finding, it is waived already, or nobody or no reason is named.
    """
    known = {finding.finding_id for finding in certificate.findings}
    waived = {waiver.finding_id for waiver in certificate.waivers}
    if finding_id not in known or finding_id in waived or not by.strip() or not reason.strip():
        raise ContaminationError(
            f"waiver of {finding_id!r}",
            rule="it names an open finding of the certificate, a person and a reason",
            remedy=f"choose among {sorted(known - waived)[:5]}",
        )
    return _with(certificate, [Waiver(finding_id=finding_id, by=by, reason=reason, at=at)])


def waived(certificate: ContaminationCertificate, waivers: Iterable[Waiver]) -> ContaminationCertificate:
    """The certificate with those of the stored waivers that are about one of its findings and not in it yet."""
    open_ = {one.finding_id for one in certificate.findings} - {one.finding_id for one in certificate.waivers}
    new = sorted((one for one in waivers if one.finding_id in open_), key=lambda one: (one.at, one.finding_id))
    return _with(certificate, new) if new else certificate


def _with(certificate: ContaminationCertificate, waivers: Iterable[Waiver]) -> ContaminationCertificate:
    fields = {name: getattr(certificate, name) for name in type(certificate).model_fields}
    return ContaminationCertificate.issue(**{**fields, "waivers": (*certificate.waivers, *waivers)})


def save_waiver(store: Store, waiver: Waiver, folder: str) -> None:
    """Write a waiver once. Raises ContaminationError where the finding is waived already."""
    name = f"{folder}/{waiver.finding_id}.json"
    if not store.create(name, canonical_json(waiver).encode()):
        raise ContaminationError(
            f"waiver of {waiver.finding_id!r}",
            rule="a finding is waived once, and this one is",
            remedy="run the stage again: the waiver that is there counts",
        )


def open_waivers(store: Store, folder: str) -> list[Waiver]:
    """Read every waiver of a folder. Raises IntegrityError where one is damaged or stands under another id."""
    found = []
    for name in store.names(folder):
        try:
            one = Waiver.model_validate_json(store.read(name))
        except ValidationError as error:
            raise IntegrityError(name, rule=f"it must be a waiver ({error})", remedy="restore or remove it") from None
        if not name.endswith(f"/{one.finding_id}.json"):
            raise IntegrityError(
                name, seen=one.finding_id, rule="a waiver stands under the id of its finding", remedy="restore it"
            )
        found.append(one)
    return found


def save_certificate(store: Store, certificate: ContaminationCertificate, name: str) -> bool:
    """Write the certificate once; raises ConflictError where another one is there."""
    return store.create_same(name, certificate.to_bytes())


def open_certificate(store: Store, name: str) -> ContaminationCertificate:
    """Read a certificate back. Raises IntegrityError where it is missing or changed."""
    return ContaminationCertificate.reopen(store.read(name), name)
