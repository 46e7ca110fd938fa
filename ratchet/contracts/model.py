"""The base of every contract model: frozen, closed, described."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import PydanticSerializationError, to_json

from ratchet.contracts.canonical import canonical_json


class Contract(BaseModel):
    """Immutable pydantic model that refuses fields it does not know.

    NaN and infinities stay what they are when it is dumped, so that they are refused as JSON; pydantic's own way is to
    make them null wherever a field takes any value.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=(), ser_json_inf_nan="constants")


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
        # Without `iter`, `dict` looks for a method `keys`, and to miss an attribute is slow.
        checked = type(value).model_validate(dict(iter(value)), strict=True)
    except ValidationError as error:
        wrong = (
            f"{'.'.join(map(str, item['loc'])) or 'it'}: {item['msg']}"
            for item in error.errors(include_input=False, include_url=False)
        )
        raise ValueError(f"{kind.__name__} is not what its contract says: {'; '.join(wrong)}") from None
    try:
        if not _is_short(checked):
            canonical_json(checked).encode()
    except ValueError as error:
        raise ValueError(f"{kind.__name__} cannot be written as JSON: {type(error).__name__}") from None
    return checked


def _is_short(checked: Contract) -> bool:
    """Whether pydantic's own writer, in a fiftieth of the time, proves that it can be written as canonical JSON.

    That writer takes two things that are refused: numbers of more than 4,300 digits, so nothing longer is proven, and
    NaN and infinities, so nothing with their names in it is.
    """
    try:
        text = to_json(checked)
    except PydanticSerializationError:
        return False
    return len(text) < 4300 and b"NaN" not in text and b"Infinity" not in text
