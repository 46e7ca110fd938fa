"""Where the store of a home folder is, and that it stays there.

The environment variable `RATCHET_STORE` says it at first use: a folder, or `s3://bucket/prefix`. Once the store has
proved that it keeps its promises, the home remembers it in `<home>/store.json`, so that later commands and child
processes need no variable. Without one the store is `<home>/store`. Credentials and the endpoint of S3 are never
remembered: they come from the usual AWS variables.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from ratchet.errors import ConflictError, IntegrityError
from ratchet.store.base import Store
from ratchet.store.heldout import KEY, HomeLocalStore, Vault
from ratchet.store.local import LocalStore

VARIABLE = "RATCHET_STORE"
FILE = "store.json"
LOCAL = "store"
CACHE = Path("cache", "store")


def open_store(home: Path, *, remember: bool = True, training: bool = False) -> Store:
    """Open the store of a home folder.

    Args:
        home: the home folder.
        remember: keep the place for later, where it is named for the first time; a mere look at it does not.
        training: the store is for training code, and refuses what is held out; see `ratchet.store.heldout`.

    Raises:
        ConflictError: `RATCHET_STORE` names another store than the one that this home was made with.
        StoreError: a store that is used for the first time cannot be reached or does not keep its promises.
        IntegrityError: `<home>/store.json` does not parse.
    """
    home = home.resolve()
    wanted, known = _plain(os.environ.get(VARIABLE, "")), _known(home)
    place = known or wanted or str(home / LOCAL)
    if wanted not in ("", place):
        raise ConflictError(
            VARIABLE,
            seen=wanted,
            rule=f"the home {home} keeps its store at {place}",
            remedy=f"unset {VARIABLE}, or give another --home",
        )
    store = _open(place, home, None if training else Vault(home / KEY))
    if remember and known is None and place != str(home / LOCAL):
        # A place that is mistyped or unfit is not remembered.
        store.prove()
        if not LocalStore(home).create(FILE, json.dumps({"store": place}).encode()):
            return open_store(home, training=training)
    return store


def _open(place: str, home: Path, vault: Vault | None) -> Store:
    if not place.startswith("s3://"):
        return HomeLocalStore(place, vault=vault)
    from ratchet.store.guarded_s3 import HomeS3Store

    return HomeS3Store(place, cache=home / CACHE, vault=vault)


def _plain(place: str) -> str:
    place = place.rstrip("/")
    return place if place.startswith("s3://") or not place else str(Path(place).resolve())


def _known(home: Path) -> str | None:
    """The place that the home remembers; a local store is known by what is in it."""
    file = home / FILE
    if file.exists():
        try:
            return str(json.loads(file.read_bytes())["store"])
        except (ValueError, KeyError, TypeError):
            raise IntegrityError(
                str(file), rule='it must hold {"store": "..."}', remedy="write the place of the store into it"
            ) from None
    local = home / LOCAL
    return str(local) if local.is_dir() and any(local.iterdir()) else None
