"""Symptoms: one word for what a failing test looks like, from the value that really came back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.environments.repair.catalogue import program
from ratchet.environments.repair.symptoms import SYMPTOMS, expected_value, symptom
from ratchet.sandbox import Sandbox, TestOutcome


def real(sandbox: Sandbox, body: str, expected: str) -> str:
    """The word for a function with this body whose answer should be `expected`."""
    source, test = f"def f(x):\n    {body}", f"assert candidate(0) == {expected}"
    (outcome,) = sandbox.run(program(source, "f", [test], trusted=source)).outcomes
    assert outcome.status != "passed"
    return symptom(test, outcome)


@pytest.mark.parametrize(
    ("body", "expected", "word"),
    [
        ("return 4", "3", "high_by_1"),
        ("return 2", "3", "low_by_1"),
        ("return 2.0", "3", "low_by_1"),
        ("return -3", "3", "sign"),
        ("return 9", "3", "high"),
        ("return -9", "3", "low"),
        ("return True", "False", "got_true"),
        ("return False", "True", "got_false"),
        ("return 0", "True", "type"),
        ("return True", "3", "got_true"),
        ("return None", "3", "none"),
        ("pass", "[]", "none"),
        ("return '3'", "3", "type"),
        ("return (1,)", "[1]", "type"),
        ("return 'abc'", "'ab'", "str_longer"),
        ("return 'a'", "'ab'", "str_shorter"),
        ("return 'ba'", "'ab'", "str_order"),
        ("return 'xb'", "'ab'", "str_items"),
        ("return [1, 2, 3]", "[1, 2]", "list_longer"),
        ("return []", "[1, 2]", "list_shorter"),
        ("return [2, 1]", "[1, 2]", "list_order"),
        ("return [2, 2]", "[1, 2]", "list_items"),
        ("return (2, 1)", "(1, 2)", "list_order"),
        ("return {1: 2}", "{1: 3}", "wrong"),
        ("return [][1]", "3", "IndexError"),
        ("return 'a' + 1", "3", "TypeError"),
        ("return int('a')", "3", "ValueError"),
        ("return 1 // x", "3", "ZeroDivisionError"),
        ("return {}[1]", "3", "KeyError"),
        ("return x.y", "3", "AttributeError"),
        ("return f(x)", "3", "RecursionError"),
        ("assert x", "3", "raises"),
        ("raise OSError", "3", "raises"),
        ("while True: pass", "3", "hangs"),
    ],
)
def test_the_word_for_what_really_came_back(sandbox: Sandbox, body: str, expected: str, word: str) -> None:
    assert real(sandbox, body, expected) == word
    assert word in SYMPTOMS


def test_a_comparison_with_no_literal_is_just_wrong() -> None:
    outcome = TestOutcome(name="t", status="failed", exception="AssertionError", last_value="3")
    assert symptom("assert abs(candidate(1) - 2) < 1", outcome) == "wrong"
    assert symptom("assert candidate(1)", outcome) == "wrong"
    assert expected_value("x = 3\nassert candidate(x) == [1, 'a']") == (True, [1, "a"])
    assert expected_value("assert 1 < candidate(1) < 3") == (False, None)


@given(st.text(max_size=60), st.sampled_from(["3", "2.5", "'a'", "[1]", "True", "None", "1e308", "{1}", "1j"]))
def test_no_value_that_a_program_returns_makes_the_report_fail(shown: str, expected: str) -> None:
    outcome = TestOutcome(name="t", status="failed", exception="AssertionError", last_value=shown)
    assert symptom(f"assert candidate(1) == {expected}", outcome) in SYMPTOMS


@pytest.mark.parametrize(
    "shown", ["9" * 299, "-" + "9" * 299, "1e999", "-1e999", "[" * 90 + "]" * 90, "(" * 300, "-" * 300]
)
@pytest.mark.parametrize("expected", ["0.5", "1e308", "3", "[1]"])
def test_monstrous_values_have_a_word_too(shown: str, expected: str) -> None:
    outcome = TestOutcome(name="t", status="failed", exception="AssertionError", last_value=shown)
    assert symptom(f"assert candidate(1) == {expected}", outcome) in SYMPTOMS
