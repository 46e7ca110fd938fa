"""Evidence: the doors between the stages.

An evidence (an authorised dataset, a split lock, a contamination certificate, a scorecard, a decision) can be made only
by the stage that owns it, carries the digests of its inputs, and is the only thing the next stage accepts. Constructing
one directly is refused; `issue` and `reopen` are called only inside the owning package (`tests/test_architecture.py`
walks the tree for it). Stored evidence is verified by digest before it opens anything.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextvars import ContextVar
from functools import cached_property
from typing import Any, ClassVar, Self

from pydantic import ValidationError

from ratchet.contracts.canonical import canonical_json, digest
from ratchet.contracts.model import Contract
from ratchet.errors import IntegrityError

_issuing: ContextVar[type | None] = ContextVar("issuing", default=None)


class Evidence(Contract):
    """Base of every evidence type. Subclasses name their owner: `class SplitLock(Evidence, owner="ratchet.splits")`."""

    owner: ClassVar[str] = ""

    def __init_subclass__(cls, owner: str = "", **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.owner = owner or cls.owner

    def __init__(self, **fields: Any) -> None:
        if _issuing.get() is not type(self):
            raise IntegrityError(
                type(self).__name__,
                rule=f"it can be made only by {self.owner}, from inputs that were checked there",
                remedy="call the stage's public function instead of the constructor",
            )
        super().__init__(**fields)

    @classmethod
    def issue(cls, **fields: Any) -> Self:
        """Make the evidence. Only the owning package calls this."""
        token = _issuing.set(cls)
        try:
            return cls(**fields)
        finally:
            _issuing.reset(token)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Copy unchanged. Raises IntegrityError for an update: it would go round the stage and keep the old digest."""
        if update:
            raise IntegrityError(
                type(self).__name__,
                seen=sorted(update),
                rule=f"it is not edited; {self.owner} makes it from inputs that were checked there",
                remedy="run the stage again with the changed inputs",
            )
        return super().model_copy(deep=deep)

    def copy(self, **options: Any) -> Self:
        """Copy unchanged, as `model_copy` does. Raises IntegrityError for any option."""
        return self.model_copy(update=options)

    @classmethod
    def model_construct(cls, _fields_set: set[str] | None = None, **values: Any) -> Self:  # type: ignore[override]
        """Refused: it would make evidence from inputs that nobody checked. Raises IntegrityError."""
        raise IntegrityError(
            cls.__name__,
            rule=f"it can be made only by {cls.owner}, from inputs that were checked there",
            remedy="call the stage's public function instead of the constructor",
        )

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the kind and the content."""
        return digest({"kind": type(self).__name__, "content": self.model_dump(mode="json")})

    def to_bytes(self) -> bytes:
        """Serialise with kind and digest, as `reopen` reads it."""
        body = {"kind": type(self).__name__, "digest": self.digest, "content": self.model_dump(mode="json")}
        return canonical_json(body).encode()

    @classmethod
    def reopen(cls, data: bytes, source: str) -> Self:
        """Read evidence back and verify it. Only the owning package calls this.

        Args:
            data: what `to_bytes` returned.
            source: where it came from, for the message.

        Raises:
            IntegrityError: the kind is another one, the content does not parse, or the digest does not match.
        """
        remedy = "restore the file from its origin or run the stage again; a changed evidence opens nothing"
        try:
            body = json.loads(data)
            kind, stated, content = body["kind"], body["digest"], body["content"]
        except (ValueError, KeyError, TypeError) as error:
            raise IntegrityError(
                source, rule=f"it must hold one stored {cls.__name__} ({error})", remedy=remedy
            ) from None
        if kind != cls.__name__:
            raise IntegrityError(source, seen=kind, rule=f"a {cls.__name__} is needed here", remedy=remedy)
        if digest({"kind": kind, "content": content}) != stated:
            raise IntegrityError(source, seen=stated, rule="the digest must match the content", remedy=remedy)
        token = _issuing.set(cls)
        try:
            evidence = cls(**content)
        except ValidationError as error:
            raise IntegrityError(source, rule=f"it must be a valid {cls.__name__} ({error})", remedy=remedy) from None
        finally:
            _issuing.reset(token)
        if evidence.digest != stated:
            raise IntegrityError(source, seen=evidence.digest, rule=f"it must read back as {stated}", remedy=remedy)
        return evidence
