"""The store on a local folder: what a crash leaves behind, and that links lead nowhere."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from ratchet.errors import IntegrityError
from ratchet.store import LocalStore, folder_digest


class Crash(BaseException):
    """Not an Exception, as the end of a process is not."""


def crashed(store: LocalStore, made: Path, monkeypatch: pytest.MonkeyPatch, moment: str, name: str = "a/b") -> None:
    """Write an object, and be killed right before the step that would have made it visible."""
    act = {
        "link": lambda: store.create(name, b"planted phrase"),
        "replace": lambda: store.swap(name, None, "planted phrase"),
        "rename": lambda: store.publish_folder(made, name),
    }[moment]

    def crash(*_: object) -> None:
        raise Crash

    with monkeypatch.context() as broken:
        broken.setattr(os, moment, crash)
        # A killed process cleans nothing up.
        broken.setattr(os, "unlink", lambda path: None)
        with pytest.raises(Crash):
            act()


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A folder to publish."""
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "f").write_text("planted phrase")
    return tmp_path / "made"


def contents(root: Path) -> str:
    """Everything that lies under the root, hidden or not."""
    return "".join(path.read_text() for path in root.rglob("*") if path.is_file())


@pytest.mark.parametrize("moment", ["link", "replace", "rename"])
def test_a_crash_before_the_last_step_leaves_nothing_visible(
    tmp_path: Path, made: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    store = LocalStore(tmp_path / "root")
    crashed(store, made, monkeypatch, moment)
    assert not store.exists("a/b")
    assert store.names("") == store.names("a") == store.children("a") == []
    assert store.create("a/b", b"1")
    assert store.read("a/b") == b"1"


@pytest.mark.parametrize("moment", ["link", "replace", "rename"])
@pytest.mark.parametrize("prefix", ["a/b", "a", ""])
def test_what_a_crash_left_behind_is_deleted_too(
    tmp_path: Path, made: Path, monkeypatch: pytest.MonkeyPatch, moment: str, prefix: str
) -> None:
    store = LocalStore(tmp_path / "root")
    store.create("a/b-c", b"kept")
    crashed(store, made, monkeypatch, moment)
    assert "planted" in contents(store.root)
    assert (store.delete("a/b") if prefix == "a/b" else store.delete_all(prefix)) >= 1
    assert "planted" not in contents(store.root)
    assert ("kept" in contents(store.root)) == (prefix == "a/b")


def test_leftovers_of_a_longer_name_are_not_taken_for_ones_own(
    tmp_path: Path, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path)
    crashed(store, made, monkeypatch, "link", "a/b-c")
    assert store.delete("a/b") == 0
    assert "planted" in contents(store.root / "a")


def test_a_link_inside_the_root_does_not_lead_outside(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "root")
    store.root.mkdir()
    (tmp_path / "outside").mkdir()
    (store.root / "door").symlink_to(tmp_path / "outside")
    with pytest.raises(IntegrityError, match="under the store's root"):
        store.create("door/x", b"in")


def test_opening_and_asking_write_nothing(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "root")
    assert not store.exists("a")
    assert store.names("") == store.children("a") == []
    assert store.delete("a") == store.delete_all("") == 0
    assert not store.root.exists()


def test_the_digest_of_a_folder_moves_with_names_and_contents(tmp_path: Path) -> None:
    def folder(name: str, **files: str) -> str:
        (tmp_path / name).mkdir()
        for path, text in files.items():
            (tmp_path / name / path).write_text(text)
        return folder_digest(tmp_path / name)

    assert len({folder("a", x="1"), folder("b", y="1"), folder("c", x="2"), folder("d", x="1", y=""), folder("e")}) == 5
    shutil.copytree(tmp_path / "a", tmp_path / "copy")
    assert folder_digest(tmp_path / "copy") == folder_digest(tmp_path / "a")


def test_a_file_becomes_the_object_and_its_maker_may_remove_it(tmp_path: Path) -> None:
    store, source = LocalStore(tmp_path / "root"), tmp_path / "source"
    source.write_bytes(b"1" * 5000)
    source.chmod(0o600)
    assert store.create_file("a/b", source)
    assert store.path("a/b").samefile(source)
    assert not store.create_file("a/b", source)
    source.unlink()
    assert store.read("a/b") == b"1" * 5000
    assert store.path("a/b").stat().st_mode & 0o777 == 0o644


def test_a_file_from_another_file_system_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, source, real = LocalStore(tmp_path / "root"), tmp_path / "source", os.link
    source.write_bytes(b"1")

    def apart(one: str, other: Path) -> None:
        if Path(one) == source:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        real(one, other)

    monkeypatch.setattr(os, "link", apart)
    assert store.create_file("a/b", source)
    source.write_bytes(b"2")
    assert not store.create_file("a/b", source)
    assert store.read("a/b") == b"1"
    assert contents(tmp_path / "root") == "1"


def test_a_link_is_followed_to_the_file_that_becomes_the_object(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "root")
    (tmp_path / "file").write_bytes(b"1")
    (tmp_path / "link").symlink_to("file")
    assert store.create_file("a/b", tmp_path / "link")
    assert not store.path("a/b").is_symlink()
    assert store.read("a/b") == b"1"
