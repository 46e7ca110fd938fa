"""Edits of the syntax tree: one place changes, the text stays Python, and the table holds the way back."""

import ast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.environments.repair.edits import PLACES, RULES, SEGMENTS, Edit, apply, edits, inverse
from ratchet.environments.repair.problems import Problem, human_eval

SAMPLE: list[Problem] = list(human_eval())[::8]
EVERY: list[tuple[Problem, Edit]] = [
    (problem, edit) for problem in SAMPLE for edit in edits(problem.source, problem.entry_point)
]


def function(source: str, name: str) -> ast.FunctionDef:
    return next(node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef) and node.name == name)


def test_the_sample_fires_most_rules_of_every_segment() -> None:
    fired = {edit.rule for _, edit in EVERY}
    assert {edit.segment for _, edit in EVERY} == set(SEGMENTS)
    assert len(fired) > len(RULES) / 2


@settings(max_examples=150)
@given(st.sampled_from(EVERY))
def test_a_mutant_parses_and_differs_in_one_line(chosen: tuple[Problem, Edit]) -> None:
    problem, edit = chosen
    mutant = apply(problem.source, problem.entry_point, edit)
    before, after = problem.source.split("\n"), mutant.split("\n")
    assert len(before) == len(after)
    assert sum(old != new for old, new in zip(before, after, strict=True)) == 1
    own, other = function(mutant, problem.entry_point), function(problem.source, problem.entry_point)
    assert ast.get_docstring(own) == ast.get_docstring(other)
    assert edit.segment in SEGMENTS
    assert edit.place in PLACES


@pytest.mark.parametrize("problem", SAMPLE, ids=lambda problem: problem.name)
def test_every_rule_that_fires_has_its_way_back(problem: Problem) -> None:
    tried: dict[str, Edit] = {}
    for edit in edits(problem.source, problem.entry_point):
        tried.setdefault(edit.rule, edit)
    for edit in tried.values():
        mutant = apply(problem.source, problem.entry_point, edit)
        fix = inverse(mutant, problem.entry_point, edit, problem.source)
        if fix is None:
            # `not` can be put back only where a branch or a loop asks.
            assert edit.rule == "drop_not"
            assert edit.place != "test"
        else:
            assert apply(mutant, problem.entry_point, fix) == problem.source


def test_only_the_function_under_test_is_edited() -> None:
    source = "def helper(x):\n    return x + 1\n\ndef f(x):\n    return helper(x) - 1"
    found = [apply(source, "f", edit) for edit in edits(source, "f")]
    assert found
    assert all(text.startswith("def helper(x):\n    return x + 1\n") for text in found)


def test_an_edit_of_another_text_is_refused_by_rule_and_place() -> None:
    edit = next(edit for edit in edits("def f(x):\n    return x < 1", "f") if edit.rule == "lt_to_le")
    with pytest.raises(ValueError, match=rf"lt_to_le does not fit node {edit.site} of f"):
        apply("def f(x):\n    return x > 1", "f", edit)


def test_listing_edits_changes_nothing_and_repeats() -> None:
    problem = SAMPLE[0]
    assert edits(problem.source, problem.entry_point) == edits(problem.source, problem.entry_point)


@pytest.mark.parametrize(
    ("body", "rule", "wanted"),
    [
        ("x[1:]", "lower_down", "x[:]"),
        ("x[:]", "lower_up", "x[1:]"),
        ("x[:n]", "upper_down", "x[:n - 1]"),
        ("x[:n + 1]", "upper_down", "x[:n]"),
        ("x[:n - 1]", "upper_up", "x[:n]"),
        ("x + 0", "const_down", "x + -1"),
        ("x + -1", "const_up", "x + 0"),
        ("any(x)", "any_to_all", "all(x)"),
        ("x.upper()", "upper_to_lower", "x.lower()"),
        ("f(n, x)", "swap_args", "f(x, n)"),
        ("1 if x else 2", "add_not", "1 if not x else 2"),
        ("1 if not x else 2", "drop_not", "1 if x else 2"),
        ("x and n", "and_to_or", "x or n"),
        ("x is True", "flip_bool", "x is False"),
    ],
)
def test_what_a_rule_does(body: str, rule: str, wanted: str) -> None:
    source = f"def f(x, n):\n    return {body}"
    made = [apply(source, "f", edit) for edit in edits(source, "f") if edit.rule == rule]
    assert f"def f(x, n):\n    return {wanted}" in made


@pytest.mark.parametrize("body", ["f(*x, n)", "x < n < x", "'text'", "2.5", "x[::n]", "1000"])
def test_what_fits_no_rule_is_left_alone(body: str) -> None:
    rules = {"swap_args", "const_up", "const_down", "upper_up", "upper_down"} | {
        name for name, rule in RULES.items() if rule.segment == "comparison"
    }
    source = f"def f(x, n):\n    return {body}"
    found = {edit.rule for edit in edits(source, "f")} & rules
    assert found == set()
