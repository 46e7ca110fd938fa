"""Where the store of a home folder is, and that it stays there.

The environment variable `RATCHET_STORE` says it at first use: a folder, or `s3://bucket/prefix`. The home remembers it
in `<home>/store.json`, so that later commands and child processes need no variable. Without one the store is
`<home>/store`. Credentials and the endpoint of S3 are never remembered: they come from the usual AWS variables.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from ratchet.errors import ConflictError, IntegrityError
from ratchet.store.base import Store
from ratchet.store.local import LocalStore

VARIABLE = "RATCHET_STORE"
FILE = "store.json"
LOCAL = "store"
CACHE = Path("cache", "store")


def open_store(home: Path) -> Store:
    """Open the store of a home folder.

    Raises:
        ConflictError: `RATCHET_STORE` names another store than the one that this home was made with.
        IntegrityError: `<home>/store.json` does not parse.
    """
    home = home.resolve()
    place = store_place(home)
    if not place.startswith("s3://"):
        return LocalStore(place)
    from ratchet.store.s3 import S3Store

    return S3Store(place, cache=home / CACHE)


def store_place(home: Path) -> str:
    """Say where the store of a home is, and keep it where it is said for the first time. Raises as `open_store`."""
    wanted = _plain(os.environ.get(VARIABLE, ""))
    known = _known(home)
    if known is None:
        if not wanted or wanted == str(home / LOCAL):
            return str(home / LOCAL)
        LocalStore(home).create(FILE, json.dumps({"store": wanted}).encode())
        known = _known(home)
    if wanted and wanted != known:
        raise ConflictError(
            VARIABLE,
            seen=wanted,
            rule=f"the home {home} keeps its store at {known}",
            remedy=f"unset {VARIABLE}, or give another --home",
        )
    assert known is not None
    return known


def _plain(place: str) -> str:
    place = place.rstrip("/")
    return place if place.startswith("s3://") or not place else str(Path(place).resolve())


def _known(home: Path) -> str | None:
    file = home / FILE
    if file.exists():
        try:
            return str(json.loads(file.read_bytes())["store"])
        except (ValueError, KeyError, TypeError):
            raise IntegrityError(
                str(file), rule='it must hold {"store": "..."}', remedy="write the place of the store into it"
            ) from None
    return str(home / LOCAL) if (home / LOCAL).is_dir() else None
