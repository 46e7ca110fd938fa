"""The size of a change: what counts, what does not, and that it is a distance."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.rewards.distance import change_size, tree_distance
from ratchet.rewards.syntax import Tree, tree

BASE = '''def f(xs, low):
    """Sum what is large."""
    total = 0
    for x in xs:
        if x > low and x < 20:
            total = total + max(x, 1)
    return total
'''


def changed(*replacements: tuple[str, str]) -> int | None:
    text = BASE
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    return change_size(BASE, text, at_most=100)


@pytest.mark.parametrize(
    "text",
    [
        ast.unparse(ast.parse(BASE)),
        BASE.replace("x > low and x < 20", "(x > low  and (x) < 20)"),
        BASE.replace("Sum what is large.", "Other words.").replace("total = 0", "total = 0  # nothing yet"),
        BASE.replace("total", "result"),
        BASE.replace("xs", "values").replace("x ", "value ").replace("(x,", "(value,"),
        BASE.replace("xs", "_").replace("total", "xs").replace("_", "total"),
    ],
    ids=["unparsed", "parentheses", "docstring and comment", "one name", "two names", "names that change places"],
)
def test_formatting_docstrings_and_consistent_renames_do_not_count(text: str) -> None:
    assert change_size(BASE, text, at_most=100) == 0


@pytest.mark.parametrize(
    ("old", "new", "nodes"),
    [
        ("x > low", "x >= low", 1),
        ("total + max", "total - max", 1),
        ("20", "21", 1),
        ("total = 0", "total = False", 1),
        (" and ", " or ", 1),
        ("max(x, 1)", "max(1, x)", 2),
        ("max(x, 1)", "min(x, 1)", 1),
        ("if x > low and x < 20", "if not (x > low and x < 20)", 1),
        ("return total", "return -total", 1),
        ("x < 20", "x < 20 + 1", 2),
    ],
)
def test_a_single_edit_is_small(old: str, new: str, nodes: int) -> None:
    assert changed((old, new)) == nodes


def test_a_rename_that_is_not_consistent_counts() -> None:
    assert changed(("return total", "return low")) == 1


def test_a_rename_may_not_hide_another_function() -> None:
    """`max` becomes a local name of the final: mapping it to an old local would call a different program equal."""
    assert change_size("def f(a):\n    return len(a)\n", "def f(len):\n    return len(len)\n", at_most=99) != 0
    assert change_size("def f(a, b):\n    return a\n", "def f(a, b):\n    return b\n", at_most=99) == 1


def test_an_interface_is_not_renamed() -> None:
    assert changed(("def f", "def g")) == 1
    assert change_size("import os\n", "import sys\n", at_most=9) == 1


def test_moving_a_statement_out_of_its_branch_counts() -> None:
    assert change_size("if a:\n    b()\nelse:\n    c()\n", "if a:\n    b()\nc()\n", at_most=99) != 0


def test_a_rewrite_is_not_measured_to_the_end() -> None:
    found = change_size(BASE, BASE + "def g():\n    return [1, 2, 3, 4, 5, 6, 7]\n" * 200, at_most=6)
    assert found is not None
    assert found > 6


@pytest.mark.parametrize("text", ["def f(:", "\0", "(" * 5000 + ")" * 5000, "-" * 50_000 + "1"])
def test_text_that_cannot_be_handled_has_no_size(text: str) -> None:
    assert change_size(BASE, text, at_most=6) is None


trees = st.recursive(
    st.sampled_from("ab").map(Tree),
    lambda inner: st.builds(Tree, st.sampled_from("ab"), st.lists(inner, max_size=3).map(tuple)),
    max_leaves=6,
)


@settings(max_examples=100, deadline=None)
@given(trees, trees, trees)
def test_it_is_a_distance(one: Tree, two: Tree, three: Tree) -> None:
    direct = tree_distance(one, two)
    assert (direct == 0) == (one.key == two.key)
    assert direct == tree_distance(two, one)
    assert abs(one.size - two.size) <= direct <= one.size + two.size
    assert tree_distance(one, three) <= direct + tree_distance(two, three)


@settings(max_examples=60, deadline=None)
@given(trees, trees)
def test_it_equals_the_recursion_it_is_defined_by(one: Tree, two: Tree) -> None:
    assert tree_distance(one, two) == plain_tree(one, two)


@settings(max_examples=200, deadline=None)
@given(trees, trees, st.integers(0, 8))
def test_a_limit_changes_no_distance_up_to_it(one: Tree, two: Tree, limit: int) -> None:
    bounded, whole = tree_distance(one, two, at_most=limit), tree_distance(one, two)
    assert bounded == whole if whole <= limit else bounded > limit


def plain_tree(one: Tree, two: Tree) -> int:
    """Zhang's recursion as it is printed, without any shortcut."""
    options = [plain_forest(one, two) + (one.label != two.label)]
    options += [two.size - child.size + plain_tree(one, child) for child in two.children]
    options += [one.size - child.size + plain_tree(child, two) for child in one.children]
    return min(options)


def plain_forest(one: Tree, two: Tree) -> int:
    options = [plain_alignment(one.children, two.children)]
    options += [two.size - child.size + plain_forest(one, child) for child in two.children]
    options += [one.size - child.size + plain_forest(child, two) for child in one.children]
    return min(options)


def plain_alignment(one: tuple[Tree, ...], two: tuple[Tree, ...]) -> int:
    if not one or not two:
        return sum(child.size for child in (*one, *two))
    return min(
        one[0].size + plain_alignment(one[1:], two),
        two[0].size + plain_alignment(one, two[1:]),
        plain_tree(one[0], two[0]) + plain_alignment(one[1:], two[1:]),
    )


def test_equal_trees_of_source_have_equal_keys() -> None:
    assert tree(ast.parse(BASE)).key == tree(ast.parse(BASE)).key
