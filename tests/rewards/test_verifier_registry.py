"""Verifiers are found by entry point, one file each, and a plug-in is one more."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from reward_world import attempt, delivered, reward, tiny_task

from ratchet.contracts.attempt import Attempt
from ratchet.contracts.score import Scored
from ratchet.errors import RatchetError
from ratchet.rewards import verifiers
from ratchet.rewards.compose import judge_outcome, spec_digest
from ratchet.rewards.identity import source_version
from ratchet.rewards.verifiers import STEP_VERIFIERS, VERIFIERS, Registry
from ratchet.rewards.verifiers.admission import refusals


def test_every_verifier_has_a_file_of_its_own_and_a_digest() -> None:
    digests = {source_version(VERIFIERS[name]) for name in VERIFIERS}
    digests |= {source_version(STEP_VERIFIERS[name]) for name in STEP_VERIFIERS}
    assert len(digests) == len(VERIFIERS) + len(STEP_VERIFIERS)
    for name in VERIFIERS:
        assert VERIFIERS[name].__module__.rsplit(".", 1)[-1] == name == VERIFIERS[name].__name__


def test_the_names_that_manifests_use_stand() -> None:
    assert {"hidden_tests", "target_tests", "regression_tests", "visible_tests"} <= set(VERIFIERS)


PLUGIN = '''
from ratchet.contracts.score import Scored
from ratchet.rewards.verifiers.comparing import same_text


def polite(attempt):
    """Say please."""
    found = any(same_text(line, "please") for text in attempt.deliverable.files.values() for line in text.split("\\n"))
    return Scored(value=float(found), evidence={"please": found})
'''


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EntryPoint:
    """A package that is installed beside Ratchet and registers one verifier."""
    (tmp_path / "politeness.py").write_text(PLUGIN)
    folder = tmp_path / "politeness-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: politeness\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text("[ratchet.verifiers]\npolite = politeness:polite\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return EntryPoint("polite", "politeness:polite", "ratchet.verifiers")


def test_a_plug_in_judges_like_a_verifier_of_the_house(plugin: EntryPoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ratchet.rewards.compose.VERIFIERS", Registry("ratchet.verifiers"))
    work = attempt()
    spec = reward((), parts={"polite": 1.0})
    said = work.deliverable.model_copy(update={"files": {**work.deliverable.files, "note.txt": "PLEASE"}})
    rewards = [
        judge_outcome(work.task, one, work.verdict, calls=0, malformed=0, spec=spec).reward
        for one in (work.deliverable, said)
    ]
    assert rewards == [0.0, 1.0 - 0.2]
    assert spec_digest(spec) != spec_digest(reward(()))


def test_the_helpers_that_a_plug_in_takes_from_ratchet_are_part_of_its_identity(
    plugin: EntryPoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = Registry("ratchet.verifiers")["polite"]
    before = source_version(rule)
    monkeypatch.setattr("politeness.same_text", _another)
    assert source_version(rule) != before


def _another(got: str, expected: str) -> bool:
    return got == expected


def test_the_example_of_the_page_is_a_verifier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "verifiers.md").read_text(encoding="utf-8")
    example = page.split("```python\n")[1].split("```")[0]
    assert len(example.splitlines()) <= 20
    (tmp_path / "changelog.py").write_text(example, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    rule = EntryPoint("changelog", "changelog:changelog", "ratchet.verifiers").load()
    silent = attempt(delivered(tiny_task(), solution="x = 1\n"))
    files = {**silent.deliverable.files, "CHANGELOG.md": "solution.py is smaller"}
    told = attempt(silent.deliverable.model_copy(update={"files": files}))
    assert [rule(work).value for work in (silent, told)] == [0.0, 1.0]
    assert refusals("verifier", "changelog", rule, [silent, told]) == []
    assert source_version(rule)


def test_two_packages_that_register_one_name_are_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [EntryPoint("mine", f"{module}:mine", "ratchet.verifiers") for module in ("one", "two")]
    monkeypatch.setattr(verifiers, "entry_points", lambda group: points)
    with pytest.raises(RatchetError, match=r"'mine'.*one:mine, two:mine"):
        Registry("ratchet.verifiers")["mine"]


def test_a_plug_in_that_cannot_be_loaded_is_named_and_harms_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = EntryPoint("broken", "no_such_module:rule", "ratchet.verifiers")
    fine = EntryPoint("fine", "ratchet.rewards.verifiers.visible_tests:visible_tests", "ratchet.verifiers")
    monkeypatch.setattr(verifiers, "entry_points", lambda group: [broken, fine])
    registry = Registry("ratchet.verifiers")
    assert isinstance(registry["fine"](attempt()), Scored)
    with pytest.raises(RatchetError, match="no_such_module"):
        registry["broken"]


def test_a_verifier_may_be_entered_for_one_process() -> None:
    registry = Registry("ratchet.verifiers")
    registry["house_rule"] = _house_rule
    assert "house_rule" in list(registry)
    del registry["house_rule"]
    assert "house_rule" not in registry


def _house_rule(work: Attempt) -> Scored:
    return Scored(value=1.0)
