"""The identity of a rule is its code: what it does may not change under a digest that stays.

`source_version` digests a function's syntax tree together with every function, class and constant of its own
distribution and of Ratchet that it uses, so that comments, docstrings, descriptions, formatting and unrelated rules do
not count, and a threshold or a helper two calls away does. The contracts and errors are left out, because they carry no
rule; so are libraries, and what a module keeps while it runs: lists, dictionaries, sets and None under a name in small
letters. A rule's tables are constants, in capitals.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable
from functools import lru_cache
from types import FunctionType, ModuleType
from typing import Any

from pydantic import BaseModel

from ratchet.contracts.canonical import digest
from ratchet.errors import RatchetError

_CONTRACTS = "ratchet.contracts."


def source_version(rule: Callable[..., Any]) -> str:
    """Return the SHA-256 of what `rule` does.

    Raises:
        RatchetError: the rule is a lambda, a closure, a partial or was typed in: its source cannot be read alone.
    """
    function = inspect.unwrap(rule)
    name = getattr(function, "__qualname__", repr(function))
    plain = isinstance(function, FunctionType) and not function.__closure__ and "<" not in name
    if not plain:
        raise RatchetError(
            f"rule {name}",
            rule="it must be a plain function of a module, because its source is its identity",
            remedy="define it with `def` at the top of a file",
        )
    found: dict[str, str] = {}
    _collect(function, frozenset({function.__module__.split(".")[0], __name__.split(".")[0]}), found)
    return digest(found)


def _collect(item: FunctionType | type, packages: frozenset[str], found: dict[str, str]) -> None:
    key = f"{item.__module__}.{item.__qualname__}"
    if key in found:
        return
    found[key], names, attributes = _read(item)
    namespace = vars(inspect.getmodule(item))
    for name in sorted(names & namespace.keys()):
        used = namespace[name]
        if isinstance(used, ModuleType):
            if used.__name__.split(".")[0] in packages:
                for attribute in sorted(attributes & vars(used).keys()):
                    _use(f"{used.__name__}.{attribute}", vars(used)[attribute], packages, found)
        else:
            _use(f"{item.__module__}.{name}", used, packages, found)


@lru_cache(maxsize=4096)
def _read(item: FunctionType | type) -> tuple[str, frozenset[str], frozenset[str]]:
    """Return the text of a rule without words for people, and the names and attributes in it."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(item)))
    except (OSError, SyntaxError) as error:
        raise RatchetError(
            f"rule {item.__module__}.{item.__qualname__}",
            rule=f"its source must be readable ({error})",
            remedy="define it in a file",
        ) from None
    names = frozenset(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
    attributes = frozenset(node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    return ast.unparse(_WithoutWords().visit(tree)), names, attributes


def _use(key: str, used: Any, packages: frozenset[str], found: dict[str, str]) -> None:
    used = inspect.unwrap(used) if callable(used) else used
    if isinstance(used, FunctionType | type):
        if used.__module__.split(".")[0] in packages and not _without_rule(used):
            _collect(used, packages, found)
    elif not _is_state(key, used) and (constant := _constant(used)) is not None:
        found[key] = constant


def _is_state(key: str, value: Any) -> bool:
    """Whether this is no constant but what a module keeps while it runs, such as idle threads or a memory."""
    changes = value is None or isinstance(value, list | dict | set)
    return changes and not key.rpartition(".")[2].isupper()


def _without_rule(used: FunctionType | type) -> bool:
    """Whether this is a contract of the core or an error, which other rules read or raise."""
    if not isinstance(used, type):
        return False
    return issubclass(used, BaseException) or (issubclass(used, BaseModel) and used.__module__.startswith(_CONTRACTS))


def _constant(value: Any) -> str | None:
    """Return one text per constant value, or None for what is no constant (a type alias, a registry of functions)."""
    if isinstance(value, re.Pattern):
        return f"/{value.pattern}/{value.flags}"
    if isinstance(value, str | bytes | int | float | None):
        return repr(value)
    if not isinstance(value, tuple | list | set | frozenset | dict):
        return None
    items = [item for pair in value.items() for item in pair] if isinstance(value, dict) else list(value)
    parts = [part for part in map(_constant, items) if part is not None]
    if len(parts) < len(items):
        return None
    ordered = sorted(parts) if isinstance(value, set | frozenset) else parts
    return f"{type(value).__name__}({', '.join(ordered)})"


class _WithoutWords(ast.NodeTransformer):
    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and ast.get_docstring(node):
            node.body = node.body[1:] or [ast.Pass()]
        if isinstance(node, ast.Call):
            node.keywords = [keyword for keyword in node.keywords if keyword.arg != "description"]
        return node
