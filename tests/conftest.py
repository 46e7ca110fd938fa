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

    from ratchet.rollouts.vllm_server import VllmServer

# A deadline would measure how busy the machine is. `make test` says the same of the same code every time; new examples
# are looked for by `make fuzz`.
hypothesis.settings.register_profile("repeatable", deadline=None, max_examples=50, derandomize=True)
hypothesis.settings.register_profile("explore", deadline=None, max_examples=500)
hypothesis.settings.load_profile("repeatable")


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


@pytest.fixture(scope="session")
def vllm_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    """A real vLLM server that all tests share; a test may kill it, for it comes back."""
    from vllm_world import running_vllm

    with running_vllm(tmp_path_factory.mktemp("vllm")) as server:
        yield server


@pytest.fixture
def s3_place(seaweed: Seaweed, monkeypatch: pytest.MonkeyPatch) -> str:
    """A prefix of this test's own, with the variables set by which a store finds it."""
    for name, value in seaweed.environment().items():
        monkeypatch.setenv(name, value)
    return seaweed.fresh_place()


@pytest.fixture(scope="session")
def versioned_bucket(seaweed: Seaweed) -> str:
    """A bucket that keeps versions, for good: what is deleted while versions are suspended leaves markers behind."""
    from s3fs import S3FileSystem
    from seaweed_server import KEY, SECRET

    files = S3FileSystem(key=KEY, secret=SECRET, endpoint_url=seaweed.url, skip_instance_cache=True)
    files.call_s3("create_bucket", Bucket="versioned")
    files.call_s3("put_bucket_versioning", Bucket="versioned", VersioningConfiguration={"Status": "Enabled"})
    return "versioned"


@pytest.fixture
def s3_versioned_place(s3_place: str, versioned_bucket: str) -> str:
    """The like in the bucket that keeps versions."""
    _, _, prefix = s3_place.rpartition("/")
    return f"s3://{versioned_bucket}/{prefix}"
