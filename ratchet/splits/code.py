"""Functions as contamination sees them: the digest of a canonical syntax tree that survives renaming and reformatting.

Covered: Python that parses, every function and method of 24 syntax nodes or more, nested ones included. Bound names
are numbered in the order in which they appear, constant expressions are folded, docstrings and annotations dropped;
free names, attributes, keywords and decorators are kept. Other languages and Python that does not parse are read as
`tokens`.
"""

from __future__ import annotations

import ast
import operator
import re
import textwrap
import warnings
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from ratchet import pyast
from ratchet.contracts.canonical import digest_bytes
from ratchet.splits.braces import brace_blocks

SMALLEST = 24
_FENCE = re.compile(r"^[ \t]*(```+|~~~+)[^\n]*\n(.*?)^[ \t]*\1", re.MULTILINE | re.DOTALL)
_DEFINITION = re.compile(r"^[ \t]*(?:async[ \t]+)?def[ \t]+\w+[ \t]*[(\[]", re.MULTILINE)
_NUMBERED = re.compile(r"^[ \t]*\d+[ \t]*[|:\t\u2192] ?", re.MULTILINE)
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_OPERATIONS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
    ast.Invert: operator.invert,
}


class Function(NamedTuple):
    """A function that was found: its name, the digest of its canonical tree, and its source."""

    name: str
    digest: str
    source: str


class Functions(NamedTuple):
    """The functions of a piece of code, and whether it could be read at all."""

    found: tuple[Function, ...]
    parsed: bool


def blocks(text: str) -> list[str]:
    """Code inside prose: fenced blocks, else definitions with the lines that are indented under them or in braces.

    A gutter of line numbers (`12 | code`) is removed first.
    """
    fenced = [textwrap.dedent(match.group(2)) for match in _FENCE.finditer(text)]
    if fenced or not ("def " in text or "{" in text):
        return fenced
    plain = _NUMBERED.sub("", text)
    found = brace_blocks(plain)
    if "def " not in text:
        return found
    lines = plain.splitlines()
    at = 0
    while at < len(lines):
        if not _DEFINITION.match(lines[at]):
            at += 1
            continue
        indent, start = _indent(lines[at]), at
        at += 1
        while at < len(lines) and (
            not lines[at].strip() or _indent(lines[at]) > indent or lines[at].strip()[0] in ")]"
        ):
            at += 1
        found.append(textwrap.dedent("\n".join(lines[start:at])))
    return found


@lru_cache(maxsize=20_000)
def functions(source: str) -> Functions:
    """Digest every function of `source` that is large enough."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            plain = textwrap.dedent(source)
            tree, lines = pyast.parse(plain), plain.split("\n")
        found = [
            Function(
                node.name,
                digest_bytes(text.encode("utf-8", "surrogatepass")),
                "\n".join(lines[node.lineno - 1 : node.end_lineno]),
            )
            for node in ast.walk(tree)
            if isinstance(node, _Function) and (text := canonical(node)) is not None
        ]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return Functions((), False)
    return Functions(tuple(found), True)


def canonical(function: _Function) -> str | None:
    """The canonical text of a function's tree, or None where it has fewer than `SMALLEST` nodes."""
    writer = _Writer()
    writer.write(function)
    return "".join(writer.parts) if writer.nodes >= SMALLEST else None


class _Writer:
    """Writes a tree as text, numbering bound names by first appearance with the scoping of Python."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.nodes = 0
        self._scopes: list[dict[str, str | None]] = [{}]
        self._numbered = 0

    def write(self, node: Any) -> None:
        if isinstance(node, list):
            self.parts.append("[")
            for item in node:
                self.write(item)
            self.parts.append("]")
        elif isinstance(node, ast.AST):
            self._write_node(node)
        else:
            self.parts.append(f"{node!r},")

    def _write_node(self, node: ast.AST) -> None:
        if isinstance(node, ast.expr_context):
            return
        self.nodes += 1
        node = _folded(node)
        if isinstance(node, ast.Constant):
            self.parts.append(f"{type(node.value).__name__}:{node.value!r},")
        elif isinstance(node, ast.Name):
            self.parts.append(f"{self._name(node.id)},")
        elif isinstance(node, _Scope):
            self._write_scope(node)
        elif isinstance(node, ast.Global | ast.Nonlocal):
            self.parts.append(f"{type(node).__name__}({','.join(map(self._name, node.names))})")
        elif isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            self._scopes.append(dict.fromkeys(_targets([one.target for one in node.generators])))
            # Generators first: what binds a name comes before what uses it, as in the order of evaluation.
            self._fields(node, ["generators", *(field for field in node._fields if field != "generators")])
            self._scopes.pop()
        elif isinstance(node, ast.AnnAssign):
            if node.value is not None:
                self.parts.append("Assign(")
                self.write([node.target])
                self.write(node.value)
                self.parts.append(")")
        else:
            self._fields(node, node._fields)

    def _write_scope(self, node: _Scope) -> None:
        arguments = node.args
        if not isinstance(node, ast.Lambda):
            self.write(node.decorator_list)
        self.write([*arguments.defaults, *arguments.kw_defaults])
        body = [node.body] if isinstance(node, ast.Lambda) else _without_docstring(node.body)
        plain = [*arguments.posonlyargs, *arguments.args]
        starred = [one for one in (arguments.vararg, arguments.kwarg) if one is not None]
        bound = {one.arg for one in [*plain, *arguments.kwonlyargs, *starred]} | _bound(body)
        name = "lambda" if isinstance(node, ast.Lambda) else node.name
        if len(self._scopes) == 1 and not isinstance(node, ast.Lambda):
            self._scopes[0] = {node.name: None}
        self.parts.append(f"{type(node).__name__}({self._name(name)},")
        self._scopes.append(dict.fromkeys(bound))
        for group in (plain, arguments.kwonlyargs, starred):
            self.parts.append("/".join(self._name(one.arg) for one in group) + ";")
        self.parts.append(f"{arguments.vararg is not None}{arguments.kwarg is not None}")
        self.nodes += len(bound)
        self.write(body)
        self._scopes.pop()
        self.parts.append(")")

    def _fields(self, node: ast.AST, names: Any) -> None:
        self.parts.append(f"{type(node).__name__}(")
        for field in names:
            if field in ("type_comment", "type_params", "kind"):
                continue
            value = getattr(node, field, None)
            if isinstance(value, str) and _binds(node, field):
                self.parts.append(f"{self._name(value)},")
            elif field == "body" and isinstance(node, ast.ClassDef):
                self.write(_without_docstring(node.body))
            else:
                self.write(value)
        self.parts.append(")")

    def _name(self, name: str) -> str:
        """The number of a bound name, or a free name as it is."""
        for scope in reversed(self._scopes):
            if name in scope:
                known = scope[name]
                if known is None:
                    known = scope[name] = f"#{self._numbered}"
                    self._numbered += 1
                return known
        return name


def _bound(body: list[Any]) -> set[str]:
    """Names that the statements bind in their own scope; what is declared global or nonlocal is not."""
    names: set[str] = set()
    outer: set[str] = set()
    for node in _own_scope(body):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            names.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.ExceptHandler):
            names.update(filter(None, [node.name]))
        elif isinstance(node, ast.alias):
            # The imported name itself says what the code uses: only a name given by `as` is free to change.
            if node.asname:
                names.add(node.asname)
        elif isinstance(node, ast.MatchAs | ast.MatchStar):
            names.update(filter(None, [node.name]))
        elif isinstance(node, ast.Global | ast.Nonlocal):
            outer.update(node.names)
    return names - outer


def _own_scope(body: list[Any]) -> Iterator[ast.AST]:
    pending = list(body)
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            # Only a walrus inside a comprehension binds outside it.
            pending.extend(one.target for one in ast.walk(node) if isinstance(one, ast.NamedExpr))
        elif not isinstance(node, _Scope | ast.ClassDef):
            pending.extend(ast.iter_child_nodes(node))


def _targets(nodes: list[ast.expr]) -> list[str]:
    names = [one for node in nodes for one in ast.walk(node) if isinstance(one, ast.Name)]
    return [name.id for name in names if isinstance(name.ctx, ast.Store)]


def _binds(node: ast.AST, field: str) -> bool:
    kinds = ast.ExceptHandler | ast.ClassDef | ast.MatchAs | ast.MatchStar
    return (field == "name" and isinstance(node, kinds)) or (field == "asname" and isinstance(node, ast.alias))


def _folded(node: ast.AST) -> ast.AST:
    """The constant that a constant expression stands for, else the node."""
    if isinstance(node, ast.BinOp):
        sides = [_folded(node.left), _folded(node.right)]
    elif isinstance(node, ast.UnaryOp):
        sides = [_folded(node.operand)]
    else:
        return node
    operation = _OPERATIONS.get(type(node.op))
    if operation is None or not all(isinstance(side, ast.Constant) for side in sides):
        return node
    values = [side.value for side in sides if isinstance(side, ast.Constant)]
    # Bounded on purpose: the code is foreign, and "x" * 10**9 must not be evaluated.
    numbers = all(isinstance(value, int | float) and abs(value) < 2**64 for value in values)
    joined = isinstance(node.op, ast.Add) and all(isinstance(value, str) for value in values)
    if not (numbers or joined):
        return node
    try:
        return ast.Constant(operation(*values))
    except (ArithmeticError, TypeError):
        return node


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    return [node for node in body if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))]


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
