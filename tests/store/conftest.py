"""A store on each backend: a local folder, and a prefix of a real S3 server."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.store import Store


@pytest.fixture(params=["local", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a fresh store is; `Store(place)` opens it in any process."""
    return str(tmp_path / "store") if request.param == "local" else request.getfixturevalue("s3_place")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of the copies and locks of S3 stores that name none."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def store(place: str, cache: Path) -> Store:
    """A fresh store."""
    return Store(place)
