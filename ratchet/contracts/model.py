"""The base of every contract model: frozen, closed, described."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Contract(BaseModel):
    """Immutable pydantic model that refuses fields it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())
