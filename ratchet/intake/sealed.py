"""Sealed objects: AES-256-GCM in frames, so that a large original is encrypted and read back as a stream.

    magic "RSO1" | key fingerprint, 8 bytes | salt, 16 bytes | frame 0 | frame 1 | ... | last frame

A frame holds 1 MiB of plain bytes (the last one less, or none) and its 16-byte tag. Every object has its own key,
HKDF-SHA256 (RFC 5869) of the grant's key and the salt, so that the frame number can be the nonce. The associated data
of a frame binds tenant, grant, digest of the plain bytes, frame number and whether it is the last: a frame that was
changed, moved, dropped or taken from another object is noticed, and so is an object that was cut (the STREAM
construction of Hoang, Reyhanitabar, Rogaway and Vizar, CRYPTO 2015).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from ratchet.contracts.canonical import canonical_json
from ratchet.errors import IntakeError, IntegrityError

FRAME_BYTES = 1 << 20
_MAGIC, _FINGERPRINT, _SALT, _TAG = b"RSO1", 8, 16, 16
_HEADER = len(_MAGIC) + _FINGERPRINT + _SALT


@dataclass(frozen=True)
class Key:
    """The data key of one grant."""

    tenant: str
    grant_id: str
    secret: bytes = field(repr=False)
    """32 bytes."""

    @property
    def fingerprint(self) -> str:
        """16 hex digits that tell keys apart and say nothing about the key."""
        return hashlib.sha256(b"ratchet-key-fingerprint" + self.secret).hexdigest()[: 2 * _FINGERPRINT]

    def seal(self, plain: Iterable[bytes], digest: str) -> Iterator[bytes]:
        """Yield the sealed form of a stream.

        Args:
            plain: the bytes in pieces of any size.
            digest: SHA-256 of the plain bytes, which the sealed form is bound to.
        """
        salt = os.urandom(_SALT)
        yield _MAGIC + bytes.fromhex(self.fingerprint) + salt
        cipher = self._cipher(salt)
        waiting: bytes | None = None
        number = 0
        for frame in _frames(plain):
            if waiting is not None:
                yield cipher.encrypt(_nonce(number), waiting, self._bound(digest, number, last=False))
                number += 1
            waiting = frame
        yield cipher.encrypt(_nonce(number), waiting or b"", self._bound(digest, number, last=True))

    def unseal(self, sealed: BinaryIO, digest: str, name: str) -> Iterator[bytes]:
        """Yield the plain bytes of a sealed stream, each frame verified before it is yielded.

        Args:
            sealed: the sealed form.
            digest: SHA-256 that the plain bytes must have.
            name: what the object is called in errors.

        Raises:
            IntegrityError: it was sealed with another key, or is not what was sealed under this tenant, grant and
                digest.
        """
        whole = hashlib.sha256()
        yield from hashed(self._opened(sealed, digest, name), whole)
        if whole.hexdigest() != digest:
            raise _broken(name, "its content must have the digest that it is known by")

    def verify(self, sealed: BinaryIO, digest: str, name: str) -> None:
        """Read a sealed stream to its end. Raises IntegrityError where it was not sealed, whole, under that digest.

        The plain bytes are not hashed again: every frame is bound to their digest, which `seal_file` holds them to.
        """
        for _ in self._opened(sealed, digest, name):
            continue

    def seal_file(self, original: bytes | Path, digest: str, place: Path) -> Path:
        """Write the sealed form of bytes, or of a file that holds them, to a place; returns that.

        Raises:
            IntakeError: they do not have that digest, any more.
        """
        seen = hashlib.sha256()
        with contextlib.ExitStack() as stack:
            plain = [original] if isinstance(original, bytes) else pieces(stack.enter_context(original.open("rb")))
            file = stack.enter_context(place.open("wb"))
            for piece in self.seal(hashed(plain, seen), digest):
                file.write(piece)
        if seen.hexdigest() != digest:
            raise IntakeError(
                str(original) if isinstance(original, Path) else "original",
                rule="it must not change while it is being read",
                remedy="nothing was stored; ingest it again when it is finished",
            )
        return place

    def seal_bytes(self, plain: bytes, digest: str) -> bytes:
        """Return the sealed form of bytes that fit in memory."""
        return b"".join(self.seal([plain], digest))

    def unseal_bytes(self, sealed: bytes, digest: str, name: str) -> bytes:
        """Return the plain bytes. Raises IntegrityError as `unseal`."""
        return b"".join(self.unseal(BytesIO(sealed), digest, name))

    def _opened(self, sealed: BinaryIO, digest: str, name: str) -> Iterator[bytes]:
        """Yield the frames opened. Raises IntegrityError as `unseal`, but for the digest of the whole."""
        from cryptography.exceptions import InvalidTag

        header = sealed.read(_HEADER)
        if len(header) < _HEADER or not header.startswith(_MAGIC):
            raise _broken(name, "it must begin as a sealed object does")
        if header[len(_MAGIC) : -_SALT].hex() != self.fingerprint:
            raise IntegrityError(
                name,
                rule=f"it was sealed with another key than the one of grant {self.grant_id!r} (tenant {self.tenant!r})",
                remedy="read it with the keys of the home that ingested it",
            )
        cipher = self._cipher(header[-_SALT:])
        frame, number = _exactly(sealed, FRAME_BYTES + _TAG), 0
        while True:
            following = _exactly(sealed, FRAME_BYTES + _TAG)
            try:
                plain = cipher.decrypt(_nonce(number), frame, self._bound(digest, number, last=not following))
            except InvalidTag:
                raise _broken(name, f"frame {number} is not as it was sealed") from None
            yield plain
            if not following:
                return
            frame, number = following, number + 1

    def _cipher(self, salt: bytes):  # type: ignore[no-untyped-def]
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        return AESGCM(HKDF(algorithm=SHA256(), length=32, salt=salt, info=b"ratchet sealed object").derive(self.secret))

    def _bound(self, digest: str, number: int, *, last: bool) -> bytes:
        return canonical_json([self.tenant, self.grant_id, digest, number, last]).encode("utf-8", "surrogatepass")


def pieces(handle: BinaryIO) -> Iterator[bytes]:
    """Yield the rest of a stream in pieces of at most 1 MiB."""
    while piece := handle.read(FRAME_BYTES):
        yield piece


def hashed(plain: Iterable[bytes], whole: hashlib._Hash) -> Iterator[bytes]:
    """Yield pieces while another thread hashes them: what is done with a piece takes about as long as its hash."""
    found = iter(plain)
    for first in found:
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(whole.update, first)
            yield first
            for piece in found:
                waiting.result()
                waiting = pool.submit(whole.update, piece)
                yield piece
            waiting.result()


def _frames(plain: Iterable[bytes]) -> Iterator[bytes]:
    buffer = bytearray()
    for piece in plain:
        # A file is read in pieces of a frame already; copying them costs more than the cipher.
        if not buffer and len(piece) == FRAME_BYTES:
            yield piece
            continue
        buffer += piece
        while len(buffer) >= FRAME_BYTES:
            yield bytes(buffer[:FRAME_BYTES])
            del buffer[:FRAME_BYTES]
    if buffer:
        yield bytes(buffer)


def _exactly(handle: BinaryIO, size: int) -> bytes:
    """Read `size` bytes, or what is left: a stream may hand out less at a time."""
    data = handle.read(size)
    while len(data) < size and (more := handle.read(size - len(data))):
        data += more
    return data


def _nonce(number: int) -> bytes:
    return number.to_bytes(12, "big")


def _broken(name: str, rule: str) -> IntegrityError:
    return IntegrityError(name, rule=f"a sealed object must be whole, but {rule}", remedy="restore it from a backup")
