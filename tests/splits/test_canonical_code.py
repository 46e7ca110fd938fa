"""The canonical tree: what a cloner may change without being missed, and what makes another function."""

from __future__ import annotations

import pytest

from ratchet.splits.code import blocks, functions

BASE = '''
def running(values, start=0):
    """Sum up."""
    total, seen = start, []
    for index, value in enumerate(values):
        if value > 60 * 60 and not any(value == one for one in seen):
            total += value
            seen.append(value)
    return total, len(seen)
'''

CLONES = {
    "renamed": BASE.replace("running", "f").replace("values", "xs").replace("value", "x").replace("total", "acc"),
    "no docstring": BASE.replace('    """Sum up."""\n', ""),
    "folded": BASE.replace("60 * 60", "3600"),
    "annotated": BASE.replace("values, start=0)", "values: list[int], start: int = 0) -> tuple[int, int]"),
    "comments and layout": BASE.replace("total += value", "total  +=  (value)  # add it").replace("    ", "\t"),
    "inner renamed": BASE.replace("one", "other_one").replace("index", "_"),
    "method": "class A:\n" + "\n".join("    " + line for line in BASE.splitlines()),
}
OTHERS = {
    "comparison": BASE.replace(">", ">="),
    "constant": BASE.replace("60 * 60", "60 * 61"),
    "free name": BASE.replace("any(", "all("),
    "attribute": BASE.replace(".append", ".insert"),
    "swapped use": BASE.replace("return total, len(seen)", "return len(seen), total"),
    "default": BASE.replace("start=0", "start=1"),
    "keyword-only": BASE.replace("start=0", "*, start=0"),
    "starred": BASE.replace("(values,", "(*values,"),
}


def digests(source: str) -> set[str]:
    return {one.digest for one in functions(source).found}


@pytest.mark.parametrize("kind", CLONES)
def test_clone_has_the_same_digest(kind: str) -> None:
    assert CLONES[kind] != BASE
    assert digests(CLONES[kind]) == digests(BASE) != set()


@pytest.mark.parametrize("kind", OTHERS)
def test_other_function_has_another_digest(kind: str) -> None:
    assert OTHERS[kind] != BASE
    assert digests(OTHERS[kind])
    assert digests(OTHERS[kind]).isdisjoint(digests(BASE))


def test_every_binding_form_can_be_renamed() -> None:
    source = (
        "def {f}({a}, /, *{b}, {c}=1, **{d}):\n"
        "    import os as {e}\n"
        "    with open({a}) as {g}:\n"
        "        {h}: int = 1\n"
        "    try:\n        {i} = lambda {j}: {j} + {h}\n"
        "    except ValueError as {k}:\n        print({k})\n"
        "    def {l}():\n        nonlocal {h}\n        {h} = {c}\n"
        "    class {m}:\n        field = {h}\n"
        "    match {b}:\n        case [{n}, *{o}]:\n            return {n}, {o}\n"
        "    if ({p} := {l}()):\n        del {p}\n"
        "    return {{{q}: {r} for {q}, {r} in {d}.items()}}, {e}, {g}, {i}, {m}\n"
    )
    letters = "fabcdeghijklmnopqr"
    first = source.format(**{letter: f"one_{letter}" for letter in letters})
    second = source.format(**{letter: f"z{number}" for number, letter in enumerate(letters)})
    assert digests(first) == digests(second) != set()


def test_renaming_onto_a_free_name_is_told_from_the_free_name() -> None:
    local = BASE.replace("seen", "enumerate").replace("enumerate(values)", "list(values)")
    assert digests(local) != digests(
        BASE.replace("enumerate(values)", "list(values)").replace("seen = start", "s = start")
    )


def test_small_functions_are_ignored() -> None:
    found = functions("def add(a, b):\n    return a + b\n")
    assert found.parsed
    assert found.found == ()


@pytest.mark.parametrize("source", ["def f(:\n", "x = '\x00'", "print 'two'", "(" * 5000 + ")" * 5000])
def test_unreadable_code_is_reported_not_raised(source: str) -> None:
    assert not functions(source).parsed


def test_huge_constant_expressions_are_not_evaluated() -> None:
    assert functions(BASE.replace("60 * 60", '"x" * 10**12 and 2**10**9 and 1 // 0')).parsed


def test_code_is_found_in_prose() -> None:
    for text in (
        f"Look:\n```python\n{BASE}```\nand more",
        f"Look:\n{BASE}\nand more",
        "\n".join(f"{number:3} | {line}" for number, line in enumerate(BASE.splitlines())),
    ):
        found = {one.digest for block in blocks(text) for one in functions(block).found}
        assert found == digests(BASE), text
    assert blocks("we def need no (code) here\n") == []
