"""Python source as an ordered labelled tree in which formatting, docstrings and consistent renames leave no trace.

A node's label is its type with everything that is not a node: operators, constants with their type, names. Every list
that is not empty (a body, arguments) is a node of its own, so that statements cannot change places with an `else`.
Names that a module-level function binds itself are mapped to the original's where the mapping is one-to-one; the names
of module-level functions, attributes, imports and keywords are interfaces, and a change of them is a change.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, TypeVar

from ratchet import pyast

MAX_DEPTH = 120
"""Levels of syntax nodes that are read. What walks a tree takes up to six frames a level (`distance` does, with a list
at every level), and a text that exhausted the interpreter's thousand would be an error of the reader, no finding about
the text."""

Node = TypeVar("Node", bound=ast.AST)
_Definition = ast.FunctionDef | ast.AsyncFunctionDef
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class Tree:
    """A node with its subtree: `size` counts nodes, `key` is equal exactly where two subtrees are."""

    __slots__ = ("children", "key", "label", "size")

    def __init__(self, label: str, children: tuple[Tree, ...] = ()) -> None:
        """Make a node over finished children."""
        self.label, self.children = label, children
        self.size: int = 1 + sum(child.size for child in children)
        self.key: int = hash((label, *(child.key for child in children)))


def parse(source: str) -> ast.Module | None:
    """Parse a module, or return None where the text is no Python that can be handled. Do not change the result.

    That is: no Python, or syntax nodes nested deeper than `MAX_DEPTH`.
    """
    return _parsed(source)[0]


def nodes(source: str, *kinds: type[Node]) -> list[Node]:
    """Return the nodes of these very types, level by level within each type; none where the text does not parse."""
    by_kind = _parsed(source)[1]
    return [node for kind in kinds for node in by_kind.get(kind, ())]


_Parsed = tuple[ast.Module | None, dict[type[ast.AST], list[Any]]]
# Without children, and the same everywhere: nobody asks for them alone.
_MARKS = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)


@lru_cache(maxsize=4096)
def _parsed(source: str) -> _Parsed:
    """The module and its nodes by type: many rules read the same text, and walking it costs more than parsing it."""
    try:
        module = pyast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None, {}
    found: dict[type[ast.AST], list[Any]] = {}
    level: list[ast.AST] = [module]
    for _ in range(MAX_DEPTH):
        for node in level:
            found.setdefault(type(node), []).append(node)
        level = [child for node in level for child in _children(node)]
        if not level:
            return module, found
    return None, {}


def _children(node: ast.AST) -> list[ast.AST]:
    """As `ast.iter_child_nodes`, without the marks and without a generator for every node."""
    found: list[ast.AST] = []
    for value in node.__dict__.values():
        if isinstance(value, list):
            found += [item for item in value if isinstance(item, ast.AST)]
        elif isinstance(value, ast.AST) and not isinstance(value, _MARKS):
            found.append(value)
    return found


def tree(node: ast.AST, names: Mapping[str, Mapping[str, str]] | None = None) -> Tree:
    """Return the tree of a parsed module.

    Args:
        node: the module.
        names: per module-level function, what its own names are called in the tree; see `renames`.
    """
    return _node(node, {}, names or {})


def _node(node: ast.AST, mapping: Mapping[str, str], scopes: Mapping[str, Mapping[str, str]]) -> Tree:
    label, children = [type(node).__name__], []
    documented = isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None
    for field, value in ast.iter_fields(node):
        absent = value is None and not isinstance(node, ast.Constant)
        if absent or field in ("ctx", "type_comment", "type_ignores", "kind"):
            continue
        if isinstance(value, list):
            items = value[1:] if documented and field == "body" else value
            if items and all(isinstance(item, str) for item in items):
                label.append(f"{field}={[mapping.get(item, item) for item in items]}")
            elif items:
                children.append(Tree(field, tuple(_item(item, mapping, scopes) for item in items)))
        elif isinstance(value, ast.operator | ast.unaryop | ast.boolop):
            label.append(type(value).__name__)
        elif isinstance(value, ast.AST):
            children.append(_node(value, mapping, scopes))
        elif isinstance(node, ast.Constant):
            label.append(f"{type(value).__name__} {value!r}")
        else:
            own = isinstance(node, ast.Name | ast.arg | ast.ExceptHandler | _Definition)
            label.append(f"{field}={mapping.get(value, value) if own else value}")
    return Tree(" ".join(label), tuple(children))


def _item(item: ast.AST | None, mapping: Mapping[str, str], scopes: Mapping[str, Mapping[str, str]]) -> Tree:
    if item is None:
        return Tree("None")
    if isinstance(item, _Definition) and not mapping and item.name in scopes:
        return _node(item, scopes[item.name], {})
    return _node(item, mapping, scopes)


def renames(original: ast.Module, final: ast.Module) -> Iterator[dict[str, dict[str, str]]]:
    """Yield candidate mappings from the final's own names to the original's, per module-level function.

    The first pairs the names that only one side has, in the order of their first binding; the second pairs all own
    names in that order, which covers names that changed places. A mapping that changes nothing is left out.
    """
    before = {node.name: node for node in original.body if isinstance(node, _Definition)}
    pairs = [(before[node.name], node) for node in final.body if isinstance(node, _Definition) and node.name in before]
    only: dict[str, dict[str, str]] = {}
    every: dict[str, dict[str, str]] = {}
    for old, new in pairs:
        old_nodes, new_nodes = _in_order(old), _in_order(new)
        old_names, new_names = _own_names(old_nodes), _own_names(new_nodes)
        new_mentions, old_mentions = _mentions(new_nodes, new_names), _mentions(old_nodes, old_names)
        gone = [name for name in old_names if name not in new_mentions]
        come = [name for name in new_names if name not in old_mentions]
        if come and gone:
            only[new.name] = dict(zip(come, gone, strict=False))
        free = new_mentions - set(new_names)
        if len(old_names) == len(new_names) and old_names != new_names and not free & set(old_names):
            every[new.name] = dict(zip(new_names, old_names, strict=True))
    if only:
        yield only
    if every:
        yield {**only, **every}


def _own_names(function: list[ast.AST]) -> list[str]:
    """Names that a function or a function inside it binds, in the order of their first binding."""
    found: dict[str, None] = {}
    outside: set[str] = set()
    for node in function[1:]:
        if isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Store):
                found[node.id] = None
        elif isinstance(node, ast.arg):
            found[node.arg] = None
        elif isinstance(node, _Definition | ast.ExceptHandler):
            if node.name:
                found[node.name] = None
        elif isinstance(node, ast.Global):
            outside.update(node.names)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            outside.update((alias.asname or alias.name).split(".")[0] for alias in node.names)
    return [name for name in found if name not in outside]


def _mentions(function: list[ast.AST], own: list[str]) -> set[str]:
    return {*own, *(node.id for node in function if isinstance(node, ast.Name))}


def _in_order(node: ast.AST) -> list[ast.AST]:
    """The node and everything below it, in the order of the text."""
    found, pending = [], [node]
    while pending:
        one = pending.pop()
        found.append(one)
        pending += reversed(_children(one))
    return found
