"""Keys: made with closed permissions, opened by their passphrase, held elsewhere by URI, trusted by name and time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import pytest
from release_world import AT
from securesystemslib.signer import (
    SIGNER_FOR_URI_SCHEME,
    CryptoSigner,
    Key,
    SecretsHandler,
    Signature,
    Signer,
    SSlibKey,
)
from signed_world import Signed, trusted

from ratchet.errors import SignatureError
from ratchet.release.keys import KEY, PASSPHRASE, configured_signer, new_key
from ratchet.release.signing import require_signed, sign_bundle
from ratchet.release.trust import Trust, TrustedKey, place, read_public

MP = pytest.MonkeyPatch


def test_new_key_is_closed_to_others_and_never_overwritten(tmp_path: Path) -> None:
    made = new_key(tmp_path / "deep" / "owner.pem")
    assert made.private.stat().st_mode & 0o777 == 0o600
    assert read_public(made.public.read_bytes(), "x").keyid == made.key_id
    before = made.private.read_bytes()
    with pytest.raises(SignatureError, match="never overwritten"):
        new_key(made.private)
    assert made.private.read_bytes() == before


def test_no_key_named_means_no_signer(tmp_path: Path, monkeypatch: MP) -> None:
    monkeypatch.delenv(KEY, raising=False)
    assert configured_signer(tmp_path) is None


def test_key_that_others_can_read_is_refused(tmp_path: Path, monkeypatch: MP) -> None:
    made = trusted(tmp_path, tmp_path)
    made.private.chmod(0o640)
    monkeypatch.setenv(KEY, str(made.private))
    with pytest.raises(SignatureError, match="nobody but its owner may read it"):
        configured_signer(tmp_path)


@pytest.mark.parametrize("given", [None, "wrong"])
def test_encrypted_key_opens_only_by_its_passphrase(tmp_path: Path, monkeypatch: MP, given: str | None) -> None:
    made = new_key(tmp_path / "owner.pem", passphrase="correct horse")
    key = TrustedKey(name="owner", key_id=made.key_id, public_key=made.pem, since=AT)
    Trust(keys=(key,)).write(place(tmp_path))
    assert b"ENCRYPTED" in made.private.read_bytes()
    monkeypatch.setenv(KEY, str(made.private))
    monkeypatch.delenv(PASSPHRASE, raising=False)
    if given:
        monkeypatch.setenv(PASSPHRASE, given)
    with pytest.raises(SignatureError, match=PASSPHRASE):
        configured_signer(tmp_path)
    monkeypatch.setenv(PASSPHRASE, "correct horse")
    signer = configured_signer(tmp_path)
    assert signer is not None
    assert signer.public_key.keyid == made.key_id


def test_key_that_nobody_trusts_is_not_signed_with(tmp_path: Path, monkeypatch: MP) -> None:
    monkeypatch.setenv(KEY, str(new_key(tmp_path / "owner.pem").private))
    with pytest.raises(SignatureError, match="must be among the trusted ones"):
        configured_signer(tmp_path)


def test_missing_key_file_is_named(tmp_path: Path, monkeypatch: MP) -> None:
    monkeypatch.setenv(KEY, str(tmp_path / "gone.pem"))
    with pytest.raises(SignatureError, match=r"gone\.pem: it must be a readable file"):
        configured_signer(tmp_path)


class Vault(Signer):
    """A service that signs with a key it does not hand out, as a KMS does; found by its URI."""

    held: ClassVar[dict[str, CryptoSigner]] = {}

    def __init__(self, uri: str, key: Key) -> None:
        self._inner, self._key = self.held[uri], key

    @classmethod
    def from_priv_key_uri(cls, uri: str, public_key: Key, secrets_handler: SecretsHandler | None = None) -> Vault:
        return cls(uri, public_key)

    @property
    def public_key(self) -> Key:
        return self._key

    def sign(self, payload: bytes) -> Signature:
        return self._inner.sign(payload)


def test_key_in_a_service_signs_by_its_uri(tmp_path: Path, monkeypatch: MP) -> None:
    """An ECDSA key, which is what most services hold, behind the interface by which the library reaches a KMS."""
    monkeypatch.setitem(SIGNER_FOR_URI_SCHEME, "vault", Vault)
    held = CryptoSigner.generate_ecdsa()
    monkeypatch.setitem(Vault.held, "vault:prod", held)
    world = Signed(tmp_path / "home", tmp_path / "keys")
    public: Any = held.public_key
    assert isinstance(public, SSlibKey)
    key = TrustedKey(name="prod", key_id=public.keyid, public_key=public.keyval["public"], uri="vault:prod", since=AT)
    Trust(keys=(key,)).write(place(world.home))
    monkeypatch.setenv(KEY, "vault:prod")
    signer = configured_signer(world.home)
    assert isinstance(signer, Vault)
    sign_bundle(world.store, world.bundle, signer, at=AT)
    assert require_signed(world.store, world.version, Trust.of(world.home)).key.name == "prod"


def test_uri_without_a_trusted_public_key_is_refused(tmp_path: Path, monkeypatch: MP) -> None:
    monkeypatch.setenv(KEY, "awskms:alias/release")
    with pytest.raises(SignatureError, match="the trusted key with that URI, and there is none"):
        configured_signer(tmp_path)


def test_service_that_cannot_be_reached_says_so(tmp_path: Path, monkeypatch: MP) -> None:
    trusted(tmp_path, tmp_path, uri="nowhere:key")
    monkeypatch.setenv(KEY, "nowhere:key")
    with pytest.raises(SignatureError, match="must be usable from here"):
        configured_signer(tmp_path)


def test_trust_that_everybody_may_write_is_refused(tmp_path: Path) -> None:
    trusted(tmp_path, tmp_path)
    place(tmp_path).chmod(0o666)
    with pytest.raises(SignatureError, match="nobody but its owner may write"):
        Trust.of(tmp_path)


def test_public_key_exchanged_under_a_trusted_id_is_noticed(tmp_path: Path) -> None:
    trusted(tmp_path, tmp_path)
    body = json.loads(place(tmp_path).read_text())
    body["keys"][0]["public_key"] = new_key(tmp_path / "thief.pem").pem
    place(tmp_path).write_text(json.dumps(body))
    with pytest.raises(SignatureError, match="its id must be that of its PEM"):
        Trust.of(tmp_path)


def test_trust_may_lie_outside_the_home(tmp_path: Path, monkeypatch: MP) -> None:
    monkeypatch.setenv("RATCHET_TRUST", str(tmp_path / "etc" / "trust.json"))
    made = trusted(tmp_path / "home", tmp_path)
    assert not (tmp_path / "home" / "trust.json").exists()
    assert Trust.of(tmp_path / "other").by_id(made.key_id) is not None


def test_revoked_key_cannot_be_added_again(tmp_path: Path) -> None:
    made = trusted(tmp_path, tmp_path, revoked=AT, reason="lost")
    again = TrustedKey(name="again", key_id=made.key_id, public_key=made.pem, since=AT)
    with pytest.raises(SignatureError, match="stays retired or revoked"):
        Trust.of(tmp_path).adding(again)


def test_key_is_found_by_name_or_start_of_its_id(tmp_path: Path) -> None:
    one, two = trusted(tmp_path, tmp_path, "one"), trusted(tmp_path, tmp_path, "two")
    trust = Trust.of(tmp_path)
    assert trust.find("two").key_id == two.key_id
    assert trust.find(one.key_id[:8]).name == "one"
    with pytest.raises(SignatureError, match="names none"):
        trust.find("three")
