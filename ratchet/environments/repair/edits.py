"""Single edits of a function's AST: how bugs are injected and what an IDE-like quick fix offers.

Every rule turns one node into another. A bug is one edit of a correct function; the quick fixes of a task are edits
of the buggy one, and the true fix is whichever of them restores the original text. Bugs and fixes share the table,
because the inverse of a rule is in it too. The operators follow mutation testing (Offutt et al. 1996,
doi:10.1145/227607.227610).
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

from ratchet.pyast import parse

Transform = Callable[[ast.AST], ast.AST | None]


class Rule(NamedTuple):
    """A named edit: the segment of the bugs it injects, and the transform.

    `kinds` are the node types it may fit. A transform gets a shallow copy of a node, may set fields of that copy
    (never change what they hold), and returns it or another node; None where the rule does not fit.
    """

    name: str
    segment: str
    transform: Transform
    kinds: tuple[type[ast.AST], ...]


class Edit(NamedTuple):
    """One rule at one node (by its index in `ast.walk` of the function)."""

    rule: str
    segment: str
    site: int
    place: str


SEGMENTS = ("comparison", "arithmetic", "constant", "boolean", "call", "slice")
PLACES = ("test", "loop", "return", "index", "call", "assign", "other")


def _compare(old: type[ast.cmpop], new: type[ast.cmpop]) -> Transform:
    def transform(node: ast.AST) -> ast.AST | None:
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) is old:
            node.ops = [new()]
            return node
        return None

    return transform


def _binary(old: type[ast.operator], new: type[ast.operator]) -> Transform:
    def transform(node: ast.AST) -> ast.AST | None:
        if isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) is old:
            node.op = new()
            return node
        return None

    return transform


def _boolean(old: type[ast.boolop], new: type[ast.boolop]) -> Transform:
    def transform(node: ast.AST) -> ast.AST | None:
        if isinstance(node, ast.BoolOp) and type(node.op) is old:
            node.op = new()
            return node
        return None

    return transform


def _add(step: int) -> Transform:
    def transform(node: ast.AST) -> ast.AST | None:
        if isinstance(node, ast.Constant) and type(node.value) is int and abs(node.value) < 1000:
            if node.value + step < 0:
                return ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=-(node.value + step)))
            return ast.Constant(value=node.value + step)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and step > 0:
            operand = node.operand
            if isinstance(operand, ast.Constant) and type(operand.value) is int and operand.value == 1:
                return ast.Constant(value=0)
        return None

    return transform


def _flip(node: ast.AST) -> ast.AST | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        return ast.Constant(value=not node.value)
    return None


def _add_not(node: ast.AST) -> ast.AST | None:
    if isinstance(node, ast.If | ast.While | ast.IfExp) and not isinstance(node.test, ast.UnaryOp):
        node.test = ast.UnaryOp(op=ast.Not(), operand=node.test)
        return node
    return None


def _drop_not(node: ast.AST) -> ast.AST | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return node.operand
    return None


def _swap(node: ast.AST) -> ast.AST | None:
    if (
        isinstance(node, ast.Call)
        and len(node.args) == 2
        and not any(isinstance(arg, ast.Starred) for arg in node.args)
    ):
        node.args = node.args[::-1]
        return node
    return None


def _rename(old: str, new: str) -> Transform:
    def transform(node: ast.AST) -> ast.AST | None:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == old:
            node.func = ast.Name(id=new, ctx=ast.Load())
            return node
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == old:
            node.func = ast.Attribute(value=node.func.value, attr=new, ctx=ast.Load())
            return node
        return None

    return transform


def _bound(which: str, step: int) -> Transform:
    def transform(node: ast.AST) -> ast.AST | None:
        if not isinstance(node, ast.Slice):
            return None
        bound: ast.expr | None = getattr(node, which)
        changed: ast.expr
        if bound is None and which == "lower" and step > 0:
            changed = ast.Constant(value=step)
        elif isinstance(bound, ast.Constant) and type(bound.value) is int and bound.value + step > 0:
            changed = ast.Constant(value=bound.value + step)
        elif isinstance(bound, ast.Constant) and bound.value == 1 and which == "lower" and step < 0:
            node.lower = None
            return node
        elif isinstance(bound, ast.BinOp) and isinstance(bound.right, ast.Constant) and bound.right.value == 1:
            grows = isinstance(bound.op, ast.Add)
            if not isinstance(bound.op, ast.Add | ast.Sub) or grows == (step > 0):
                return None
            changed = bound.left
        elif isinstance(bound, ast.Name | ast.Call):
            changed = ast.BinOp(left=bound, op=ast.Add() if step > 0 else ast.Sub(), right=ast.Constant(value=1))
        else:
            return None
        setattr(node, which, changed)
        return node

    return transform


def _rules() -> Iterator[Rule]:
    comparisons: dict[str, type[ast.cmpop]] = {
        "lt": ast.Lt, "le": ast.LtE, "gt": ast.Gt, "ge": ast.GtE,
        "eq": ast.Eq, "ne": ast.NotEq, "in": ast.In, "notin": ast.NotIn,
    }  # fmt: skip
    pairs = ["lt le", "gt ge", "lt gt", "le ge", "eq ne", "in notin", "lt ge", "gt le", "eq ge", "eq le"]
    for pair in pairs:
        for old, new in (pair.split(), pair.split()[::-1]):
            yield Rule(f"{old}_to_{new}", "comparison", _compare(comparisons[old], comparisons[new]), (ast.Compare,))
    operators: dict[str, type[ast.operator]] = {
        "add": ast.Add, "sub": ast.Sub, "mul": ast.Mult, "div": ast.Div,
        "floordiv": ast.FloorDiv, "mod": ast.Mod, "pow": ast.Pow,
    }  # fmt: skip
    for pair in ["add sub", "mul add", "mul div", "floordiv mod", "div floordiv", "mul pow", "mod div"]:
        for old, new in (pair.split(), pair.split()[::-1]):
            yield Rule(
                f"{old}_to_{new}", "arithmetic", _binary(operators[old], operators[new]), (ast.BinOp, ast.AugAssign)
            )
    yield Rule("const_up", "constant", _add(1), (ast.Constant, ast.UnaryOp))
    yield Rule("const_down", "constant", _add(-1), (ast.Constant, ast.UnaryOp))
    yield Rule("flip_bool", "constant", _flip, (ast.Constant,))
    yield Rule("and_to_or", "boolean", _boolean(ast.And, ast.Or), (ast.BoolOp,))
    yield Rule("or_to_and", "boolean", _boolean(ast.Or, ast.And), (ast.BoolOp,))
    yield Rule("add_not", "boolean", _add_not, (ast.If, ast.While, ast.IfExp))
    yield Rule("drop_not", "boolean", _drop_not, (ast.UnaryOp,))
    yield Rule("swap_args", "call", _swap, (ast.Call,))
    for pair in ["min max", "any all", "upper lower", "isupper islower", "startswith endswith", "sum len"]:
        for old, new in (pair.split(), pair.split()[::-1]):
            yield Rule(f"{old}_to_{new}", "call", _rename(old, new), (ast.Call,))
    for which in ("lower", "upper"):
        yield Rule(f"{which}_up", "slice", _bound(which, 1), (ast.Slice,))
        yield Rule(f"{which}_down", "slice", _bound(which, -1), (ast.Slice,))


RULES: dict[str, Rule] = {rule.name: rule for rule in _rules()}

_BY_KIND: dict[type[ast.AST], list[Rule]] = {}
for _rule in RULES.values():
    for _kind in _rule.kinds:
        _BY_KIND.setdefault(_kind, []).append(_rule)


def _function(tree: ast.Module, entry_point: str) -> ast.FunctionDef:
    return next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == entry_point)


def _places(function: ast.FunctionDef) -> dict[int, str]:
    """Map the id of every node to the kind of place it stands in: what a reader would call it."""
    places: dict[int, str] = {}

    def visit(node: ast.AST, place: str) -> None:
        for field, child in ast.iter_fields(node):
            inner = place
            if isinstance(node, ast.If | ast.IfExp | ast.While | ast.Assert | ast.comprehension) and field in (
                "test",
                "ifs",
            ):
                inner = "test"
            elif isinstance(node, ast.For | ast.comprehension) and field == "iter":
                inner = "loop"
            elif isinstance(node, ast.Return):
                inner = "return"
            elif isinstance(node, ast.Subscript) and field == "slice":
                inner = "index"
            elif isinstance(node, ast.Call) and field in ("args", "keywords") and place not in ("test", "loop"):
                inner = "call"
            elif isinstance(node, ast.Assign | ast.AugAssign) and field == "value":
                inner = "assign"
            for item in child if isinstance(child, list) else [child]:
                if isinstance(item, ast.AST):
                    places[id(item)] = inner
                    visit(item, inner)

    visit(function, "other")
    return places


def edits(source: str, entry_point: str) -> list[Edit]:
    """List every edit of the function, in source order; the docstring is not touched."""
    function = _function(parse(source), entry_point)
    places = _places(function)
    found = []
    for site, node in enumerate(ast.walk(function)):
        for rule in _BY_KIND.get(type(node), ()):
            if rule.transform(copy.copy(node)) is not None:
                found.append(Edit(rule.name, rule.segment, site, places.get(id(node), "other")))
    return found


def inverse(mutant: str, entry_point: str, edit: Edit, original: str) -> Edit | None:
    """Return the edit of `mutant` that restores `original` after `edit` was made, or None where the table has none."""
    near = sorted(edits(mutant, entry_point), key=lambda fix: abs(fix.site - edit.site))
    for fix in near:
        if fix.segment == edit.segment and apply(mutant, entry_point, fix) == original:
            return fix
    return None


@lru_cache(maxsize=65_536)
def apply(source: str, entry_point: str, edit: Edit) -> str:
    """Return the module text with one edit made. Raises ValueError where the edit does not fit the source."""
    tree = parse(source)
    function = _function(tree, entry_point)
    node = list(ast.walk(function))[edit.site]
    changed = RULES[edit.rule].transform(copy.copy(node))
    if changed is None:
        raise ValueError(f"edit {edit.rule} does not fit node {edit.site} of {entry_point}")

    replacement: ast.AST = changed

    class Replace(ast.NodeTransformer):
        def generic_visit(self, visited: ast.AST) -> ast.AST:
            return replacement if visited is node else super().generic_visit(visited)

    replaced: ast.Module = Replace().visit(tree)
    return ast.unparse(ast.fix_missing_locations(replaced))
