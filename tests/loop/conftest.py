"""One small loop per session, before its training and after its decision; every test damages a copy of its own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from loop_world import MANIFEST, judge, prepare, train

from ratchet.loop.context import open_run


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home in which everything before the first training is done; copy it, do not write to it."""
    home = tmp_path_factory.mktemp("prepared")
    with open_run(home, MANIFEST) as run:
        prepare(run)
    return home


@pytest.fixture(scope="session")
def finished(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a decision; copy it, do not write to it."""
    home = tmp_path_factory.mktemp("finished") / "home"
    shutil.copytree(prepared, home)
    with open_run(home, MANIFEST) as run:
        train(run)
        judge(run)
    return home


@pytest.fixture(scope="session")
def both(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home that learned from two grants and was judged; copy it, do not write to it."""
    from partner_world import learned

    home = Path(shutil.copytree(prepared, tmp_path_factory.mktemp("both") / "home"))
    learned(home)
    return home


@pytest.fixture
def ready(prepared: Path, tmp_path: Path) -> Path:
    """A copy of the home before training."""
    return Path(shutil.copytree(prepared, tmp_path / "home"))


@pytest.fixture
def done(finished: Path, tmp_path: Path) -> Path:
    """A copy of the home with a decision."""
    return Path(shutil.copytree(finished, tmp_path / "home"))


@pytest.fixture(scope="module")
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as opened:
        yield opened


@pytest.fixture
def advantages(monkeypatch: pytest.MonkeyPatch) -> list[list[float]]:
    """The advantages of every step of GRPO that the test takes, filled as it takes them."""
    from ratchet.methods.grpo_trainer import EpisodeGRPOTrainer

    seen: list[list[float]] = []
    original = EpisodeGRPOTrainer._generate_and_score_completions

    def watched(self: Any, inputs: Any) -> Any:
        batch = original(self, inputs)
        seen.append(batch["advantages"].tolist())
        return batch

    monkeypatch.setattr(EpisodeGRPOTrainer, "_generate_and_score_completions", watched)
    return seen
