"""What the events of the release ledger name, kept beside them: versions, decisions and evidences, each by its digest.

Reading one back compares it with the digest that names it. A version's id leaves its author and release rules out, so
the event of its registration holds the digest of all of it.
"""

from __future__ import annotations

import json

from sqlalchemy import Connection, select

from ratchet.contracts.canonical import digest as content_digest
from ratchet.errors import IntegrityError, TransitionError
from ratchet.release.canary import CanaryWindow
from ratchet.release.decision import Decision, read_decision
from ratchet.release.qualification import Qualification
from ratchet.release.records import Event, Version
from ratchet.release.schema import decisions, evidences, versions

RESTORE = "restore the ledger from a backup; trust no slot of it"


def load_version(connection: Connection, identity: str) -> Version:
    """The version with that full id. Raises TransitionError where there is none, IntegrityError where it changed."""
    body = connection.execute(select(versions.c.body).where(versions.c.id == identity)).scalar()
    if body is None:
        raise TransitionError(
            f"version {identity[:12]}", rule="it must be in the release ledger", remedy="see `ratchet history`"
        )
    version = Version.model_validate_json(body)
    if version.id != identity:
        raise IntegrityError(f"version {identity[:12]}", seen=version.id[:12], rule="it is another one", remedy=RESTORE)
    return version


def load_decision(connection: Connection, digest: str) -> Decision:
    """The decision of that digest. Raises TransitionError where there is none, IntegrityError where it changed."""
    body = connection.execute(select(decisions.c.body).where(decisions.c.digest == digest)).scalar()
    if body is None:
        raise TransitionError(
            f"decision {digest[:12]}", rule="it must be in the release ledger", remedy="see `ratchet history`"
        )
    decision = read_decision(body.encode(), f"decision {digest} in the release ledger")
    if decision.digest != digest:
        raise IntegrityError(f"decision {digest}", seen=decision.digest, rule="it is another one", remedy=RESTORE)
    return decision


def keep_evidence(connection: Connection, version: Version, evidence: Qualification | CanaryWindow) -> None:
    """Keep the body of an evidence beside the events that name it."""
    body = evidence.to_bytes().decode()
    kind = type(evidence).__name__
    connection.execute(evidences.insert().values(digest=evidence.digest, version=version.id, kind=kind, body=body))


def load_evidence(connection: Connection, digest: str) -> bytes:
    """The body of an evidence, whose stated digest is the one asked for; who reopens it verifies it.

    Raises TransitionError where there is none, IntegrityError where it is another one.
    """
    body = connection.execute(select(evidences.c.body).where(evidences.c.digest == digest).limit(1)).scalar()
    if body is None:
        raise TransitionError(
            f"evidence {digest[:12]}", rule="it must be in the release ledger", remedy="see `ratchet history`"
        )
    seen = json.loads(body)
    stated = content_digest({"kind": seen.get("kind"), "content": seen.get("content")})
    if stated != digest:
        raise IntegrityError(f"evidence {digest[:12]}", seen=stated[:12], rule="it is another one", remedy=RESTORE)
    return body.encode()


def refuse_edited(version: Version, registered: Event) -> None:
    """Raise IntegrityError where a version's author or release rules are not those it was registered with."""
    seen = content_digest(version)
    if registered.content is not None and registered.content != seen:
        raise IntegrityError(
            f"version {version.label}",
            seen=seen[:12],
            rule=f"it was registered as {registered.content[:12]}: author, rules and policy never change",
            remedy=RESTORE,
        )
