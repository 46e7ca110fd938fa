"""A sandbox that another process has: the same executions, errors by their parts, and nothing but programs."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ratchet.errors import SandboxError
from ratchet.sandbox import Limits, Program, Sandbox, ServedSandbox, TestCase, open_sandbox, served


@pytest.fixture(scope="module")
def real() -> Iterator[Sandbox]:
    """The sandbox that is served."""
    with open_sandbox(slots=2, limits=Limits(cpu_s=0.3, wall_s=10.0)) as opened:
        yield opened


def program(source: str, wanted: int = 1) -> Program:
    return Program(
        source=source, entry_point="f", tests=(TestCase(name="t", source=f"assert candidate() == {wanted}"),)
    )


def test_the_user_gets_what_the_owner_would(real: Sandbox, tmp_path: Path) -> None:
    programs = [program("def f(): return 1"), program("def f(): return 'ä\\n'"), program("def f():\n    while 1: pass")]
    with served(lambda: real, tmp_path / "socket") as place, ServedSandbox(place) as mine:
        assert (mine.limits, mine.slots) == (real.limits, real.slots)
        for got, want in zip(mine.run_many(programs), real.run_many(programs), strict=True):
            assert (got.passed, got.limit, got.outcomes) == (want.passed, want.limit, want.outcomes)


def test_threads_ask_at_the_same_time(real: Sandbox, tmp_path: Path) -> None:
    with served(lambda: real, tmp_path / "socket") as place, ServedSandbox(place) as mine:
        asked = [program(f"def f(): return {number}", number) for number in range(24)]
        with ThreadPoolExecutor(6) as pool:
            assert all(found.passed for found in pool.map(mine.run, asked))


def test_an_error_of_the_sandbox_comes_to_the_user_with_its_parts(tmp_path: Path) -> None:
    def broken() -> Sandbox:
        raise SandboxError("bwrap", seen="gone", rule="it must be there", remedy="install it")

    with (
        served(broken, tmp_path / "socket") as place,
        pytest.raises(SandboxError, match=r"bwrap.*gone.*it must be there; install it"),
    ):
        ServedSandbox(place)


def test_nobody_who_serves_is_told(tmp_path: Path, real: Sandbox) -> None:
    with pytest.raises(SandboxError, match="run the stage again"):
        ServedSandbox(tmp_path / "nobody")
    with served(lambda: real, tmp_path / "socket") as place:
        mine = ServedSandbox(place)
        assert mine.run(program("def f(): return 1")).passed
    with mine, ThreadPoolExecutor(1) as pool, pytest.raises(SandboxError, match="executes its programs"):
        pool.submit(mine.run, program("def f(): return 1")).result()


def test_an_owner_who_does_not_answer_is_left_and_what_he_says_late_answers_nothing(
    real: Sandbox, tmp_path: Path
) -> None:
    late = threading.Event()
    stuck = False

    def hanging() -> Sandbox:
        if stuck:
            late.wait(60)
        return real

    with served(hanging, tmp_path / "socket") as place, ServedSandbox(place, patience_s=2.0) as mine:
        stuck = True
        with pytest.raises(SandboxError, match=r"timed out.*run the stage again"):
            mine.run(program("def f(): return 1"))
        stuck = False
        late.set()
        assert not mine.run(program("def f(): return 2")).passed


@pytest.mark.parametrize(
    "line", [b"\x80\x04.", b"nonsense", b"[]", b'{"programs": 3}', b'{"programs": [{"source": "x"}]}', b"{}"]
)
def test_whatever_else_is_sent_executes_nothing(real: Sandbox, tmp_path: Path, line: bytes) -> None:
    with served(lambda: real, tmp_path / "socket") as place, socket.socket(socket.AF_UNIX) as mine:
        mine.connect(str(place))
        mine.sendall(line + b"\n")
        answer = json.loads(mine.makefile("rb").readline())
    assert answer["error"]["rule"].startswith("it is asked with programs")
