"""The base of every contract model: frozen, closed, described."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from ratchet.contracts.canonical import canonical_json


class Contract(BaseModel):
    """Immutable pydantic model that refuses fields it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


C = TypeVar("C", bound=Contract)


def revalidated(kind: type[C], value: object) -> C:
    """Return what foreign code handed over as a `kind`, checked anew.

    An instance proves nothing: it can have been made without validation, with any value in any field, a NaN among
    them. Nothing is converted, and what is returned can be written as canonical JSON in UTF-8.

    Raises:
        TypeError: it is something else.
        ValueError: a field is missing, unknown, of another type or out of range, or cannot be written.
    """
    if not isinstance(value, kind):
        raise TypeError(f"{type(value).__name__} is no {kind.__name__}")
    try:
        checked = type(value).model_validate(dict(value), strict=True)
    except ValidationError as error:
        wrong = (
            f"{'.'.join(map(str, item['loc'])) or 'it'}: {item['msg']}"
            for item in error.errors(include_input=False, include_url=False)
        )
        raise ValueError(f"{kind.__name__} is not what its contract says: {'; '.join(wrong)}") from None
    try:
        canonical_json(checked).encode()
    except ValueError as error:
        raise ValueError(f"{kind.__name__} cannot be written as JSON: {type(error).__name__}") from None
    return checked
