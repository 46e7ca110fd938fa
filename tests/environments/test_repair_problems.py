"""Problems: a check splits into assertions that stand alone, and what cannot be split is left out."""

import ast

import pytest

from ratchet.environments.repair.generated import FUNCTIONS, TESTS, generated
from ratchet.environments.repair.problems import MIN_TESTS, Problem, split_check


def check(*lines: str) -> str:
    return "def check(candidate):\n" + "\n".join(f"    {line}" for line in lines)


def test_assertions_are_taken_apart_with_what_they_need_before_them() -> None:
    found = split_check(
        check("assert candidate(1) == 1", "import math", "x = 2", "assert candidate(x) == math.pi, 'no'")
    )
    assert found == ("assert candidate(1) == 1", "import math\nx = 2\nassert candidate(x) == math.pi")


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        (("assert True", "assert candidate(1) == 1"), ("assert candidate(1) == 1",)),
        (("assert candidate(1)", "assert candidate(1)"), ("assert candidate(1)",)),
        (("for i in range(3):", "    assert candidate(i) == i"), ()),
        (("if True:", "    assert candidate(1)", "assert candidate(2)"), ("assert candidate(2)",)),
        (("pass",), ("",)[:0]),
    ],
)
def test_what_tests_nothing_or_cannot_be_split_is_dropped(lines: tuple[str, ...], wanted: tuple[str, ...]) -> None:
    assert split_check(check(*lines)) == wanted


def test_code_around_the_check_is_not_part_of_it() -> None:
    text = "METADATA = {}\n\n" + check("assert candidate(1) == 1") + "\n\ncheck(print)\n"
    assert split_check(text) == ("assert candidate(1) == 1",)


def test_the_benchmark_gives_its_usable_problems(problems: list[Problem]) -> None:
    assert 140 <= len(problems) <= 164
    assert len({problem.name for problem in problems}) == len(problems)
    for problem in problems:
        assert len(problem.tests) >= MIN_TESTS
        assert ast.unparse(ast.parse(problem.source)) == problem.source
        for test in problem.tests:
            assert isinstance(ast.parse(test).body[-1], ast.Assert)
            assert "candidate" in test


def test_practice_problems_are_distinct_repeat_and_none_is_of_the_benchmark(problems: list[Problem]) -> None:
    made = list(generated())
    assert made == list(generated())
    assert len({problem.source for problem in made}) == FUNCTIONS == len(made)
    assert {len(problem.tests) for problem in made} == {TESTS}
    known = {ast.dump(ast.parse(problem.source).body[-1]) for problem in problems}
    assert not known & {ast.dump(ast.parse(problem.source).body[-1]) for problem in made}
