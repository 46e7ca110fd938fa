"""A home whose releases MLflow shows: made once, because it takes seconds; every test has a copy."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from registry_world import Show

from ratchet.release.records import Version


@pytest.fixture
def fresh(tmp_path: Path, mlflow_database: Path) -> Show:
    shutil.copy(mlflow_database, tmp_path / "mlflow.db")
    return Show(tmp_path, f"sqlite:///{tmp_path / 'mlflow.db'}")


@pytest.fixture(scope="session")
def projected(tmp_path_factory: pytest.TempPathFactory, mlflow_database: Path) -> Path:
    """A home with two versions, the second in production, projected; made once, because it takes seconds."""
    home = tmp_path_factory.mktemp("projected")
    shutil.copy(mlflow_database, home / "mlflow.db")
    show = Show(home, f"sqlite:///{home / 'mlflow.db'}")
    first, second = show.world.produce("first"), show.world.produce("second")
    assert show.project(show.world.baseline, first.policy, second.policy) == []
    return home


@pytest.fixture
def show(tmp_path: Path, projected: Path) -> Show:
    home = tmp_path / "home"
    shutil.copytree(projected, home)
    return Show(home, f"sqlite:///{home / 'mlflow.db'}")


@pytest.fixture
def two(show: Show) -> tuple[Version, Version]:
    return show.world.ledger.find("first"), show.world.ledger.find("second")
