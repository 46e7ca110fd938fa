"""`ratchet keys`: a key from its making to its end, as a person sees it."""

from __future__ import annotations

from pathlib import Path

import pytest
from release_world import AT
from signed_world import Signed
from typer.testing import CliRunner

from ratchet.cli.main import app
from ratchet.errors import SignatureError
from ratchet.release.certificate import certify, verify_certificate, write_certificate
from ratchet.release.keys import KEY
from ratchet.release.signing import require_signed, sign_where_configured
from ratchet.release.states import State
from ratchet.release.trust import Trust


def keys(home: Path, *words: str) -> tuple[int, str]:
    """Status and output of a command; the home is given last."""
    said = CliRunner().invoke(app, ["keys", *words, *(["--home", str(home)] if words[0] != "new" else [])])
    return said.exit_code, said.output


def test_key_from_its_making_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY, raising=False)
    home, file = tmp_path / "home", tmp_path / "owner.pem"
    assert keys(home, "show") == (0, f"No key is trusted: {home / 'trust.json'} has none.\n{KEY} is not set.\n")
    code, said = keys(home, "new", str(file))
    assert code == 0
    assert said.startswith("-----BEGIN PUBLIC KEY-----")
    assert "not encrypted, readable by you alone" in said
    assert keys(home, "trust", "owner", f"{file}.pub")[0] == 0
    (key,) = Trust.of(home).keys
    assert f"id: {key.key_id}" in said
    monkeypatch.setenv(KEY, str(file))
    code, said = keys(home, "show")
    assert f"{key.key_id}  owner  since " in said
    assert f"This machine signs with {key.key_id[:12]}." in said
    assert keys(home, "retire", "owner")[0] == 0
    assert "retired 2" in keys(home, "show")[1]
    assert keys(home, "revoke", "owner", "--reason", "laptop lost")[0] == 0
    assert "laptop lost" in keys(home, "show")[1]
    code, said = keys(home, "trust", "again", f"{file}.pub")
    assert code == 2
    assert "stays retired or revoked" in said


def test_retired_key_signs_nothing_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = Signed(tmp_path / "home", tmp_path / "keys", authorised_rule="staging")
    file = tmp_path / "owner.pem"
    assert keys(world.home, "new", str(file))[0] == 0
    assert keys(world.home, "trust", "owner", f"{file}.pub")[0] == 0
    assert keys(world.home, "retire", "owner")[0] == 0
    monkeypatch.setenv(KEY, str(file))
    code, said = keys(world.home, "show")
    assert code == 2
    assert "was retired at" in said


def test_revoking_tells_what_serves_on_it_and_closes_its_doors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = Signed(tmp_path / "home", tmp_path / "keys", authorised_rule="staging")
    file = tmp_path / "owner.pem"
    keys(world.home, "new", str(file))
    keys(world.home, "trust", "owner", f"{file}.pub")
    key = Trust.of(world.home).find("owner")
    Trust.of(world.home).replacing(key.model_copy(update={"since": AT})).write(world.home / "trust.json")
    monkeypatch.setenv(KEY, str(file))
    sign_where_configured(world.home, world.store, world.bundle, AT)
    world.ledger.apply(world.version, world.decided, at=AT)
    write_certificate(world.store, certify(world.version, world.decided, {}, by="rule:gate", at=AT))
    assert world.ledger.state(world.version) is State.STAGING
    verify_certificate(world.store, world.ledger, world.version)
    code, said = keys(world.home, "revoke", "owner", "--reason", "laptop lost")
    assert code == 0
    assert f"{world.version.label} stands in staging" in said
    with pytest.raises(SignatureError, match="laptop lost"):
        verify_certificate(world.store, world.ledger, world.version)
    with pytest.raises(SignatureError, match="laptop lost"):
        require_signed(world.store, world.version, Trust.of(world.home))
