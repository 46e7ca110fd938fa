"""`ratchet verify`: what is untouched passes without a network; what was changed is named, here and in an export."""

from __future__ import annotations

import json
import random
import shutil
import socket
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from evidence_world import MANIFEST, Made, latest, look
from signed_world import changed, trusted
from typer.testing import CliRunner

from ratchet.cli.main import app
from ratchet.loop.affected import follow
from ratchet.loop.context import Run
from ratchet.loop.erasing import erase
from ratchet.release.evidence import bundle_name, latest_bundle
from ratchet.release.export import export_version, home_source, verify_export
from ratchet.release.keys import KEY
from ratchet.release.ledger import Ledger
from ratchet.release.records import Version
from ratchet.release.states import State
from ratchet.release.trust import Trust, place
from ratchet.release.verify import failed, verify
from ratchet.rights import Event
from ratchet.rights import Ledger as RightsLedger
from ratchet.store import open_store


@pytest.fixture
def exported(made: Made, tmp_path: Path) -> Path:
    """An export of the version, to be changed."""
    export_version(made.home, made.version, tmp_path / "export")
    return tmp_path / "export"


def flip(path: Path, rng: random.Random) -> bytes:
    """Change one bit of a file; returns what it was."""
    whole = path.read_bytes()
    at = rng.randrange(len(whole))
    path.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << rng.randrange(8))]) + whole[at + 1 :])
    return whole


def evidence(home: Path, version: Version) -> list[str]:
    """Every file in the store that the version stands on."""
    store = open_store(home)
    bundle = latest_bundle(store, version.id)
    assert bundle is not None
    found = {one.name for one in bundle.files}
    for prefix in ("evidence", "signatures", "certificates"):
        found |= set(store.names(f"{prefix}/{version.id}"))
    return sorted(found | {f"evidence/{version.id}/latest"})


def test_unsigned_version_waits_and_goes_on_once_it_is_signed(made: Made) -> None:
    assert "is 'unsigned': its manifest demands the signature of a trusted key" in made.refused
    assert f"is signed by {made.key_id[:12]}" in made.signed
    assert Ledger.of(made.home).state(made.version) is State.CANARY
    assert [event.kind for event in Ledger.of(made.home).history()].count("decided") == 1


def test_untouched_version_verifies_without_a_socket(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("something asked for the network")

    monkeypatch.setattr(socket, "socket", refuse)
    found = verify(home_source(made.home, made.version))
    assert failed(found) == []
    words = {one.item: one.words for one in found}
    assert "2 from 64 rows" in words["scorecards"]
    assert "to the last digit" in words["scorecards"]
    assert words["decision"].startswith("promote, ")
    assert words["approvals"] == "Grace up to canary"
    assert words["signed"].startswith("by owner, over ")


def test_command_passes_in_a_namespace_without_a_network(made: Made, exported: Path) -> None:
    alone = ["unshare", "--user", "--map-root-user", "--net"]
    if shutil.which("unshare") is None or subprocess.run([*alone, "true"], check=False).returncode:
        pytest.skip("this machine allows no namespaces")
    command = [*alone, sys.executable, "-m", "ratchet.cli", "verify"]
    model = f"{made.version.tenant}.{made.version.experiment}"
    here = subprocess.run(
        [*command, model, "canary", "--home", str(made.home)], capture_output=True, text=True, check=False
    )
    assert (here.returncode, here.stdout.splitlines()[-1]) == (0, f"{made.version.label}: verified.")
    # Elsewhere: no home, and the reader's own keys.
    trust = shutil.copy(place(made.home), exported.parent / "reader.json")
    there = subprocess.run(
        [*command, str(exported), "--trust", trust, "--home", str(exported.parent / "none")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (there.returncode, there.stdout.splitlines()[-1]) == (0, f"{exported}: verified.")


def test_one_flipped_bit_in_any_file_of_the_evidence_is_named(made: Made, home: Path) -> None:
    rng = random.Random(5)
    names = evidence(home, made.version)
    assert len(names) > 30
    for name in names:
        path = home / "store" / name
        whole = flip(path, rng)
        found = look(home, made.version)
        assert any(name in one.words for one in found), (name, found)
        path.write_bytes(whole)
    assert look(home, made.version) == []


def test_any_missing_file_of_the_evidence_is_named(made: Made, home: Path) -> None:
    newest = bundle_name(made.version.id, latest(home, made.version).digest)
    for name in evidence(home, made.version):
        path = home / "store" / name
        path.rename(path.with_name(".gone"))
        found = look(home, made.version)
        if name.endswith(".dsse.json"):
            # One signature less is no change, as long as another one counts.
            assert found == []
        elif name.startswith("evidence/") and name.endswith(".json") and name != newest:
            # An earlier bundle is history; the latest one is signed for itself.
            assert found == []
        else:
            assert any(name in one.words for one in found), (name, found)
        path.with_name(".gone").rename(path)


def test_one_flipped_bit_in_any_file_of_an_export_is_named(made: Made, exported: Path) -> None:
    rng, trust = random.Random(6), Trust.of(made.home)
    assert failed(verify_export(exported, trust)) == []
    files = sorted(path for path in exported.rglob("*") if path.is_file())
    for path in files:
        name = path.relative_to(exported).as_posix()
        for _ in range(3):
            whole = flip(path, rng)
            found = failed(verify_export(exported, trust))
            assert any(name in one.words or name == "SHA256SUMS" for one in found), (name, found)
            path.write_bytes(whole)
    (exported / "store" / "more.json").write_text("{}")
    assert [one.words for one in failed(verify_export(exported, trust))] == [
        "store/more.json: it is not listed in SHA256SUMS"
    ]


def test_export_says_nothing_of_other_grants(made: Made, home: Path, tmp_path: Path) -> None:
    secret = Event(
        kind="grant", grant_id="zwetschge", tenant="other", by="them", at=Run.now(), purposes=("train_sft",),
        base_models=("*",), retention_until=Run.now() + timedelta(days=9),
    )  # fmt: skip
    RightsLedger.at_home(home).append(secret)
    export_version(home, made.version, tmp_path / "export")
    assert b"zwetschge" not in (tmp_path / "export" / "rights.jsonl").read_bytes()
    assert failed(verify_export(tmp_path / "export", Trust.of(home))) == []


def test_export_is_not_trusted_for_the_keys_it_comes_with(made: Made, exported: Path) -> None:
    (finding,) = failed(verify_export(exported, Trust()))
    assert finding.item == "signed"
    assert f"key {made.key_id[:12]} is not trusted here" in finding.words


# What is no tampering


def test_withdrawn_and_erased_data_changes_nothing(made: Made, home: Path) -> None:
    grant = MANIFEST.grants[0].grant_id
    rights = RightsLedger.at_home(home)
    at = Run.now()
    rights.append(Event(kind="withdraw", grant_id=grant, tenant=MANIFEST.tenant, by="steward", at=at, reason="asked"))
    follow(home, grant, Run.now())
    assert Ledger.of(home).state(made.version) is State.QUARANTINED
    erase(home, grant, by="steward", reason="asked", at=Run.now())
    assert look(home, made.version) == []


def test_withdrawal_dated_back_before_the_decision_changes_nothing(made: Made, home: Path) -> None:
    """Rights are folded as of the head that the decision saw, not by the times that later lines claim."""
    rights, grant = RightsLedger.at_home(home), MANIFEST.grants[0].grant_id
    early = rights.history(grant)[0].at + timedelta(microseconds=1)
    rights.append(Event(kind="withdraw", grant_id=grant, tenant=MANIFEST.tenant, by="steward", at=early, reason="x"))
    assert look(home, made.version) == []


def test_rollback_changes_nothing(made: Made, home: Path) -> None:
    Ledger.of(home).reject(made.version, by="Olga", reason="complaints")
    assert look(home, made.version) == []


# Keys and the command line


def test_revoked_key_leaves_the_version_unsigned(made: Made, home: Path) -> None:
    changed(home, made.key_id, revoked=Run.now(), reason="laptop lost")
    (finding,) = look(home, made.version)
    assert finding.item == "signed"
    assert "laptop lost" in finding.words


def test_exit_status_says_what_happened(made: Made, home: Path) -> None:
    def run(*words: str) -> tuple[int, str]:
        said = CliRunner().invoke(app, ["verify", *words, "--home", str(home)])
        return said.exit_code, said.output

    assert run(made.version.id[:12])[0] == 0
    assert run("nothing")[0] == 2
    assert run("workshop.other", "sft")[0] == 2
    name = f"{made.version.policy.checkpoint}/config.json"
    (home / "store" / name).write_text("{}")
    code, said = run(f"{made.version.tenant}/{made.version.experiment}", "sft")
    assert code == 1
    assert f"CHANGED  files: checkpoint: {name}" in said
    code, said = run("sft", "--json")
    body = json.loads(said)
    assert (code, body["verified"]) == (1, False)
    assert [one["item"] for one in body["findings"] if not one["passed"]] == ["files: checkpoint"]


def test_changed_version_is_not_signed(made: Made, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, str(trusted(home, home / "more", "second").private))
    path = home / "store" / made.version.policy.checkpoint / "config.json"
    path.write_text("{}")
    said = CliRunner().invoke(app, ["keys", "sign", made.version.id[:12], "--home", str(home)])
    assert said.exit_code == 2
    assert "only what verifies is signed (files: checkpoint:" in said.output


def test_version_without_evidence_fails(made: Made) -> None:
    source = home_source(made.home, made.version)
    other = Version.model_validate({**made.version.model_dump(), "manifest_digest": "0" * 64})
    found = failed(verify(source._replace(record=source.record._replace(version=other))))
    assert any("there is none: only a version that was decided on has it" in one.words for one in found)
