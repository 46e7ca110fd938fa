"""`ratchet verify` against someone who changes evidence and makes every digest fit again, and on S3."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from evidence_world import Made, decide, latest, look, register
from signed_world import trusted
from sqlalchemy import create_engine, text

from ratchet.contracts.canonical import canonical_json, digest, digest_bytes
from ratchet.release.evidence import bundle_name
from ratchet.release.export import export_version, verify_export
from ratchet.release.keys import KEY
from ratchet.release.records import Version
from ratchet.release.trust import Trust
from ratchet.release.verify import failed
from ratchet.store import Store, open_store


def forge(home: Path, version: Version, role: Any, about: str | None, change: Callable[[dict[str, Any]], None]) -> None:
    """Change one evidence and carry its new digest through bundle and pointer, as one could who has the whole store."""
    store = open_store(home)
    bundle = latest(home, version)
    file = next(one for one in bundle.files if one.role == role and about in (None, one.about))
    body = json.loads(store.read(file.name))
    old = body["digest"]
    change(body["content"])
    body["digest"] = digest({"kind": body["kind"], "content": body["content"]})
    data = canonical_json(body).encode()
    _put(store, file.name, data)
    text_of = bundle.to_bytes().decode().replace(old, body["digest"]).replace(file.sha256, digest_bytes(data))
    content = json.loads(text_of)["content"]
    if role == "decision":
        content["decision"] = body["content"]
    _reissue(store, version, content)


def _reissue(store: Store, version: Version, content: dict[str, Any]) -> None:
    whole = {"kind": "EvidenceBundle", "content": content}
    whole["digest"] = digest({"kind": whole["kind"], "content": content})
    name = bundle_name(version.id, str(whole["digest"]))
    _put(store, name, canonical_json(whole).encode())
    pointer = f"evidence/{version.id}/latest"
    store.swap(pointer, store.pointer(pointer), name)


def _put(store: Store, name: str, data: bytes) -> None:
    store.delete(name)
    store.create(name, data)


def test_forged_scorecard_differs_from_its_rows_and_from_what_was_signed(made: Made, home: Path) -> None:
    def better(content: dict[str, Any]) -> None:
        content["accepted_tasks"] += 1

    forge(home, made.version, "scorecard", "sft", better)
    found = {one.item: one.words for one in look(home, made.version)}
    assert "accepted_tasks of scorecard 'sft' is 15: computed again it is 14" in found["scorecards"]
    assert "the evidence it is about must be" in found["signed"]


def test_figure_changed_in_its_last_digits_is_noticed(made: Made, home: Path) -> None:
    def nudge(content: dict[str, Any]) -> None:
        content["latency_s"]["p95"] *= 1 + 1e-8

    forge(home, made.version, "scorecard", "sft", nudge)
    assert any("latency_s.p95 of scorecard 'sft'" in one.words for one in look(home, made.version))


def test_forged_decision_is_not_what_the_gate_says_nor_what_the_ledger_has(made: Made, home: Path) -> None:
    def surer(content: dict[str, Any]) -> None:
        content["rules"][0]["figure"] = 0.99

    forge(home, made.version, "decision", None, surer)
    found = {one.item: one.words for one in look(home, made.version)}
    assert "rules[0].figure of the decision is 0.99" in found["decision"]
    assert "decision of the bundle" in found["decision in the ledger"]


def test_split_lock_of_other_tasks_is_noticed(made: Made, home: Path) -> None:
    def swap(content: dict[str, Any]) -> None:
        content["train"][0], content["heldout"][0] = content["heldout"][0], content["train"][0]

    forge(home, made.version, "split_lock", None, swap)
    found = {one.item for one in look(home, made.version)}
    assert {"split lock", "plan", "signed"} <= found


def test_forged_grant_digest_is_not_what_the_rights_ledger_folds_to(made: Made, home: Path) -> None:
    store, bundle = open_store(home), latest(home, made.version)
    content = json.loads(bundle.to_bytes())["content"]
    name = next(iter(content["grants"]))
    content["grants"][name] = "0" * 64
    _reissue(store, made.version, content)
    found = {one.item: one.words for one in look(home, made.version)}
    assert f"grant {name} in the bundle is '{'0' * 64}'" in found["grants"]


def test_changed_line_of_the_rights_ledger_is_named(made: Made, home: Path) -> None:
    path = home / "rights" / "ledger.jsonl"
    path.write_bytes(path.read_bytes().replace(b"train_sft", b"train_sfT", 1))
    (found,) = look(home, made.version)
    assert f"{path} line 1" in found.words


def test_removed_approval_is_noticed(made: Made, home: Path) -> None:
    content = json.loads(latest(home, made.version).to_bytes())["content"]
    content["approvals"] = []
    _reissue(open_store(home), made.version, content)
    assert "approvals" in {one.item for one in look(home, made.version)}


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("UPDATE events SET body = replace(body, 'Grace', 'Grant')", "event"),
        ("UPDATE decisions SET body = replace(body, 'promote', 'prOmote')", "decision"),
        ("UPDATE versions SET body = replace(body, 'workshop', 'workshoP')", "version"),
        ("DELETE FROM events WHERE kind = 'approved'", "event"),
        ("UPDATE evidences SET body = replace(body, 'transformers', 'transformerS')", "evidence"),
    ],
)
def test_changed_row_of_the_release_ledger_is_noticed(made: Made, home: Path, statement: str, words: str) -> None:
    with create_engine(f"sqlite:///{home / 'release.db'}").connect() as connection, connection.begin():
        for name in connection.execute(text("SELECT name FROM sqlite_master WHERE type = 'trigger'")).scalars().all():
            connection.execute(text(f"DROP TRIGGER {name}"))
        assert connection.execute(text(statement)).rowcount >= 1
    found = look(home, made.version)
    assert any(words in one.words for one in found), found


def test_file_added_to_the_checkpoint_is_named(made: Made, home: Path) -> None:
    name = f"{made.version.policy.checkpoint}/modeling_own.py"
    (home / "store" / name).write_text("import os")
    assert any(one.words.startswith(name) for one in look(home, made.version))


@pytest.mark.slow
def test_home_on_s3_verifies_exports_and_names_what_was_changed(
    s3_place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RATCHET_STORE", s3_place)
    home = tmp_path / "home"
    monkeypatch.setenv(KEY, str(trusted(home, tmp_path / "keys").private))
    decide(home)
    version = register(home)
    assert look(home, version) == []
    export_version(home, version, tmp_path / "export")
    assert failed(verify_export(tmp_path / "export", Trust.of(home))) == []
    forge(home, version, "scorecard", "sft", lambda content: content.update(accepted_tasks=16))
    assert {"scorecards", "signed"} <= {one.item for one in look(home, version)}
