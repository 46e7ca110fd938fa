"""Writes docs/manifest.md: every field of the experiment manifest, from the models that validate it.

Run with `python scripts/document_manifest.py` after a field was changed.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from ratchet.contracts.manifest import Manifest

SLUG = r"^[a-z][a-z0-9_-]{0,62}$"
BELOW = "see below"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "manifest.md"
INTRODUCTION = """\
# The experiment manifest

One YAML file is the whole contract of an engagement: what the agent is for, which data may train it, how it is
rewarded, trained and compared, and who may release it. [experiments/repair.yaml](../experiments/repair.yaml) is the
reference.

- Every mistake is told at once, each with its field, the value seen and the rule. A field not listed here is a mistake.
- The manifest is digested, and every artifact of the loop carries the digest. Another value makes another run: nothing
  of an earlier one is overwritten, and a run of the same manifest finds its work done.
- `fast` at the top of the file holds other values for `ratchet run --fast`. `--set seed=7` and
  `--set methods.sft.settings.epochs=2` give one for a single run; a list of named parts is addressed by name.

Fields without a default are required. This page is written by `scripts/document_manifest.py`.
"""


def page() -> str:
    """The page, as it should stand in docs/manifest.md."""
    return INTRODUCTION + "".join(_section(title, model) for title, model in _models(Manifest, ""))


def _models(model: type[BaseModel], place: str) -> Iterator[tuple[str, type[BaseModel]]]:
    """The model and those of its fields, as they stand in the file, each with where it stands."""
    yield place or "the file", model
    for name, field in model.model_fields.items():
        for inner, many in _inner(field.annotation):
            yield from _models(inner, f"{place}.{name}".lstrip(".") + ("[]" if many else ""))


def _inner(annotation: Any, many: bool = False) -> Iterator[tuple[type[BaseModel], bool]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation, many
    for argument in get_args(annotation):
        yield from _inner(argument, many or get_origin(annotation) is tuple)


def _section(title: str, model: type[BaseModel]) -> str:
    heading = f"`{title}`" if title != "the file" else "The file"
    says = " ".join((model.__doc__ or "").split())
    lines = [f"\n## {heading}", says, "", "| field | type | default | what it is |", "|---|---|---|---|"]
    for name, field in model.model_fields.items():
        said = (field.description or "").replace("|", "\\|")
        lines.append(f"| `{name}` | {_type(field.annotation, field.metadata)} | {_default(field)} | {said} |")
    return "\n".join(lines) + "\n"


def _type(annotation: Any, metadata: list[Any]) -> str:
    """A type in words, with the limits that are checked."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type(arguments[0], [*metadata, *(one for item in arguments[1:] for one in _constraints(item))])
    limits = ", ".join(filter(None, map(_limit, metadata)))
    if origin is Literal:
        said = " / ".join(f"`{value}`" for value in arguments)
    elif origin in (Union, types.UnionType):
        said = " or ".join("nothing" if one is type(None) else _type(one, []) for one in arguments)
    elif origin is tuple:
        of = _type(arguments[0], [])
        said = "list" + (f", {of}" if of == BELOW else f" of {of}")
    elif origin is dict:
        said = "mapping"
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        said = BELOW
    else:
        said = {"str": "text", "int": "whole number", "float": "number", "bool": "yes or no"}[annotation.__name__]
    return f"{said}, {limits}" if limits else said


def _constraints(item: Any) -> list[Any]:
    return list(item.metadata) if isinstance(item, FieldInfo) else [item]


def _limit(constraint: Any) -> str:
    for attribute, words in (
        ("ge", "at least {}"),
        ("gt", "above {}"),
        ("le", "at most {}"),
        ("lt", "below {}"),
        ("min_length", "not shorter than {}"),
        ("pattern", "matching `{}`"),
    ):
        value = getattr(constraint, attribute, None)
        if value == SLUG:
            return "a slug: a-z, 0-9, _ and -"
        if attribute == "min_length" and value == 1:
            return "not empty"
        if value is not None:
            return words.format(str(value).replace("|", "\\|"))
    return ""


def _default(field: FieldInfo) -> str:
    if field.default_factory is not None:
        return "empty" if field.default_factory in (dict, list, tuple) else "the defaults below"
    if field.default is PydanticUndefined:
        return "–"
    if field.default is None:
        return "nothing"
    if isinstance(field.default, tuple):
        return ", ".join(f"`{value}`" for value in field.default) or "empty"
    return f"`{str(field.default).lower() if isinstance(field.default, bool) else field.default}`"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE}")
