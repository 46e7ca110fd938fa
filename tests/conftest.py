"""Shared by all tests; its presence lets every test import the helper modules of this folder."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

if TYPE_CHECKING:
    from seaweed_server import Seaweed

# A deadline would measure how busy the machine is.
hypothesis.settings.register_profile("ratchet", deadline=None, max_examples=50)
hypothesis.settings.load_profile("ratchet")


@pytest.fixture(scope="session")
def mlflow_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated, empty MLflow database; copy it, do not write to it."""
    from mlflow_server import migrated_database

    return migrated_database(tmp_path_factory.mktemp("mlflow-template"))


@pytest.fixture(scope="session")
def mlflow_url(tmp_path_factory: pytest.TempPathFactory, mlflow_database: Path) -> Iterator[str]:
    """A real MLflow server that all tests share: use an experiment name of your own."""
    from mlflow_server import running_server

    folder = tmp_path_factory.mktemp("mlflow-server")
    shutil.copy(mlflow_database, folder / "mlflow.db")
    with running_server(folder, folder / "mlflow.db") as url:
        yield url


@pytest.fixture(scope="session")
def seaweed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seaweed]:
    """A real S3 server that all tests share: use a prefix of your own, and leave it running."""
    from seaweed_server import running_seaweed

    with running_seaweed(tmp_path_factory.mktemp("seaweed")) as server:
        yield server


@pytest.fixture
def s3_place(seaweed: Seaweed, monkeypatch: pytest.MonkeyPatch) -> str:
    """A prefix of this test's own, with the variables set by which a store finds it."""
    for name, value in seaweed.environment().items():
        monkeypatch.setenv(name, value)
    return seaweed.fresh_place()
