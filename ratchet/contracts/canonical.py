"""Canonical JSON and content digests: the identity of everything in Ratchet.

`digest(x)` is the SHA-256 of the canonical JSON of `x`: keys sorted, no spaces, UTF-8, NaN and infinities refused.
Pydantic models, enums, paths and datetimes are reduced to plain JSON first.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_jsonable_python


def plain(value: Any) -> Any:
    """Reduce `value` to plain JSON types."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    return to_jsonable_python(value)


def canonical_json(value: Any) -> str:
    """Return the one JSON text of `value`. Raises ValueError on NaN or infinity, which have none."""
    return json.dumps(plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest(value: Any) -> str:
    """Return the SHA-256 (64 hex digits) of the canonical JSON of `value`."""
    return digest_bytes(canonical_json(value).encode("utf-8", "surrogatepass"))


def digest_bytes(data: bytes) -> str:
    """Return the SHA-256 (64 hex digits) of raw bytes."""
    return hashlib.sha256(data).hexdigest()
