"""A home says where its store is, keeps to it, and remembers no secret."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from seaweed_server import SECRET
from typer.testing import CliRunner

from ratchet import sandbox
from ratchet.cli.main import app
from ratchet.errors import ConflictError, IntegrityError, StoreError
from ratchet.store import LocalStore, open_store
from ratchet.store.s3 import S3Store


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fresh home, and no variable."""
    monkeypatch.delenv("RATCHET_STORE", raising=False)
    return tmp_path / "home"


def test_without_a_variable_the_store_is_in_the_home(home: Path) -> None:
    store = open_store(home)
    assert isinstance(store, LocalStore)
    assert store.root == home / "store"
    store.create("a", b"1")
    assert [path.name for path in home.iterdir()] == ["store"]


def test_a_home_remembers_its_store_on_s3_and_nothing_secret(
    home: Path, s3_place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RATCHET_STORE", f"{s3_place}/")
    open_store(home).create("a", b"1")
    monkeypatch.delenv("RATCHET_STORE")
    again = open_store(home)
    assert isinstance(again, S3Store)
    assert again.read("a") == b"1"
    assert json.loads((home / "store.json").read_text()) == {"store": s3_place}
    assert SECRET not in "".join(path.read_text() for path in home.rglob("*") if path.is_file())


def test_a_store_in_another_folder_is_remembered_too(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RATCHET_STORE", "elsewhere")
    open_store(home).create("a", b"1")
    monkeypatch.delenv("RATCHET_STORE")
    monkeypatch.chdir("/")
    assert open_store(home).read("a") == b"1"
    assert (tmp_path / "elsewhere" / "a").exists()


@pytest.mark.parametrize("first", ["local", "s3"])
def test_a_home_does_not_change_its_store(
    home: Path, s3_place: str, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    if first == "s3":
        monkeypatch.setenv("RATCHET_STORE", s3_place)
    store = open_store(home)
    store.create("a", b"1")
    monkeypatch.setenv("RATCHET_STORE", f"{s3_place}-other")
    with pytest.raises(ConflictError, match=r"RATCHET_STORE.*keeps its store at.*unset RATCHET_STORE"):
        open_store(home)
    monkeypatch.setenv("RATCHET_STORE", store.place)
    assert open_store(home).read("a") == b"1"


def test_a_place_that_cannot_be_used_is_not_remembered(
    home: Path, s3_place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RATCHET_STORE", "s3://no-such-bucket/x")
    with pytest.raises(StoreError, match="NoSuchBucket"):
        open_store(home)
    monkeypatch.setenv("RATCHET_STORE", s3_place)
    assert open_store(home).place == s3_place


@pytest.mark.parametrize("content", ["", "[]", "{}", "{"])
def test_a_damaged_note_is_named(home: Path, content: str) -> None:
    home.mkdir()
    (home / "store.json").write_text(content)
    with pytest.raises(IntegrityError, match=r"store\.json.*write the place"):
        open_store(home)


@pytest.mark.parametrize("where", ["local", "s3", "nowhere"])
def test_the_doctor_shows_the_store_and_leaves_nothing_in_it(
    home: Path, s3_place: str, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.setattr(sandbox, "diagnose", list)
    monkeypatch.setenv("COLUMNS", "300")
    if where == "local":
        home.mkdir()
    else:
        monkeypatch.setenv("RATCHET_STORE", s3_place if where == "s3" else "s3://no-such-bucket/x")
    result = CliRunner().invoke(app, ["doctor", "--home", str(home)])
    told = next(line for line in result.output.splitlines() if " store " in line)
    if where == "nowhere":
        assert result.exit_code == 1
        assert "make the bucket no-such-bucket" in result.output
        return
    assert "promises" in told
    assert (s3_place if where == "s3" else str(home / "store")) in told
    assert not home.exists() or list(home.iterdir()) in ([], [home / "store"])
    assert open_store(home).names("") == []
    assert open_store(home).delete_all("") == 0


def test_a_local_store_keeps_all_its_promises(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    assert all(finding.kept for finding in store.prove())
    assert list(tmp_path.iterdir()) == []
