"""A confined training process cannot reach what is hidden, by any way we know, and can do all that training needs.

The attacks are run unconfined too, so that a refusal here is the confinement's and not the machine's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ratchet.errors import HeldoutError
from ratchet.methods import confinement
from ratchet.methods.confinement import Confinement, rules, supported
from ratchet.methods.trainer import run_in_subprocess
from ratchet.sandbox.inside import landlock

SECRET = "the task that decides"
READ = ("open", "map", "relative path", "fork", "exec cat", "exec python", "shell", "symbolic link", "hard link")

pytestmark = pytest.mark.skipif(not supported(), reason="this kernel has no Landlock, and training is refused on it")


class Place:
    """A home with something hidden, something beside it, and a folder of training's own."""

    def __init__(self, root: Path) -> None:
        self.hidden, self.own = root / "home" / "store" / "heldout", root / "home" / "work"
        self.beside = root / "home" / "store" / "open" / "lock.json"
        self.scratch = root / "scratch"
        for folder in (self.hidden, self.own, self.beside.parent, self.scratch):
            folder.mkdir(parents=True)
        self.secret = self.hidden / "tasks.jsonl"
        self.secret.write_text(SECRET)
        self.beside.write_text("open")
        self.arguments = {"secret": str(self.secret), "own": str(self.own), "beside": str(self.beside),
                          "scratch": str(self.scratch)}  # fmt: skip

    def run(self, entry: str, confined: bool = True, **more: Any) -> Any:
        """Run a function of `attacks` in a worker."""
        what = Confinement([str(self.hidden)], [str(self.own)]) if confined else None
        return run_in_subprocess(
            f"attacks:{entry}",
            self.arguments | more,
            self.own / "process",
            hard_wall_s=120,
            confinement=what,
            scratch=self.scratch,
        )


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A fresh place."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    return Place(tmp_path)


def test_no_way_leads_to_what_is_hidden(place: Place) -> None:
    found = place.run("attempt")
    assert {way: got for way, got in found.items() if not got.startswith("refused")} == {}
    assert place.secret.read_text() == SECRET
    # Only what harms nothing: the others would stop this process, or mount over the machine's folders.
    unconfined = place.run("attempt", confined=False, ways=READ)
    assert {way for way in READ if SECRET in unconfined[way]} == set(READ)


def test_training_can_do_what_it_needs(place: Place) -> None:
    assert place.run("works") == {
        "beside": "open", "weights": 10, "socket": "x", "null": 1, "random": 4, "child": "42", "scratch": True,
    }  # fmt: skip


def test_training_changes_nothing_that_the_loop_keeps(place: Place) -> None:
    assert set(place.run("overwrite").values()) == {"PermissionError"}
    assert place.beside.read_text() == "open"


def test_a_link_beside_the_hidden_folder_does_not_open_it(place: Place) -> None:
    link = place.beside.parent.parent / "link"
    link.symlink_to(place.hidden)
    found = place.run("attempt", secret=str(link / "tasks.jsonl"))
    assert [way for way in READ if not found[way].startswith("refused")] == []


def test_what_comes_to_be_hidden_later_is_hidden(place: Place) -> None:
    place.secret.unlink()
    place.hidden.rmdir()
    allowed = [path for path, _ in rules(Confinement([str(place.hidden)], [str(place.own)]))]
    assert str(place.hidden) not in allowed
    assert str(place.beside.parent) in allowed


def test_a_folder_to_write_that_holds_what_is_hidden_is_refused(place: Place) -> None:
    for folder in (place.hidden.parent, place.hidden, place.hidden / "deeper"):
        with pytest.raises(HeldoutError, match="lies apart"):
            rules(Confinement([str(place.hidden)], [str(folder)]))


def test_a_second_way_to_the_same_file_system_is_hidden_too(monkeypatch: pytest.MonkeyPatch, place: Place) -> None:
    root = place.hidden.parent.parent
    lines = [
        "27 1 254:0 / / rw - ext4 /dev/vda rw",
        f"28 27 254:0 {root} /mnt/again rw - ext4 /dev/vda rw",
        f"29 27 254:0 {place.hidden} /mnt/itself rw - ext4 /dev/vda rw",
        "30 27 0:99 / /mnt/other\\040disk rw - tmpfs x rw",
    ]
    real = Path.read_text

    def read(self: Path, *arguments: Any, **named: Any) -> str:
        return "\n".join(lines) if str(self) == "/proc/self/mountinfo" else real(self, *arguments, **named)

    monkeypatch.setattr(Path, "read_text", read)
    found = set(confinement._other_ways([str(place.hidden)]))
    assert found == {f"/mnt/again/{place.hidden.relative_to(root)}", "/mnt/itself"}


def test_where_the_kernel_cannot_confine_the_training_is_refused(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landlock, "abi", lambda: 0)
    with pytest.raises(HeldoutError, match=r"no Landlock.*evaluation\.unconfined_training"):
        confinement.enter(Confinement([str(place.hidden)], [str(place.own)]))
    assert place.secret.read_text() == SECRET
