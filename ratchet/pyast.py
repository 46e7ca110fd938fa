"""Parsing Python from several threads.

CPython 3.11 keeps the nesting depth of the conversion to AST objects in a state that all threads share, and a switch
of threads in the middle raises `SystemError: AST constructor recursion depth mismatch` (python/cpython#106905).
Episodes and verifiers run in threads, so whatever they parse is parsed here, one text at a time.
"""

from __future__ import annotations

import ast
import threading
from typing import Any

_ONE_AT_A_TIME = threading.Lock()


def parse(source: str) -> ast.Module:
    """Parse a module; like `ast.parse`, whose errors it raises."""
    with _ONE_AT_A_TIME:
        return ast.parse(source)


def literal(text: str) -> Any:
    """Evaluate a literal; like `ast.literal_eval`, whose errors it raises."""
    with _ONE_AT_A_TIME:
        return ast.literal_eval(text)
