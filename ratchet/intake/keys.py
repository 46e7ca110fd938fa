"""The keys of originals: one random 256-bit data key per tenant and grant, and what destroying it leaves.

    <home>/keys/<tenant>/<grant>.key         the key: created once, mode 0600, never in the store
    <home>/keys/<tenant>/<grant>.destroyed   its fingerprint and when it was destroyed; no other key is made after it

With `RATCHET_MASTER_KEY_FILE` (32 raw bytes, or 64 hex digits) new keys are wrapped by that master key with
AES-256-GCM, bound to tenant and grant. Destroying a key makes every sealed object of the grant unreadable, wherever a
copy of it is: a backup of the keys must not outlive what it protects. Overwriting reaches neither snapshots of the disk
nor worn flash cells; a master key kept elsewhere does.
"""

from __future__ import annotations

import base64
import json
import os
import re
from datetime import datetime
from pathlib import Path
from typing import Any

from ratchet.contracts.canonical import canonical_json, digest_bytes
from ratchet.errors import IntegrityError, RightsError
from ratchet.intake.sealed import Key
from ratchet.rights.events import utc
from ratchet.store.private import create_private

MASTER = "RATCHET_MASTER_KEY_FILE"
"""Environment variable that names the file of the master key."""
_BYTES = 32
_PLAIN_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


def folder_of(grant_id: str) -> str:
    """Return the part of a name that stands for a grant: its id where that is a slug, else `_` and a digest of it."""
    if _PLAIN_NAME.fullmatch(grant_id):
        return grant_id
    return f"_{digest_bytes(grant_id.encode('utf-8', 'surrogatepass'))[:40]}"


class Keys:
    """The keys of one home."""

    def __init__(self, home: str | Path) -> None:
        """Use the keys under `<home>/keys`; the folder is made with the first key."""
        self.home = Path(home).resolve()

    def get(self, tenant: str, grant_id: str) -> Key:
        """Return the key of a grant, made if it has none yet.

        Raises:
            RightsError: the key was destroyed.
            IntegrityError: the key file was changed, or needs a master key that is not the right one or not given.
        """
        path = self.path(tenant, grant_id)
        while not path.exists():
            self._refuse_destroyed(tenant, grant_id)
            self._create(path, tenant, grant_id)
            if self._tombstone(path).exists():
                _overwrite(path)
        return self.existing(tenant, grant_id)

    def existing(self, tenant: str, grant_id: str) -> Key:
        """Return the key of a grant. Raises as `get`, and IntegrityError where there is none."""
        path = self.path(tenant, grant_id)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            self._refuse_destroyed(tenant, grant_id)
            raise IntegrityError(
                str(path),
                rule="the key of the grant must be there to read what was sealed with it",
                remedy="restore the keys folder of the home that ingested it from its backup",
            ) from None
        try:
            stored = json.loads(content)
            secret, wrapped = base64.b64decode(stored["key"], validate=True), bool(stored["wrapped"])
            fingerprint = stored["fingerprint"]
        except (ValueError, KeyError, TypeError):
            raise _changed(path) from None
        key = Key(tenant, grant_id, self._unwrap(secret, path, tenant, grant_id) if wrapped else secret)
        if len(key.secret) != _BYTES or key.fingerprint != fingerprint:
            raise _changed(path)
        return key

    def destroy(self, tenant: str, grant_id: str, at: datetime) -> bool:
        """Destroy the key of a grant for good; returns whether there was one. Again is no error.

        What was sealed with it cannot be read afterwards, and no other key is ever made for the grant.
        """
        path = self.path(tenant, grant_id)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not self._tombstone(path).exists():
            fingerprint = json.loads(path.read_bytes()).get("fingerprint") if path.exists() else None
            record = {
                "tenant": tenant,
                "grant_id": grant_id,
                "fingerprint": fingerprint,
                "destroyed_at": utc(at).isoformat(),
            }
            create_private(self._tombstone(path), canonical_json(record).encode())
        # A crash while the key was made can have left a copy of it beside it.
        for copy in path.parent.glob(f".{path.name}-*"):
            _overwrite(copy)
        return _overwrite(path)

    def destroyed(self, tenant: str, grant_id: str) -> dict[str, Any] | None:
        """Return the record of a destroyed key (tenant, grant_id, fingerprint, destroyed_at), or None."""
        path = self._tombstone(self.path(tenant, grant_id))
        found: dict[str, Any] | None = json.loads(path.read_bytes()) if path.exists() else None
        return found

    def path(self, tenant: str, grant_id: str) -> Path:
        """Return where the key of a grant is, or would be."""
        return self.home / "keys" / folder_of(tenant) / f"{folder_of(grant_id)}.key"

    @staticmethod
    def _tombstone(path: Path) -> Path:
        return path.with_suffix(".destroyed")

    def _refuse_destroyed(self, tenant: str, grant_id: str) -> None:
        record = self.destroyed(tenant, grant_id)
        if record:
            raise RightsError(
                f"grant {grant_id!r}",
                rule=f"its key was destroyed on {record['destroyed_at']}, and what was sealed with it with it",
                remedy="obtain a new grant under a new id and ingest again",
            )

    def _create(self, path: Path, tenant: str, grant_id: str) -> None:
        key = Key(tenant, grant_id, os.urandom(_BYTES))
        master = _master()
        stored = key.secret if master is None else _wrap(master, key)
        record = {
            "fingerprint": key.fingerprint,
            "key": base64.b64encode(stored).decode(),
            "wrapped": master is not None,
        }
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        create_private(path, canonical_json(record).encode())

    @staticmethod
    def _unwrap(wrapped: bytes, path: Path, tenant: str, grant_id: str) -> bytes:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        master = _master()
        if master is None:
            raise IntegrityError(
                str(path), rule="it is wrapped by a master key", remedy=f"let {MASTER} name the file of that key"
            )
        try:
            return AESGCM(master).decrypt(wrapped[:12], wrapped[12:], _owner(tenant, grant_id))
        except InvalidTag:
            raise IntegrityError(
                str(path),
                rule=f"it was wrapped by another master key than the one that {MASTER} names, or was changed",
                remedy="name the master key that it was made with, or restore it from the backup of the keys",
            ) from None


def _master() -> bytes | None:
    place = os.environ.get(MASTER)
    if not place:
        return None
    try:
        content = Path(place).read_bytes()
    except OSError as error:
        raise IntegrityError(
            MASTER, seen=place, rule=f"its file must be readable ({error.strerror})", remedy="check the path"
        ) from None
    if len(content) != _BYTES:
        try:
            content = bytes.fromhex(content.decode("ascii").strip())
        except ValueError:
            content = b""
    if len(content) != _BYTES:
        raise IntegrityError(
            MASTER,
            seen=place,
            rule="its file must hold 32 bytes, or 64 hex digits",
            remedy="make one: `openssl rand -hex 32`",
        )
    return content


def _wrap(master: bytes, key: Key) -> bytes:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = os.urandom(12)
    return nonce + AESGCM(master).encrypt(nonce, key.secret, _owner(key.tenant, key.grant_id))


def _owner(tenant: str, grant_id: str) -> bytes:
    return canonical_json([tenant, grant_id]).encode("utf-8", "surrogatepass")


def _changed(path: Path) -> IntegrityError:
    return IntegrityError(
        str(path), rule="it must hold the key as it was written", remedy="restore it from the backup of the keys"
    )


def _overwrite(path: Path) -> bool:
    """Overwrite a file and remove it; returns whether it was there."""
    try:
        with open(path, "r+b") as file:
            size = os.fstat(file.fileno()).st_size
            file.write(os.urandom(size))
            file.flush()
            os.fsync(file.fileno())
        path.unlink()
    except FileNotFoundError:
        return False
    return True
