"""The store of a home on S3: as `ratchet.store.s3`, with the held-out part sealed or refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ratchet.store.bucket import Patience
from ratchet.store.heldout import Guarded, Vault
from ratchet.store.s3 import USUAL, S3Store


class HomeS3Store(Guarded, S3Store):
    """The store of a home under a prefix of a bucket."""

    def __init__(
        self, place: str, *, vault: Vault | None, cache: Path | None = None, patience: Patience = USUAL
    ) -> None:
        """Open the store; without a vault held-out names are refused. For the rest see `S3Store`."""
        super().__init__(place, cache=cache, patience=patience)
        self.vault = vault

    def __reduce__(self) -> tuple[Any, ...]:
        return (_reopen, (self.place, self.vault, self.cache, self.patience))


def _reopen(place: str, vault: Vault | None, cache: Path, patience: Patience) -> HomeS3Store:
    return HomeS3Store(place, vault=vault, cache=cache, patience=patience)
