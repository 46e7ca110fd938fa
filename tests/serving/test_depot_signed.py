"""Where the manifest demands a signature a server loads nothing without one, with or without the store."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from release_world import AT
from serving_world import ServingWorld
from signed_world import changed, trusted

from ratchet.errors import SignatureError
from ratchet.release.decision import Decision
from ratchet.release.evidence import EvidenceFile, bundle_evidence, write_bundle
from ratchet.release.keys import KEY, Made, configured_signer
from ratchet.release.records import Version
from ratchet.release.signing import sign_bundle
from ratchet.serving.depot import SIGNED
from ratchet.store.base import listing


class SignedServing(ServingWorld):
    """Every version is signed before it is promoted."""

    key: Made

    def sealed(self, version: Version, decision: Decision) -> None:
        place = version.policy.checkpoint
        files = [
            EvidenceFile(role="checkpoint", about=version.policy.name, name=f"{place}/{name}", sha256=value)
            for name, value in listing(self.store.folder(place)).items()
        ]
        bundle = bundle_evidence(
            version, self.manifest, decision, split_lock="a" * 64, datasets={}, grants={}, scorecards={}, files=files
        )
        write_bundle(self.store, bundle)
        signer = configured_signer(self.home)
        assert signer is not None
        sign_bundle(self.store, bundle, signer, at=AT)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SignedServing:
    home = tmp_path / "home"
    made = SignedServing(home, signature="required")
    made.key = trusted(home, tmp_path)
    monkeypatch.setenv(KEY, str(made.key.private))
    return made


def test_a_signed_version_is_loaded_also_while_the_store_is_gone(world: SignedServing) -> None:
    version = world.produce("first")
    depot = world.desk().depot
    folder = depot.folder(version)
    shutil.rmtree(world.home / "store")
    assert depot.folder(version) == folder


@pytest.mark.parametrize(
    "harm",
    [
        lambda world, version: shutil.rmtree(world.home / "store" / "signatures"),
        lambda world, version: changed(world.home, world.key.key_id, revoked=AT.replace(year=2001)),
    ],
    ids=["unsigned", "revoked"],
)
def test_what_nobody_trusted_has_signed_is_not_fetched(
    world: SignedServing, harm: Callable[[SignedServing, Version], None]
) -> None:
    version = world.produce("first")
    harm(world, version)
    with pytest.raises(SignatureError):
        world.desk().depot.folder(version)


def test_a_key_that_is_revoked_closes_what_lies_on_disk_too(world: SignedServing) -> None:
    version = world.produce("first")
    depot = world.desk().depot
    depot.folder(version)
    changed(world.home, world.key.key_id, revoked=AT.replace(year=2001))
    with pytest.raises(SignatureError):
        depot.folder(version)


def test_a_signature_that_was_changed_on_disk_is_fetched_again(world: SignedServing) -> None:
    version = world.produce("first")
    depot = world.desk().depot
    depot.folder(version)
    (envelope,) = (depot.root / version.id / SIGNED / "signatures" / version.id).rglob("*.dsse.json")
    envelope.write_bytes(envelope.read_bytes().replace(b'"sig":"', b'"sig":"00'))
    with pytest.raises(SignatureError):
        depot.folder(version)
    assert depot.folder(version).exists()
