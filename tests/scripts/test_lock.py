"""requirements.lock: complete, exact, and free of what belongs to one machine."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
LINES = [line for line in (ROOT / "requirements.lock").read_text().splitlines() if not line.startswith("#")]
LOCKED = {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in LINES)}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ASKED = [Requirement(text) for text in [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dev"]]]


def test_every_line_is_one_exact_version_without_a_local_label() -> None:
    assert [line for line in LINES if not re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*", line)] == []
    assert len(LOCKED) == len(LINES)


@pytest.mark.parametrize("asked", ASKED, ids=str)
def test_what_the_project_asks_for_is_locked_to_a_version_that_fits(asked: Requirement) -> None:
    assert asked.specifier.contains(LOCKED[canonicalize_name(asked.name)], prereleases=True)


def test_what_builds_the_project_is_locked_too() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    for asked in map(Requirement, build):
        assert asked.specifier.contains(LOCKED[canonicalize_name(asked.name)])


def test_no_package_of_one_kind_of_machine_is_locked() -> None:
    assert [name for name in LOCKED if re.match(r"nvidia-|cuda-|triton$", name)] == []
