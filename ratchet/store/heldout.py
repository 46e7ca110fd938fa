"""The part of a home's store that training must not read: everything under `heldout/`, sealed with the home's own key.

    <store>/heldout/...            AES-256-GCM, bound to the object's name: magic "RHO1" | key fingerprint, 8 bytes |
                                   nonce, 12 bytes | content and tag
    <home>/keys/heldout.key        the key: 64 hex digits, made at first use, mode 0600, never in the store

Whoever opens the store of a home without the key (a training process, whose kernel domain does not reach the keys
folder) is refused by name, and what it reads past the store, from the disk or the bucket, says nothing. Nothing under
the prefix moves: there are objects and no pointers, so that what is there can only be added to.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from datetime import datetime
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

from ratchet.errors import HeldoutError, IntegrityError, StoreError
from ratchet.store.base import Store, checked
from ratchet.store.local import LocalStore
from ratchet.store.private import create_private

PREFIX = "heldout"
KEY = Path("keys", "heldout.key")
_MAGIC, _BYTES, _FINGERPRINT, _NONCE = b"RHO1", 32, 8, 12
_HEADER = len(_MAGIC) + _FINGERPRINT + _NONCE


def is_heldout(name: str) -> bool:
    """Whether an object of that name belongs to the part that training must not read."""
    return checked(name).split("/")[0] == PREFIX


class Vault:
    """Seals and opens the held-out objects of one home."""

    def __init__(self, file: Path) -> None:
        """Use the key in `file`, which the first sealed object makes."""
        self.file = file

    def seal(self, name: str, plain: bytes) -> bytes:
        """Return the sealed form of `plain`, which opens under `name` alone."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        key, nonce = self._key(make=True), os.urandom(_NONCE)
        return _MAGIC + _fingerprint(key) + nonce + AESGCM(key).encrypt(nonce, plain, checked(name).encode())

    def open(self, name: str, sealed: bytes) -> bytes:
        """Return the plain bytes.

        Raises:
            IntegrityError: the object was changed, moved from another name, or sealed with the key of another home.
            HeldoutError: this process may not read the key.
        """
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        key = self._key(make=False)
        head, body = sealed[:_HEADER], sealed[_HEADER:]
        if len(head) < _HEADER or not head.startswith(_MAGIC):
            raise _changed(name, "it must begin as a sealed object does")
        if head[len(_MAGIC) : -_NONCE] != _fingerprint(key):
            raise IntegrityError(
                name,
                rule=f"it was sealed with another key than {self.file}",
                remedy="bring the key of the home that made it, or use that home",
            )
        try:
            return AESGCM(key).decrypt(head[-_NONCE:], body, checked(name).encode())
        except InvalidTag:
            raise _changed(name, "its content must be what was sealed under this name") from None

    def _key(self, *, make: bool) -> bytes:
        try:
            content = self.file.read_text(encoding="ascii")
        except PermissionError:
            raise _kept(str(self.file)) from None
        except FileNotFoundError:
            if not make:
                raise IntegrityError(
                    str(self.file),
                    rule="the key must be there to read what was sealed with it",
                    remedy="restore it from the backup of the home's keys folder",
                ) from None
            self.file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            create_private(self.file, os.urandom(_BYTES).hex().encode())
            return self._key(make=False)
        except UnicodeDecodeError:
            content = ""
        with contextlib.suppress(ValueError):
            key = bytes.fromhex(content)
            if len(key) == _BYTES:
                return key
        raise IntegrityError(
            str(self.file), rule=f"it must hold {2 * _BYTES} hex digits", remedy="restore it from the backup"
        )


class Guarded(Store):
    """Mixed into a kind of store: seals what is held out, or, without a vault, refuses it by name."""

    vault: Vault | None

    def exists(self, name: str) -> bool:
        """As the store does."""
        return super().exists(self._permitted(name))  # type: ignore[safe-super]

    def read(self, name: str) -> bytes:
        """As the store does; a held-out object is opened."""
        try:
            data = super().read(self._permitted(name))  # type: ignore[safe-super]
        except PermissionError:
            if is_heldout(name):
                raise _kept(name) from None
            raise
        return self.vault.open(name, data) if self.vault and is_heldout(name) else data

    def open(self, name: str) -> BinaryIO:
        """As the store does; a held-out object is opened in memory."""
        if is_heldout(name):
            return BytesIO(self.read(name))
        return super().open(name)  # type: ignore[safe-super]

    def create(self, name: str, data: bytes) -> bool:
        """As the store does; a held-out object is sealed."""
        sealed = self.vault.seal(name, data) if self.vault and is_heldout(name) else data
        return super().create(self._permitted(name), sealed)  # type: ignore[safe-super]

    def create_file(self, name: str, source: Path) -> bool:
        """As the store does; a held-out object is sealed in memory."""
        if is_heldout(name):
            return self.create(name, source.read_bytes())
        return super().create_file(name, source)  # type: ignore[safe-super]

    def pointer(self, name: str) -> str | None:
        """As the store does; there are no held-out pointers."""
        return super().pointer(self._moving(name))  # type: ignore[safe-super]

    def swap(self, name: str, expected: str | None, value: str) -> None:
        """As the store does; there are no held-out pointers."""
        super().swap(self._moving(name), expected, value)  # type: ignore[safe-super]

    def publish_folder(self, local: Path, name: str) -> str:
        """As the store does; there are no held-out folders."""
        return super().publish_folder(local, self._moving(name))  # type: ignore[safe-super]

    def folder(self, name: str) -> Path:
        """As the store does; there are no held-out folders."""
        return super().folder(self._moving(name))  # type: ignore[safe-super]

    def names(self, prefix: str) -> list[str]:
        """As the store does."""
        return super().names(self._permitted(prefix))  # type: ignore[safe-super]

    def children(self, prefix: str) -> list[str]:
        """As the store does."""
        return super().children(self._permitted(prefix))  # type: ignore[safe-super]

    def written(self, name: str) -> datetime | None:
        """As the store does."""
        return super().written(self._permitted(name))  # type: ignore[safe-super]

    def delete(self, name: str) -> int:
        """As the store does."""
        return super().delete(self._permitted(name))  # type: ignore[safe-super]

    def delete_all(self, prefix: str) -> int:
        """As the store does; without a vault not for the whole store either, which the held-out part belongs to."""
        if self.vault is None and not checked(prefix):
            raise _refused(prefix or PREFIX)
        return super().delete_all(self._permitted(prefix))  # type: ignore[safe-super]

    def _permitted(self, name: str) -> str:
        if self.vault is None and is_heldout(name):
            raise _refused(name)
        return name

    def _moving(self, name: str) -> str:
        if is_heldout(self._permitted(name)):
            raise StoreError(
                name, rule="held-out data is objects, written once", remedy="keep pointers and folders elsewhere"
            )
        return name


class HomeLocalStore(Guarded, LocalStore):
    """The store of a home on a local folder."""

    def __init__(self, place: str | Path, *, vault: Vault | None) -> None:
        """Open the store at the folder `place`; without a vault held-out names are refused."""
        super().__init__(place)
        self.vault = vault

    def __reduce__(self) -> tuple[Any, ...]:
        return (_local, (self.place, self.vault))


def _local(place: str, vault: Vault | None) -> HomeLocalStore:
    return HomeLocalStore(place, vault=vault)


def _fingerprint(key: bytes) -> bytes:
    return hashlib.sha256(b"ratchet-heldout-fingerprint" + key).digest()[:_FINGERPRINT]


def _changed(name: str, rule: str) -> IntegrityError:
    return IntegrityError(name, rule=rule, remedy="restore it from a version or a backup of the store")


def _kept(culprit: str) -> HeldoutError:
    return HeldoutError(
        culprit,
        rule="this process may not read what is held out; a training process never may",
        remedy="read held-out data in the evaluation, never in training code",
    )


def _refused(name: str) -> HeldoutError:
    return HeldoutError(
        name,
        rule="it is held out, and this store was opened for training, which may not read it",
        remedy="train on training tasks and choose on validation tasks; held-out data is for the evaluation alone",
    )
