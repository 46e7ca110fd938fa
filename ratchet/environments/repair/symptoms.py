"""What a failing assertion looks like from outside, in one word: the report that a policy starts from.

The word compares the value the function returned with the literal it was compared to: `low_by_1`, `list_shorter`,
`got_true`; or it names the exception. It says nothing of the cause.
"""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import Any

from ratchet.pyast import literal, parse
from ratchet.sandbox import TestOutcome

EXCEPTIONS = (
    "IndexError",
    "TypeError",
    "ValueError",
    "ZeroDivisionError",
    "KeyError",
    "AttributeError",
    "RecursionError",
)
SYMPTOMS = (
    *EXCEPTIONS, "raises", "hangs", "none", "got_true", "got_false", "type",
    "high_by_1", "low_by_1", "sign", "high", "low", "wrong",
    "str_longer", "str_shorter", "str_order", "str_items", "list_longer", "list_shorter", "list_order", "list_items",
)  # fmt: skip


@lru_cache(maxsize=4096)
def expected_value(test: str) -> tuple[bool, Any]:
    """Return whether `test` compares the candidate with a literal, and that literal, which nobody may change."""
    last = parse(test).body[-1]
    compared = last.test if isinstance(last, ast.Assert) else None
    if isinstance(compared, ast.Compare) and len(compared.ops) == 1 and isinstance(compared.ops[0], ast.Eq | ast.Is):
        return _literal(ast.unparse(compared.comparators[0]))
    return False, None


def _literal(text: str | None) -> tuple[bool, Any]:
    try:
        return True, literal(text or "")
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return False, None


def symptom(test: str, outcome: TestOutcome) -> str:
    """Name what went wrong in a test that did not pass: one of `SYMPTOMS`."""
    if outcome.status == "not_run":
        return "hangs"
    if outcome.status == "error" or outcome.exception not in (None, "AssertionError"):
        return outcome.exception if outcome.exception in EXCEPTIONS else "raises"
    return _told_apart(test, outcome.last_value)


@lru_cache(maxsize=4096)
def _told_apart(test: str, last_value: str | None) -> str:
    """Name how the value that came out differs from the expected one."""
    known, expected = expected_value(test)
    read, got = _literal(last_value)
    if not (known and read):
        return "wrong"
    return _compared(got, expected)


def _compared(got: Any, expected: Any) -> str:
    if got is None:
        return "none"
    if isinstance(expected, bool) or isinstance(got, bool):
        return {True: "got_true", False: "got_false"}.get(got, "type") if isinstance(got, bool) else "type"
    if isinstance(got, int | float) and isinstance(expected, int | float):
        if got - expected in (1, -1):
            return "high_by_1" if got > expected else "low_by_1"
        if got == -expected:
            return "sign"
        return "high" if got > expected else "low"
    if type(got) is not type(expected):
        return "type"
    if isinstance(got, str | list | tuple):
        kind = "str" if isinstance(got, str) else "list"
        if len(got) != len(expected):
            return f"{kind}_longer" if len(got) > len(expected) else f"{kind}_shorter"
        return f"{kind}_order" if sorted(map(repr, got)) == sorted(map(repr, expected)) else f"{kind}_items"
    return "wrong"
