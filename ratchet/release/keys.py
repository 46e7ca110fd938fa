"""The key that releases are signed with: an Ed25519 key in a file, or one that never leaves a KMS or HSM.

`RATCHET_SIGNING_KEY` names it: the path of a PEM file, or a URI of securesystemslib (`awskms:`, `gcpkms:`,
`azurekms:`, `hsm:`, `hv:`), whose public key is then the trusted key with that `uri`. An encrypted file is opened by
`RATCHET_SIGNING_PASSPHRASE`. Unset means that this machine does not sign, which is right for one that merely trains.
"""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ratchet.errors import SignatureError
from ratchet.release.trust import Trust, place, read_public

if TYPE_CHECKING:
    from securesystemslib.signer import Signer

KEY = "RATCHET_SIGNING_KEY"
PASSPHRASE = "RATCHET_SIGNING_PASSPHRASE"
URI = re.compile(r"^[a-z][a-z0-9+]*:")


class Made(NamedTuple):
    """A new key pair."""

    private: Path
    public: Path
    key_id: str
    pem: str
    """PEM of the public key."""


def new_key(path: Path, *, passphrase: str | None = None) -> Made:
    """Make an Ed25519 key pair: the private key as PKCS#8 PEM at `path`, the public one beside it, ending in `.pub`.

    Args:
        path: where the private key goes; only the user who makes it may read it.
        passphrase: encrypts the file; None leaves it plain, protected by its permissions alone.

    Raises:
        SignatureError: there is a file already; a key is never overwritten.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    private, public = path.expanduser(), path.expanduser().with_name(f"{path.name}.pub")
    made = Ed25519PrivateKey.generate()
    closing = BestAvailableEncryption(passphrase.encode()) if passphrase else NoEncryption()
    pem = made.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    private.parent.mkdir(parents=True, exist_ok=True)
    for file, data, mode in (
        (private, made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, closing), 0o600),
        (public, pem, 0o644),
    ):
        try:
            handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        except FileExistsError:
            raise SignatureError(
                str(file), rule="a key file is never overwritten", remedy="choose another path for the new key"
            ) from None
        with os.fdopen(handle, "wb") as out:
            out.write(data)
    return Made(private, public, read_public(pem, str(public)).keyid, pem.decode())


def configured_signer(home: Path) -> Signer | None:
    """The signer that `RATCHET_SIGNING_KEY` names; None where it names none.

    Raises:
        SignatureError: the key cannot be read or used, or the home does not trust it (any more), so that its
            signatures would count for nothing.
    """
    named = os.environ.get(KEY, "")
    if not named:
        return None
    trust = Trust.of(home)
    signer = _held_elsewhere(named, trust) if URI.match(named) else _from_file(Path(named).expanduser())
    known = trust.by_id(signer.public_key.keyid)
    refusal = known.refusal(datetime.now(UTC)) if known else None
    if known and refusal:
        raise SignatureError(
            f"{KEY} {named}",
            seen=known.label,
            rule=f"what it signs must count, and {refusal}",
            remedy="sign with another trusted key, or make one with `ratchet keys new`",
        )
    if known is None:
        raise SignatureError(
            f"{KEY} {named}",
            seen=signer.public_key.keyid[:12],
            rule=f"its public key must be among the trusted ones in {place(home)}",
            remedy=f"`ratchet keys trust NAME {named}.pub`",
        )
    return signer


def _held_elsewhere(uri: str, trust: Trust) -> Signer:
    from securesystemslib.signer import Signer

    known = next((one for one in trust.keys if one.uri == uri), None)
    if known is None:
        raise SignatureError(
            f"{KEY} {uri}",
            rule="the public key of a key in a KMS or HSM is the trusted key with that URI, and there is none",
            remedy=f"export the public key as PEM, then `ratchet keys trust NAME FILE --uri {uri}`",
        )
    try:
        return Signer.from_priv_key_uri(uri, known.key())
    # Every provider's library raises errors of its own kind here.
    except Exception as error:
        raise SignatureError(
            f"{KEY} {uri}",
            rule=f"the key must be usable from here ({type(error).__name__}: {error})",
            remedy="install the provider's library (`pip install securesystemslib[awskms]` and so on) and log in to it",
        ) from error


def _from_file(path: Path) -> Signer:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from securesystemslib.signer import CryptoSigner

    try:
        mode, data = path.stat().st_mode, path.read_bytes()
    except OSError as error:
        raise SignatureError(
            f"{KEY} {path}", rule=f"it must be a readable file ({error.strerror})", remedy="correct the path"
        ) from None
    if mode & 0o077:
        raise SignatureError(
            f"private key {path}",
            seen=oct(mode & 0o777),
            rule="nobody but its owner may read it",
            remedy=f"chmod 600 {path}; where others could read it, revoke the key and make a new one",
        )
    passphrase = os.environ.get(PASSPHRASE)
    try:
        return CryptoSigner(load_pem_private_key(data, passphrase.encode() if passphrase else None))
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise SignatureError(
            f"private key {path}",
            rule=f"it must be a PEM that {PASSPHRASE} opens, or a plain one where that is unset ({error})",
            remedy=f"set or unset {PASSPHRASE}, or give another key",
        ) from None
