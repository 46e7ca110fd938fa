"""The depot: the checkpoints that a server may have to answer with, verified and kept on its own disk.

Once a version lies here it can be loaded while the object store, the tracking server and the trainer are down. What is
loaded is verified each time, against the release ledger: the certificate, the digest of the files and, where the
manifest demands one, a signature by a key that the home trusts at that moment.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

from ratchet.contracts.policy import Policy
from ratchet.errors import IntegrityError, RatchetError
from ratchet.policies.checkpoint import verified
from ratchet.release.certificate import certificate_name, check_certificate, released_under
from ratchet.release.ledger import Ledger
from ratchet.release.records import Version
from ratchet.release.signing import envelopes, require_signed
from ratchet.release.trust import Trust
from ratchet.store import Store, folder_digest
from ratchet.store.local import LocalStore

CERTIFICATE, CHECKPOINT, SIGNED = "certificate.json", "checkpoint", "signed"


class Depot:
    """The versions of one line on this disk, under `<home>/serving/<tenant>.<experiment>/versions/`."""

    def __init__(self, home: Path, store: Store, ledger: Ledger, tenant: str, experiment: str) -> None:
        """Use the depot of a line; it is made where it is missing."""
        self.home, self.store, self.ledger = home, store, ledger
        self.root = home / "serving" / f"{tenant}.{experiment}" / "versions"
        self.root.mkdir(parents=True, exist_ok=True)

    def folder(self, version: Version) -> Path:
        """Folder of a version's checkpoint, verified against the ledger; fetched from the store where it is not here.

        Raises:
            IntegrityError: certificate or files are not what was released.
            SignatureError: the manifest asks for a signature, and none that counts is there.
            StoreError, OSError: it is not here, and the store cannot be reached.
        """
        place = self.root / version.id
        decision = released_under(self.ledger, version)
        if not place.exists():
            certificate = self.store.read(certificate_name(version.id, decision))
            self._fetch(
                place, version.policy, certificate, version if version.release.signature == "required" else None
            )
        try:
            if version.release.signature == "required":
                require_signed(LocalStore(place / SIGNED), version, Trust.of(self.home), decision)
            data = (place / CERTIFICATE).read_bytes()
            certificate_of = check_certificate(data, str(place / CERTIFICATE), version, place / CHECKPOINT)
            if certificate_of.decision != decision:
                raise IntegrityError(
                    str(place / CERTIFICATE),
                    seen=certificate_of.decision,
                    rule=f"the ledger says {decision}",
                    remedy="it is fetched anew",
                )
        except (RatchetError, OSError):
            # What is not right here opens nothing, and must not keep what is right in the store from being fetched.
            shutil.rmtree(place)
            raise
        return place / CHECKPOINT

    def baseline(self, policy: Policy) -> Path:
        """Folder of the base checkpoint, which serves where no version does; it has no certificate, only its digest."""
        place = self.root / f"baseline-{policy.weights_digest}"
        if not place.exists():
            self._fetch(place, policy, None, None)
        seen = folder_digest(place / CHECKPOINT)
        if seen != policy.weights_digest:
            shutil.rmtree(place)
            raise IntegrityError(
                str(place), seen=seen, rule=f"it must have {policy.weights_digest}", remedy="it is fetched anew"
            )
        return place / CHECKPOINT

    def forget_others(self, kept: set[str]) -> None:
        """Remove what may not be needed: all but the versions of these ids, and the base checkpoint."""
        for place in self.root.iterdir():
            if place.name not in kept and not place.name.startswith("baseline-"):
                shutil.rmtree(place, ignore_errors=True)

    def _fetch(self, place: Path, policy: Policy, certificate: bytes | None, signed: Version | None) -> None:
        source = verified(self.store, policy.checkpoint, policy.weights_digest)
        staged = Path(tempfile.mkdtemp(prefix=".fetch-", dir=self.root))
        try:
            shutil.copytree(source, staged / CHECKPOINT, ignore=shutil.ignore_patterns(".*"))
            if certificate is not None:
                (staged / CERTIFICATE).write_bytes(certificate)
            if signed is not None:
                self._mirror(signed, LocalStore(staged / SIGNED))
            with contextlib.suppress(FileExistsError):
                os.rename(staged, place)
        finally:
            shutil.rmtree(staged, ignore_errors=True)

    def _mirror(self, version: Version, mirror: LocalStore) -> None:
        """Copy the evidence of a version and its signatures, so that they can be verified without the store."""
        bundles = [name for name in self.store.names(f"evidence/{version.id}") if name.endswith(".json")]
        for name in [*bundles, *envelopes(self.store, version.id)]:
            mirror.create(name, self.store.read(name))
        pointer = f"evidence/{version.id}/latest"
        latest = self.store.pointer(pointer)
        if latest is not None:
            mirror.swap(pointer, None, latest)
