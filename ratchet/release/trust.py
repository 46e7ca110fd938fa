"""Whose signature counts: the public keys that a home trusts, with their owner's name and the time they are good for.

They are in `<home>/trust.json`, or in the file that `RATCHET_TRUST` names, which may lie where the loop cannot write.
A key that was replaced in good order is *retired*: what it signed until then still counts. A key that may be in other
hands is *revoked*: nothing that it ever signed counts, because whoever holds it can write any date into a signature.
"""

from __future__ import annotations

import json
import os
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Self

from pydantic import AwareDatetime, Field, ValidationError

from ratchet.contracts.model import Contract
from ratchet.errors import SignatureError

if TYPE_CHECKING:
    from securesystemslib.signer import SSlibKey

VARIABLE = "RATCHET_TRUST"
FILE = "trust.json"
RESTORE = "restore the file from where it is kept, or add the keys again with `ratchet keys trust`"


class TrustedKey(Contract):
    """One public key and what its signatures are good for."""

    name: str = Field(min_length=1, description="Person or machine that holds the private key.")
    key_id: str = Field(description="SHA-256 of the public key in its canonical form.")
    public_key: str = Field(description="PEM of the public key.")
    scheme: str | None = Field(default=None, description="Signature scheme; None for the usual one of the key's kind.")
    uri: str | None = Field(default=None, description="Where the private key is, if in a KMS or HSM.")
    since: AwareDatetime = Field(description="Signatures made earlier do not count.")
    until: AwareDatetime | None = Field(default=None, description="When it was retired: later ones do not count.")
    revoked: AwareDatetime | None = Field(default=None, description="When it was revoked: none of them counts.")
    reason: str = Field(default="", description="Why it was revoked.")

    @property
    def label(self) -> str:
        """Name and start of the key's id, for people."""
        return f"{self.name} ({self.key_id[:12]})"

    def key(self) -> SSlibKey:
        """The public key, as it verifies. Raises SignatureError where it is not the one that its id names."""
        found = read_public(self.public_key.encode(), f"trusted key {self.label}", self.scheme)
        if found.keyid != self.key_id:
            raise SignatureError(
                f"trusted key {self.label}", seen=found.keyid, rule="its id must be that of its PEM", remedy=RESTORE
            )
        return found

    def refusal(self, at: datetime) -> str | None:
        """Why a signature that says it was made at a time does not count; None where it does."""
        if self.revoked is not None:
            return f"the key was revoked at {self.revoked.isoformat(timespec='seconds')} ({self.reason})"
        if at < self.since:
            return f"the key counts from {self.since.isoformat(timespec='seconds')} on"
        if self.until is not None and at > self.until:
            return f"the key was retired at {self.until.isoformat(timespec='seconds')}"
        return None


class Trust(Contract):
    """The keys that are trusted, in the order in which they were added."""

    keys: tuple[TrustedKey, ...] = Field(default=(), description="Every key, the retired and revoked ones too.")

    @classmethod
    def of(cls, home: Path) -> Self:
        """The trust of a home; empty where there is no file yet."""
        return cls.read(place(home))

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file of trusted keys; empty where it is missing.

        Raises:
            SignatureError: it does not parse, holds a key under another id, or everybody may write to it.
        """
        try:
            mode, data = path.stat().st_mode, path.read_bytes()
        except FileNotFoundError:
            return cls()
        if mode & 0o022:
            raise SignatureError(
                str(path),
                seen=oct(mode & 0o777),
                rule="nobody but its owner may write to it, for whoever can add a key can release anything",
                remedy=f"chmod 644 {path}, after looking at what is in it",
            )
        try:
            found = cls.model_validate_json(data)
        except ValidationError as error:
            raise SignatureError(str(path), rule=f"it must hold trusted keys ({error})", remedy=RESTORE) from None
        for one in found.keys:
            one.key()
        return found

    def find(self, text: str) -> TrustedKey:
        """The key with that name, or whose id begins so. Raises SignatureError unless there is exactly one."""
        fits = [one for one in self.keys if one.name == text or (len(text) >= 6 and one.key_id.startswith(text))]
        live = [one for one in fits if one.until is None and one.revoked is None]
        fits = live if len(live) == 1 else fits
        if len(fits) != 1:
            names = ", ".join(one.label for one in fits) or "none"
            raise SignatureError(
                f"key {text!r}",
                rule=f"it must name exactly one trusted key, and names {names}",
                remedy="give the start of an id that `ratchet keys show` lists",
            )
        return fits[0]

    def by_id(self, key_id: str) -> TrustedKey | None:
        """The key with that id."""
        return next((one for one in self.keys if one.key_id == key_id), None)

    def adding(self, key: TrustedKey) -> Trust:
        """The trust with one key more. Raises SignatureError where its id is there already."""
        known = self.by_id(key.key_id)
        if known is not None:
            raise SignatureError(
                f"key {known.label}",
                rule="a key is trusted once, and stays retired or revoked once it is",
                remedy="make a new key with `ratchet keys new`",
            )
        return Trust(keys=(*self.keys, key))

    def replacing(self, key: TrustedKey) -> Trust:
        """The trust with another state of a key that it has."""
        return Trust(keys=tuple(key if one.key_id == key.key_id else one for one in self.keys))

    def write(self, path: Path) -> None:
        """Write the file whole, so that a reader never sees half of it; only its owner may write to it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_name(f".{path.name}.{os.getpid()}")
        scratch.write_text(json.dumps(self.model_dump(mode="json"), indent=2) + "\n", encoding="utf-8")
        scratch.chmod(0o644)
        os.replace(scratch, path)


def place(home: Path) -> Path:
    """Where the trusted keys of a home are."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named else home / FILE


def read_public(pem: bytes, source: str, scheme: str | None = None) -> SSlibKey:
    """Read a PEM with a public key. Raises SignatureError where it is none, or of a kind that is not known."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_public_key
    from securesystemslib.signer import SSlibKey

    try:
        return SSlibKey.from_crypto(load_pem_public_key(pem), scheme=scheme)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise SignatureError(
            source, rule=f"it must be the PEM of a public key ({error})", remedy="give the file that ends in .pub"
        ) from None
