"""Parsing in threads: what CPython 3.11 gets wrong without a lock."""

from __future__ import annotations

import ast
import gc
from concurrent.futures import ThreadPoolExecutor

import pytest

from ratchet import pyast

SOURCE = "\n".join(f"def f{n}(a):\n    return [x for x in a if x > {n} and (x - {n}) * 2 != 3]" for n in range(30))


def test_threads_may_parse_at_once() -> None:
    threshold = gc.get_threshold()
    gc.set_threshold(5)
    try:
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(pyast.parse, [SOURCE] * 200))
    finally:
        gc.set_threshold(*threshold)
    assert {ast.dump(tree) for tree in found} == {ast.dump(ast.parse(SOURCE))}


def test_errors_are_those_of_the_parser() -> None:
    with pytest.raises(SyntaxError):
        pyast.parse("def")
    with pytest.raises(ValueError, match="malformed"):
        pyast.literal("f()")
    assert pyast.literal("[1, (2,)]") == [1, (2,)]
