"""Flattened attributes: `llm.input_messages.0.message.role` and its like, back to objects and lists.

Instrumentations flatten to the leaf, Phoenix exports keep some levels, data frames put one prefix before all.
`nested` makes one form of them: a dotted key opens a level, a level whose keys are all whole numbers is a list.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def nested(attributes: dict[str, Any], deep: Iterable[str] = ()) -> dict[str, Any]:
    """Return attributes as objects and lists.

    Args:
        attributes: by dotted key. A key that is both a value and the beginning of others stays as it is.
        deep: dotted paths below which the keys of values are dotted too.
    """
    result: dict[str, Any] = {}
    for key in sorted(attributes):
        _put(result, key.split("."), attributes[key], key)
    for path in deep:
        holder, last = _walk(result, path)
        if holder is not None and last in holder:
            holder[last] = _inner(holder[last])
    lists = _lists(result)
    return lists if isinstance(lists, dict) else result


def taken(attributes: dict[str, Any], *prefixes: str) -> dict[str, Any]:
    """Return the attributes that are not, and are not below, any of the dotted prefixes."""
    return {
        key: value
        for key, value in attributes.items()
        if not any(key == prefix or key.startswith(f"{prefix}.") for prefix in prefixes)
    }


def _put(result: dict[str, Any], path: list[str], value: Any, whole: str) -> None:
    holder = result
    for name in path[:-1]:
        inner = holder.setdefault(name, {})
        if not isinstance(inner, dict):
            result[whole] = value
            return
        holder = inner
    if isinstance(value, dict) and isinstance(holder.get(path[-1]), dict):
        holder[path[-1]] |= value
    elif path[-1] in holder:
        result[whole] = value
    else:
        holder[path[-1]] = dict(value) if isinstance(value, dict) else value


def _walk(result: dict[str, Any], path: str) -> tuple[dict[str, Any] | None, str]:
    *names, last = path.split(".")
    holder: Any = result
    for name in names:
        holder = holder.get(name) if isinstance(holder, dict) else None
    return (holder if isinstance(holder, dict) else None), last


def _inner(value: Any) -> Any:
    if isinstance(value, list):
        return [_inner(one) for one in value]
    return nested({key: _inner(one) for key, one in value.items()}) if isinstance(value, dict) else value


def _lists(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    value = {key: _lists(one) for key, one in value.items()}
    if value and all(key.isdecimal() and len(key) < 10 for key in value):
        return [value[key] for key in sorted(value, key=int)]
    return value
