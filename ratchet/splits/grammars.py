"""What `tokens` knows of each language: how its functions are recognised, and where its grammar binds names.

The tables are written against the node types of the tree-sitter grammars for JavaScript, TypeScript, Java, Go, Rust,
C, C++, and Python (for what the standard library cannot parse).
"""

from __future__ import annotations

import importlib
import re
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING

from ratchet.splits.braces import heads

if TYPE_CHECKING:
    from tree_sitter import Language

LANGUAGES: dict[str, tuple[str, str]] = {
    "javascript": ("tree_sitter_javascript", "language"),
    "typescript": ("tree_sitter_typescript", "language_typescript"),
    "tsx": ("tree_sitter_typescript", "language_tsx"),
    "java": ("tree_sitter_java", "language"),
    "go": ("tree_sitter_go", "language"),
    "rust": ("tree_sitter_rust", "language"),
    "c": ("tree_sitter_c", "language"),
    "cpp": ("tree_sitter_cpp", "language"),
    "python": ("tree_sitter_python", "language"),
}
"""Language -> the module of its grammar and the function in it."""

_MARKS: tuple[tuple[re.Pattern[str], tuple[str, ...]], ...] = (
    (re.compile(r"\bfunction\b|=>\s*$"), ("javascript", "typescript", "tsx")),
    (re.compile(r"^\s*(?:(?:async|static|get|set|public|private)\s+|[*#])*[\w$]+\s*\(.*\)\s*$", re.S), ("javascript",)),
    (re.compile(r"^\s*[\w\s$]+(?:<[^(]*>)?\s*\(.*\)\s*(?::[^()]+)?$", re.S), ("typescript",)),
    (re.compile(r"\bfunc\b"), ("go",)),
    (re.compile(r"\bfn\b"), ("rust",)),
    (re.compile(r"[\w>\]*&]\s*[\s*&][*&]*[\w:~]+\s*\(.*\)[^()=]*$", re.S), ("c", "cpp", "java")),
)
"""What the head of a function looks like. All that match are tried: two sides of a clone then meet in one of them."""
_HEADS = 300
"""Heads of a piece that are looked at: enough to know its language."""

METHODS_NEED_A_CLASS = frozenset({"javascript", "typescript", "tsx"})
"""Languages in which a method that stands alone does not parse."""
FUNCTIONS = frozenset(
    {
        "arrow_function", "closure_expression", "constructor_declaration", "func_literal", "function_declaration",
        "function_definition", "function_expression", "function_item", "generator_function",
        "generator_function_declaration", "lambda_expression", "method_declaration", "method_definition",
    }
)  # fmt: skip
DROPPED = frozenset(
    {
        "accessibility_modifier", "annotation", "attribute_item", "block_comment", "comment", "decorator",
        "inner_attribute_item", "line_comment", "marker_annotation", "override_modifier", "type", "type_annotation",
        "type_parameters", "visibility_modifier",
    }
)  # fmt: skip
"""Nodes that a cloner changes freely: comments, annotations, and the types of languages that need none."""
STRINGS = frozenset(
    {"char_literal", "character_literal", "interpreted_string_literal", "raw_string_literal", "rune_literal", "string",
     "string_literal"}
)  # fmt: skip
IGNORED_TOKENS = frozenset({";", "public", "private", "protected", "final", "pub", "readonly", "abstract"})
SAME_TOKENS = {"const": "let", "var": "let"}

ALL = "*"
BINDERS: dict[str, frozenset[str]] = {
    node: frozenset(fields.split())
    for node, fields in {
        # JavaScript, TypeScript
        "variable_declarator": "name",
        "formal_parameters": ALL,
        "catch_clause": "parameter",
        "for_in_statement": "left",
        "arrow_function": "parameter",
        "function_declaration": "name",
        "function_expression": "name",
        "generator_function_declaration": "name",
        "method_definition": "name",
        "class_declaration": "name",
        # Java
        "formal_parameter": "name",
        "catch_formal_parameter": "name",
        "enhanced_for_statement": "name",
        "lambda_expression": "parameters",
        "inferred_parameters": ALL,
        "resource": "name",
        "method_declaration": "name",
        "constructor_declaration": "name",
        # Go
        "short_var_declaration": "left",
        "range_clause": "left",
        "var_spec": "name",
        "const_spec": "name",
        "parameter_declaration": "name declarator",
        "variadic_parameter_declaration": "name",
        # Rust
        "function_item": "name",
        "parameter": "pattern",
        "let_declaration": "pattern",
        "let_condition": "pattern",
        "for_expression": "pattern",
        "match_arm": "pattern",
        "closure_parameters": ALL,
        # C, C++
        "declaration": "declarator",
        "init_declarator": "declarator",
        "function_declarator": "declarator",
        "optional_parameter_declaration": "declarator",
        "for_range_loop": "declarator",
        # Python
        "function_definition": "name declarator",
        "parameters": ALL,
        "lambda_parameters": ALL,
        "assignment": "left",
        "for_statement": "left",
        "for_in_clause": "left",
        "as_pattern_target": ALL,
        "named_expression": "name",
        "class_definition": "name",
    }.items()
}
"""Node -> the fields under which names are bound, `*` for all children."""
PYTHON_2_HANDLER = "except_clause"
"""`except Kind, name`: the grammar gives the name no field of its own."""
NOT_BOUND_FIELDS = frozenset({"value", "right", "type", "size", "default_value", "key", "condition", "path", "scope"})
"""Fields inside a pattern that use names and bind none."""
NOT_BOUND_NODES = frozenset(
    {"attribute", "call", "call_expression", "field_access", "field_expression", "member_expression", "modifiers",
     "scoped_identifier", "subscript", "subscript_expression"}
)  # fmt: skip
NAME_NODES = frozenset({"identifier", "shorthand_property_identifier", "shorthand_property_identifier_pattern"})
BINDING_NODES = NAME_NODES | {"field_identifier", "property_identifier"}
"""Leaves that a pattern binds; the last two only as the name of a method."""
NEVER_NAMES = frozenset(
    {
        ("attribute", "attribute"), ("field_access", "field"), ("keyword_argument", "name"),
        ("method_invocation", "name"), ("scoped_identifier", "name"), ("scoped_identifier", "path"),
    }
)  # fmt: skip
"""(node, field) where an identifier is a member of something, whatever a variable of that name is called."""


def likely(source: str) -> tuple[str, ...]:
    """The languages other than Python that a piece of code may be written in."""
    found: dict[str, None] = {}
    for head, _ in islice(heads(source), _HEADS):
        found |= {language: None for mark, languages in _MARKS if mark.search(head) for language in languages}
    return tuple(language for language in LANGUAGES if language in found)


@cache
def grammar(language: str) -> Language | None:
    """The grammar of a language, or None where it is not installed."""
    module, function = LANGUAGES[language]
    try:
        from tree_sitter import Language

        return Language(getattr(importlib.import_module(module), function)())
    except ImportError:
        return None
