"""The remembering sandbox: what is executed once, what is never remembered, and the counters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ratchet.sandbox import Limits, MemoSandbox, Program, TestCase, open_sandbox


@pytest.fixture
def memo() -> Iterator[MemoSandbox]:
    with MemoSandbox(open_sandbox(slots=2, limits=Limits(cpu_s=0.2, wall_s=3))) as sandbox:
        yield sandbox


def _program(source: str, *, repeatable: bool = True) -> Program:
    tests = (TestCase(name="t", source="assert candidate() == 1"),)
    return Program(source=source, entry_point="f", tests=tests, repeatable=repeatable)


def test_same_program_runs_once(memo: MemoSandbox) -> None:
    program = _program("def f(): return 1")
    first, second = memo.run_many([program, program])
    assert first == second == memo.run(program)
    assert (memo.hits, memo.misses) == (2, 1)


def test_other_source_other_tests_and_other_support_run(memo: MemoSandbox) -> None:
    program = _program("def f(): return 1")
    other_tests = program.model_copy(update={"tests": (TestCase(name="t", source="assert candidate() == 2"),)})
    supported = program.model_copy(update={"support": "x = 1"})
    executions = memo.run_many([program, _program("def f(): return 2"), other_tests, supported])
    assert [execution.passed for execution in executions] == [True, False, False, True]
    assert memo.misses == 4


def test_failures_are_remembered_too(memo: MemoSandbox) -> None:
    program = _program("def f(): return 2")
    assert memo.run(program) == memo.run(program)
    assert memo.hits == 1


def test_endless_loop_is_remembered_once_it_hit_the_processor_limit_twice(memo: MemoSandbox) -> None:
    program = _program("def f():\n    while True: pass")
    assert [memo.run(program).limit for _ in range(3)] == ["cpu", "cpu", "cpu"]
    assert (memo.hits, memo.misses) == (1, 2)


def test_execution_that_hit_another_limit_is_never_remembered(memo: MemoSandbox) -> None:
    program = _program("import os\ndef f(): os._exit(0)")
    assert [memo.run(program).limit for _ in range(3)] == ["exited"] * 3
    assert (memo.hits, memo.misses) == (0, 3)


def test_unrepeatable_program_runs_each_time(memo: MemoSandbox) -> None:
    program = _program("import os\ndef f(): return os.urandom(8)", repeatable=False)
    values = {execution.outcomes[0].last_value for execution in [*memo.run_many([program] * 3), memo.run(program)]}
    assert len(values) == 4
    assert memo.misses == 4


def test_order_is_kept_among_known_and_new(memo: MemoSandbox) -> None:
    programs = [_program(f"def f(): return {n}") for n in range(6)]
    memo.run_many(programs[::2])
    assert [execution.outcomes[0].last_value for execution in memo.run_many(programs)] == [str(n) for n in range(6)]
    assert (memo.hits, memo.misses) == (3, 6)


def test_the_longest_unused_is_forgotten_first() -> None:
    with MemoSandbox(open_sandbox(slots=1), capacity=2) as memo:
        a, b, c = (_program(f"def f(): return {n}") for n in range(3))
        for program in (a, b, a, c, a, b):
            memo.run(program)
        assert (memo.hits, memo.misses) == (2, 4)


def test_file_keeps_executions_for_the_next_process(tmp_path: Path) -> None:
    program = _program("def f(): return 11")
    limits, file = Limits(cpu_s=0.2, wall_s=3), tmp_path / "memo.db"
    first, second = (MemoSandbox(open_sandbox(slots=1, limits=limits), file=file) for _ in range(2))
    with first, second:
        assert first.run(program) == second.run(program)
        assert (first.misses, second.misses, second.hits) == (1, 0, 1)
