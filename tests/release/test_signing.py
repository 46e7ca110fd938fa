"""Signatures: made and verified by the public formats, bound to one version, demanded where the manifest says so."""

from __future__ import annotations

import base64
import json
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest
from google.protobuf.json_format import ParseDict
from release_world import AT
from securesystemslib.dsse import Envelope
from securesystemslib.signer import Signer
from signed_world import Signed, changed, trusted

from ratchet.contracts.canonical import canonical_json
from ratchet.errors import SignatureError
from ratchet.release.certificate import certify, write_certificate
from ratchet.release.evidence import bundle_evidence, write_bundle
from ratchet.release.ledger import Ledger
from ratchet.release.review import approve_version
from ratchet.release.signing import read_envelope, require_signed
from ratchet.release.states import State
from ratchet.release.trust import Trust, read_public

MP = pytest.MonkeyPatch


@pytest.fixture
def world(tmp_path: Path) -> Signed:
    return Signed(tmp_path / "home", tmp_path / "keys", authorised_rule="staging")


def test_signature_counts_and_names_its_signer(world: Signed, monkeypatch: MP) -> None:
    world.sign(trusted(world.home, world.keys), monkeypatch)
    found = require_signed(world.store, world.version, Trust.of(world.home))
    assert (found.key.name, found.predicate.version, found.predicate.signed_at) == ("owner", world.version.id, AT)
    assert sorted(found.files) == ["config.json", "model.safetensors"]


def test_envelope_verifies_with_public_tools(world: Signed, monkeypatch: MP) -> None:
    """By openssl, on the pre-authentication encoding of DSSE."""
    made = trusted(world.home, world.keys)
    world.sign(made, monkeypatch)
    _, body = world.envelope()
    payload, kind = base64.b64decode(body["payload"]), body["payloadType"].encode()
    (world.keys / "pae").write_bytes(b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload))
    (world.keys / "sig").write_bytes(base64.b64decode(body["signatures"][0]["sig"]))
    said = subprocess.run(
        f"openssl pkeyutl -verify -pubin -inkey {made.public} -rawin -in pae -sigfile sig".split(),
        cwd=world.keys,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Signature Verified Successfully" in said.stdout


def test_statement_is_one_by_its_official_schema(world: Signed, monkeypatch: MP) -> None:
    official = pytest.importorskip("in_toto_attestation.v1.statement")
    world.sign(trusted(world.home, world.keys), monkeypatch)
    _, body = world.envelope()
    statement = official.Statement([], "x", {})
    ParseDict(json.loads(base64.b64decode(body["payload"])), statement.pb)
    statement.validate()
    assert len(statement.pb.subject) == 3


def test_envelope_made_by_another_tool_counts_here(world: Signed, monkeypatch: MP) -> None:
    """A signature by plain securesystemslib over the same statement is as good as ours."""
    made = trusted(world.home, world.keys)
    name = world.sign(made, monkeypatch)
    path, body = world.envelope()
    signer = Signer.from_priv_key_uri(f"file2:{made.private}", read_public(made.public.read_bytes(), "x"))
    envelope = Envelope(base64.b64decode(body["payload"]), body["payloadType"], {})
    envelope.sign(signer)
    path.write_bytes(canonical_json(envelope.to_dict()).encode())
    assert require_signed(world.store, world.version, Trust.of(world.home)).name == name
    assert Envelope.from_dict(body).verify([signer.public_key], 1).keys() == {made.key_id}


def test_every_flipped_byte_of_the_envelope_is_noticed(world: Signed, monkeypatch: MP) -> None:
    world.sign(trusted(world.home, world.keys), monkeypatch)
    path, _ = world.envelope()
    whole, trust = path.read_bytes(), Trust.of(world.home)
    assert read_envelope(whole, "envelope", trust).predicate.version == world.version.id
    for at in range(len(whole)):
        for bit in (0, 5):
            flipped = whole[:at] + bytes([whole[at] ^ (1 << bit)]) + whole[at + 1 :]
            with pytest.raises(SignatureError):
                read_envelope(flipped, "envelope", trust)


def test_unsigned_version_is_refused_by_the_ledger(world: Signed) -> None:
    with pytest.raises(SignatureError, match=r"version sft .* is 'unsigned': its manifest demands"):
        world.ledger.apply(world.version, world.decided, at=AT)
    assert world.ledger.state(world.version) is State.CANDIDATE


def test_unsigned_version_is_refused_to_a_person_as_well(tmp_path: Path, monkeypatch: MP) -> None:
    world = Signed(tmp_path / "home", tmp_path / "keys")
    world.ledger.apply(world.version, world.decided, at=AT)
    with pytest.raises(SignatureError, match="unsigned"):
        approve_version(world.store, world.ledger, world.version, by="Olga", reason="ok", upto="staging", at=AT)
    assert world.ledger.state(world.version) is State.CANDIDATE
    world.sign(trusted(world.home, world.keys), monkeypatch)
    approve_version(world.store, world.ledger, world.version, by="Olga", reason="ok", upto="staging", at=AT)
    assert world.ledger.state(world.version) is State.STAGING


def test_signed_version_goes_as_far_as_the_rule(world: Signed, monkeypatch: MP) -> None:
    world.sign(trusted(world.home, world.keys), monkeypatch)
    world.ledger.apply(world.version, world.decided, at=AT)
    assert world.ledger.state(world.version) is State.STAGING


def test_optional_signature_is_not_asked_for(tmp_path: Path) -> None:
    world = Signed(tmp_path / "home", tmp_path / "keys", signature="optional", authorised_rule="staging")
    world.ledger.apply(world.version, world.decided, at=AT)
    assert world.ledger.state(world.version) is State.STAGING


def test_ledger_without_a_home_promotes_nothing_that_must_be_signed(world: Signed, monkeypatch: MP) -> None:
    world.sign(trusted(world.home, world.keys), monkeypatch)
    with pytest.raises(SignatureError, match="open the ledger by its home"):
        Ledger(world.ledger.url).apply(world.version, world.decided, at=AT)


def test_signature_by_an_unknown_key_does_not_count(world: Signed, monkeypatch: MP) -> None:
    made = trusted(world.home, world.keys)
    world.sign(made, monkeypatch)
    (world.home / "trust.json").unlink()
    with pytest.raises(SignatureError, match=f"key {made.key_id[:12]} is not trusted here"):
        world.ledger.apply(world.version, world.decided, at=AT)


def test_signature_by_a_revoked_key_does_not_count_whenever_it_was_made(world: Signed, monkeypatch: MP) -> None:
    made = trusted(world.home, world.keys)
    world.sign(made, monkeypatch)
    changed(world.home, made.key_id, revoked=AT + timedelta(days=9), reason="laptop lost")
    with pytest.raises(SignatureError, match=r"revoked at .*laptop lost"):
        world.ledger.apply(world.version, world.decided, at=AT)


@pytest.mark.parametrize(("days", "counts"), [(-1, False), (1, True)])
def test_retired_key_counts_for_what_it_signed_before(world: Signed, monkeypatch: MP, days: int, counts: bool) -> None:
    made = trusted(world.home, world.keys)
    world.sign(made, monkeypatch)
    changed(world.home, made.key_id, until=AT + timedelta(days=days))
    if counts:
        assert require_signed(world.store, world.version, Trust.of(world.home)).key.key_id == made.key_id
    else:
        with pytest.raises(SignatureError, match="was retired at"):
            require_signed(world.store, world.version, Trust.of(world.home))


def test_second_key_takes_over_from_a_revoked_one(world: Signed, monkeypatch: MP) -> None:
    lost, new = trusted(world.home, world.keys, "lost"), trusted(world.home, world.keys, "new")
    world.sign(lost, monkeypatch)
    changed(world.home, lost.key_id, revoked=AT, reason="lost")
    world.sign(new, monkeypatch)
    assert require_signed(world.store, world.version, Trust.of(world.home)).key.name == "new"


def test_signature_of_one_version_does_not_serve_another(world: Signed, monkeypatch: MP) -> None:
    world.sign(trusted(world.home, world.keys), monkeypatch)
    other = world.candidate("dpo")
    path, _ = world.envelope()
    forged = world.store.path(f"signatures/{other.id}/{'0' * 64}/k.dsse.json")
    forged.parent.mkdir(parents=True)
    forged.write_bytes(path.read_bytes())
    with pytest.raises(SignatureError, match=f"the version it is about must be {other.id}"):
        world.ledger.apply(other, world.decision(other), at=AT)


def test_signature_on_another_decision_does_not_open_this_one(world: Signed, monkeypatch: MP) -> None:
    world.sign(trusted(world.home, world.keys), monkeypatch)
    later = world.decision(world.version, "review")
    world.ledger.apply(world.version, later, at=AT)
    with pytest.raises(SignatureError, match="the decision it is about must be"):
        world.ledger.approve(world.version, by="Olga", reason="ok", upto="staging", at=AT)


def test_approval_signs_the_new_bundle_where_there_is_a_key(tmp_path: Path, monkeypatch: MP) -> None:
    world = Signed(tmp_path / "home", tmp_path / "keys")
    world.ledger.apply(world.version, world.decided, at=AT)
    world.sign(trusted(world.home, world.keys), monkeypatch)
    approve_version(world.store, world.ledger, world.version, by="Olga", reason="ok", upto="staging", at=AT)
    signed = {world.store.read(name) for name in world.store.names(f"signatures/{world.version.id}")}
    assert len(signed) == 2
    assert world.bundle.digest in {
        read_envelope(data, "envelope", Trust.of(world.home)).predicate.bundle for data in signed
    }


def test_earlier_signature_counts_after_an_approval_without_a_key(tmp_path: Path, monkeypatch: MP) -> None:
    world = Signed(tmp_path / "home", tmp_path / "keys")
    world.ledger.apply(world.version, world.decided, at=AT)
    world.sign(trusted(world.home, world.keys), monkeypatch)
    before = world.bundle.digest
    monkeypatch.delenv("RATCHET_SIGNING_KEY")
    approve_version(world.store, world.ledger, world.version, by="Olga", reason="ok", upto="staging", at=AT)
    assert world.bundle.digest != before
    assert require_signed(world.store, world.version, Trust.of(world.home)).predicate.bundle == before


def test_evidence_that_was_exchanged_after_signing_is_noticed(world: Signed, monkeypatch: MP) -> None:
    """Another bundle of the same decision, in which something else than the approvals differs."""
    world.sign(trusted(world.home, world.keys), monkeypatch)
    other = bundle_evidence(
        world.version, world.manifest, world.decided, split_lock="0" * 64, datasets={}, grants={}, scorecards={},
        files=world.bundle.files,
    )  # fmt: skip
    write_bundle(world.store, other)
    with pytest.raises(SignatureError, match="the evidence it is about must be"):
        require_signed(world.store, world.version, Trust.of(world.home))


def test_rollback_needs_no_signature(tmp_path: Path, monkeypatch: MP) -> None:
    """What is put back was signed when it went up; a lost key must not keep a bad version in production."""
    world = Signed(tmp_path / "home", tmp_path / "keys", authorised_rule="staging")
    made = trusted(world.home, world.keys)
    world.sign(made, monkeypatch)
    world.ledger.apply(world.version, world.decided, at=AT)
    write_certificate(world.store, certify(world.version, world.decided, {}, by="rule:gate", at=AT))
    changed(world.home, made.key_id, revoked=AT, reason="lost")
    event = world.ledger.reject(world.version, by="Olga", reason="bad")
    assert event.state is State.REJECTED
