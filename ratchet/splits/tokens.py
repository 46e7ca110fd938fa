"""Functions of other languages, and of Python that does not parse: the digest of their tokens, by tree-sitter.

The leaves of a function's tree are its tokens. Names that the function binds (parameters, variables, its own name) are
numbered in the order in which they appear; free names, members and types stay. Comments, annotations, visibility,
semicolons, the quotes of strings, and the optional types of TypeScript and Python do not count, nor whether JavaScript
says `const`, `let` or `var`. Not covered: folded constants, redundant parentheses, two variables of one name that are
renamed apart, functions of fewer than `SMALLEST` tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ratchet.contracts.canonical import digest_bytes
from ratchet.splits import grammars as g
from ratchet.splits.code import Function, Functions

if TYPE_CHECKING:
    from tree_sitter import Node

SMALLEST = 40
_LARGEST = 1_000_000
_QUOTED = re.compile(r"^[A-Za-z]{0,2}(\"\"\"|'''|[\"'`])(.*)\1$", re.DOTALL)


class _Token(NamedTuple):
    text: str
    name: bool
    """Whether it may be a variable."""
    binds: bool


@lru_cache(maxsize=20_000)
def token_functions(source: str, languages: tuple[str, ...]) -> Functions:
    """Digest every function of `source` that is large enough, in each of the languages that can read it.

    Args:
        source: code.
        languages: what it may be written in; functions with errors count only where no language reads one without.

    Returns:
        The functions; `parsed` is False where none of the grammars is installed, or none finds a function.
    """
    clean: dict[str, Function] = {}
    broken: dict[str, Function] = {}
    parsed = False
    data = source.encode("utf-8", "surrogatepass")
    for language in languages if len(data) <= _LARGEST else ():
        for node, text, tokens in _in_language(data, language):
            parsed = True
            if len(tokens) >= SMALLEST:
                one = Function(_name(node), digest_bytes(canonical(tokens).encode("utf-8", "surrogatepass")), text)
                (broken if node.has_error else clean).setdefault(one.digest, one)
    return Functions(tuple((clean or broken).values()), parsed)


def _in_language(data: bytes, language: str) -> list[tuple[Node, str, list[_Token]]]:
    """The functions of the source as that language reads it, with their text and tokens."""
    grammar = g.grammar(language)
    if grammar is None:
        return []
    from tree_sitter import Parser

    parser = Parser(grammar)
    found = list(_functions(parser.parse(data).root_node))
    if not found and language in g.METHODS_NEED_A_CLASS:
        data = b"class Any {" + data + b"\n}"
        found = list(_functions(parser.parse(data).root_node))
    return [(node, data[node.start_byte : node.end_byte].decode("utf-8", "replace"), own) for node, own in found]


def canonical(tokens: list[_Token]) -> str:
    """The tokens of a function with its bound names numbered."""
    bound = {token.text for token in tokens if token.binds}
    numbers: dict[str, str] = {}
    return "\0".join(
        numbers.setdefault(token.text, f"#{len(numbers)}")
        if token.binds or (token.name and token.text in bound)
        else token.text
        for token in tokens
    )


class _Visit(NamedTuple):
    """A node to visit: its parent's type, its field there, whether it is in a place that binds names."""

    node: Node
    parent: str
    field: str | None
    binds: bool
    start: int = -1
    """Where the tokens of a function begin, once all of them are there."""


def _functions(root: Node) -> Iterator[tuple[Node, list[_Token]]]:
    """Every function of a tree with its tokens, inner ones first; without recursion, as code may be nested deeply."""
    tokens: list[_Token] = []
    stack = [_Visit(root, "", None, False)]
    while stack:
        visit = stack.pop()
        node, kind = visit.node, visit.node.type
        if visit.start >= 0:
            yield node, tokens[visit.start :]
        elif kind in g.DROPPED or _is_docstring(node):
            continue
        elif kind in g.STRINGS or not node.child_count:
            tokens += _tokens(visit)
        else:
            if kind in g.FUNCTIONS:
                stack.append(visit._replace(start=len(tokens)))
            fields = g.BINDERS.get(kind, frozenset())
            inside = visit.binds and kind not in g.NOT_BOUND_NODES
            children = [
                _Visit(
                    child,
                    kind,
                    field := node.field_name_for_child(at),
                    ((inside or g.ALL in fields or field in fields) and field not in g.NOT_BOUND_FIELDS)
                    or (kind == g.PYTHON_2_HANDLER and node.children[at - 1].type == ","),
                )
                for at, child in enumerate(node.children)
            ]
            stack += reversed(children)


def _tokens(visit: _Visit) -> list[_Token]:
    """The token of a leaf, where it counts."""
    text = (visit.node.text or b"").decode("utf-8", "replace")
    kind = visit.node.type
    if kind in g.STRINGS:
        match = _QUOTED.match(text)
        return [_Token(f'"{match.group(2) if match else text}', False, False)]
    if not text or text in g.IGNORED_TOKENS:
        return []
    member = (visit.parent, visit.field) in g.NEVER_NAMES
    name = kind in g.NAME_NODES and not member
    return [_Token(g.SAME_TOKENS.get(text, text), name, visit.binds and kind in g.BINDING_NODES and not member)]


def _is_docstring(node: Node) -> bool:
    return node.type == "expression_statement" and node.child_count == 1 and node.children[0].type == "string"


def _name(node: Node) -> str:
    named: Node | None = node
    while named is not None and named.child_count:
        named = named.child_by_field_name("name") or named.child_by_field_name("declarator")
    return (named.text or b"").decode("utf-8", "replace") if named is not None else node.type
