"""Files beside the store that only their owner may read, such as keys: written whole, once."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def create_private(path: Path, content: bytes) -> None:
    """Write a file of mode 0600 whole, if it is not there; its folder must be."""
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    with contextlib.suppress(FileExistsError):
        os.link(temporary, path)
    os.unlink(temporary)
