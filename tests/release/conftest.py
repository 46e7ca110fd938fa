"""A released version with all its evidence, made once, and copies of its home to be changed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from evidence_world import Made, make


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """The home; nobody changes it."""
    return make(tmp_path_factory.mktemp("evidence") / "home", tmp_path_factory.mktemp("keys"))


@pytest.fixture
def home(made: Made, tmp_path: Path) -> Path:
    """A copy of the home, to be changed."""
    return Path(shutil.copytree(made.home, tmp_path / "home"))
