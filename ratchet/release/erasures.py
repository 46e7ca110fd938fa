"""Which files of the evidence were erased lawfully: what erasure certificates say, by the SHA-256 of a file's name."""

from __future__ import annotations

import json
from typing import Any

from ratchet.contracts.canonical import digest, digest_bytes
from ratchet.errors import IntegrityError
from ratchet.store import Store

REMEDY = "restore it from its origin; what was released on it stands on nothing until then"


def certificates(store: Store, tenant: str) -> list[str]:
    """Places of the certificates of a tenant's erasures."""
    return [name for name in store.names(f"{tenant}/erasures") if "/certificates/" in name and name.endswith(".json")]


def erased(store: Store, tenant: str) -> dict[str, str]:
    """What was erased: SHA-256 of the name, and when and by which certificate in words.

    Raises:
        IntegrityError: an erasure certificate was changed.
    """
    found = {}
    for name in certificates(store, tenant):
        content = stated(store.read(name), name)[1]
        for one in content["objects"]:
            found[one["name_sha256"]] = f"erased at {content['at'][:19]}, grant {content['grant_id']!r}, {name}"
    return found


def name_key(name: str) -> str:
    """How an erasure certificate knows a name."""
    return digest_bytes(name.encode("utf-8", "surrogatepass"))


def stated(data: bytes, source: str) -> tuple[str, dict[str, Any]]:
    """Digest and content of a stored evidence of a later stage, after computing the digest again.

    Raises:
        IntegrityError: it is none, or was changed.
    """
    try:
        body = json.loads(data)
        content: dict[str, Any] = body["content"]
        seen, said = digest({"kind": body["kind"], "content": content}), str(body["digest"])
    except (ValueError, KeyError, TypeError) as error:
        raise IntegrityError(source, rule=f"it must hold one stored evidence ({error})", remedy=REMEDY) from None
    if seen != said:
        raise IntegrityError(source, seen=said, rule=f"its digest must be {seen}", remedy=REMEDY)
    return said, content
