"""Executions per second and core: the warm sandbox beside a fresh bwrap and Python per execution, in one run.

Both execute the same program with the same five assertions under the same bwrap arguments, uid drop and seccomp filter,
pinned to one core, in alternating blocks. The peer even does less: it runs program and tests in one process, where
the program could forge the verdict. Rates are per second of processor time, so that a busy machine does not change
them; the wall clock's rates are given as well.

    python benchmarks/sandbox.py [--rounds 5]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from ratchet.sandbox import Limits, Program, TestCase, launch
from ratchet.sandbox.bubblewrap import BubblewrapSandbox
from ratchet.sandbox.syscalls import filter_program

RESULTS = Path(__file__).parent / "results" / "sandbox.json"
PROGRAM = Program(
    source="""
from typing import List

def below_threshold(numbers: List[float], threshold: float) -> List[float]:
    kept = []
    for number in numbers:
        if number < threshold:
            kept.append(number)
    return sorted(kept)
""",
    entry_point="below_threshold",
    tests=tuple(
        TestCase(name=f"test {n}", source=f"assert candidate([3.0, 1.0, {n}.5, 9.0], {n}) == {sorted(expected)}")
        for n, expected in enumerate([[], [], [1.0], [1.0], [3.0, 1.0]])
    ),
)
_FRESH = """
import sys
source, tests = eval(sys.stdin.read())
scope = {}
exec(compile(source, "<program>", "exec"), scope)
scope["candidate"] = scope["below_threshold"]
for test in tests:
    exec(compile(test, "<test>", "exec"), dict(scope))
print("passed")
"""
_HERTZ = os.sysconf("SC_CLK_TCK")


class Cost(NamedTuple):
    """What a block of executions took."""

    executions: int
    cpu_s: float
    wall_s: float

    def __add__(self, other: object) -> Cost:
        assert isinstance(other, Cost)
        return Cost(*(a + b for a, b in zip(self, other, strict=True)))


def fresh(count: int) -> Cost:
    """Execute `count` times, each in a bwrap and a Python of its own."""
    text = repr((PROGRAM.source, [test.source for test in PROGRAM.tests])).encode()
    before, started = _own_cpu_s(), time.perf_counter()
    for _ in range(count):
        with ExitStack() as stack:
            entry = launch.enter(stack, 0)
            rules = stack.enter_context(launch.data(filter_program()))
            command = [*entry.command, *launch.bwrap_arguments("benchmark", rules, {}, 16)]
            done = subprocess.run(
                [*command, launch.find_interpreter(), "-I", "-S", "-B", "-c", _FRESH],
                input=text,
                capture_output=True,
                pass_fds=[*entry.descriptors, rules],
                env=entry.environment,
                cwd="/",
            )
            assert done.stdout == b"passed\n", done.stderr
    return Cost(count, _own_cpu_s() - before, time.perf_counter() - started)


def warm(sandbox: BubblewrapSandbox, count: int) -> Cost:
    """Execute `count` times in one warm slot."""
    (slot,) = sandbox.started()
    before, started = _own_cpu_s() + _slot_cpu_s(slot.pid), time.perf_counter()
    executions = sandbox.run_many([PROGRAM] * count)
    wall_s = time.perf_counter() - started
    assert all(execution.passed for execution in executions)
    return Cost(count, _own_cpu_s() + _slot_cpu_s(slot.pid) - before, wall_s)


def _own_cpu_s() -> float:
    parts = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(part.ru_utime + part.ru_stime for part in parts)


def _slot_cpu_s(monitor: int) -> float:
    """Return the processor seconds of the warm process below bwrap's monitor and of all it has waited for."""
    (warm_process,) = Path(f"/proc/{monitor}/task/{monitor}/children").read_text().split()
    fields = Path(f"/proc/{warm_process}/stat").read_text().rpartition(")")[2].split()
    return sum(int(field) for field in fields[11:15]) / _HERTZ


def main() -> None:
    """Run both in turns, print the rows and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="alternating blocks of 30 fresh and 200 warm executions")
    rounds = parser.parse_args().rounds
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    totals = {"fresh": Cost(0, 0.0, 0.0), "warm": Cost(0, 0.0, 0.0)}
    with BubblewrapSandbox(slots=1, limits=Limits()) as sandbox:
        warm(sandbox, 20)
        for _ in range(rounds):
            totals["fresh"] += fresh(30)
            totals["warm"] += warm(sandbox, 200)
    rows = []
    for name, part in (("executions per second of processor time", "cpu_s"), ("executions per second", "wall_s")):
        figure, peer = (total.executions / getattr(total, part) for total in (totals["warm"], totals["fresh"]))
        rows.append(
            {
                "name": f"sandbox: {name}, one core, 5 assertions",
                "figure": round(figure, 1),
                "unit": "1/s",
                "peer": "fresh bwrap and python3 per execution",
                "peer_figure": round(peer, 1),
                "ratio": round(figure / peer, 2),
            }
        )
    for row in rows:
        print(f"{row['name']}: {row['figure']} against {row['peer_figure']} ({row['peer']}), {row['ratio']} x")
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
