"""A version with a real checkpoint and its evidence bundle, and keys to sign it with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from release_world import AT, World

from ratchet.release.decision import Decision
from ratchet.release.evidence import EvidenceBundle, EvidenceFile, bundle_evidence, latest_bundle, write_bundle
from ratchet.release.keys import KEY, Made, configured_signer, new_key
from ratchet.release.records import Version
from ratchet.release.signing import envelopes, sign_bundle
from ratchet.release.trust import Trust, TrustedKey, place
from ratchet.store.base import listing


def trusted(home: Path, folder: Path, name: str = "owner", **fields: Any) -> Made:
    """Make a key pair and let the home trust it."""
    made = new_key(folder / f"{name}.pem")
    key = TrustedKey(name=name, key_id=made.key_id, public_key=made.pem, since=AT.replace(year=2000), **fields)
    Trust.of(home).adding(key).write(place(home))
    return made


def changed(home: Path, key_id: str, **fields: Any) -> None:
    """Change what a home says of a key."""
    trust = Trust.of(home)
    known = trust.by_id(key_id)
    assert known is not None
    trust.replacing(known.model_copy(update=fields)).write(place(home))


class Signed(World):
    """A candidate that the gate let pass, with its bundle in the store, not signed yet."""

    def __init__(self, home: Path, keys: Path, state: str = "promote", **release: Any) -> None:
        """Make it; the manifest demands a signature unless told otherwise."""
        super().__init__(home, **{"signature": "required", **release})
        self.keys = keys
        self.version: Version = self.candidate("sft")
        self.decided: Decision = self.decision(self.version, state)
        place = self.version.policy.checkpoint
        files = [
            EvidenceFile(role="checkpoint", about="sft", name=f"{place}/{name}", sha256=value)
            for name, value in listing(self.store.folder(place)).items()
        ]
        bundle = bundle_evidence(
            self.version, self.manifest, self.decided, split_lock="a" * 64, datasets={}, grants={}, scorecards={},
            files=files,
        )  # fmt: skip
        write_bundle(self.store, bundle)

    @property
    def bundle(self) -> EvidenceBundle:
        """The latest bundle."""
        found = latest_bundle(self.store, self.version.id)
        assert found is not None
        return found

    def sign(self, made: Made, monkeypatch: pytest.MonkeyPatch) -> str:
        """Sign the latest bundle with a key file; returns the place of the envelope."""
        monkeypatch.setenv(KEY, str(made.private))
        signer = configured_signer(self.home)
        assert signer is not None
        return sign_bundle(self.store, self.bundle, signer, at=AT)

    def envelope(self) -> tuple[Path, dict[str, Any]]:
        """The only envelope of the version: its file and its content."""
        (name,) = envelopes(self.store, self.version.id)
        path = self.store.path(name)  # type: ignore[attr-defined]
        return path, json.loads(path.read_bytes())
