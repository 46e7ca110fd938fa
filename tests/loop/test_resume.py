"""SIGKILL at three moments, run again each time: the same rows and the same policies as a run that nobody stopped."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from loop_world import MANIFEST, ROOT

from ratchet.loop import deciding, judging
from ratchet.loop.context import Run, open_run

MOMENTS = (r"mutants against their tests: done", r"sft: step \d", r"grpo: step \d|held-out runs")
"""What the loop says shortly before it is killed: while it locks or makes logs, trains, trains again or evaluates."""
LONGEST_S = 900.0


def start(home: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-u", str(ROOT / "tests" / "loop_world.py"), str(home)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def kill_at(home: Path, moment: str, delay_s: float) -> list[str]:
    """Start the loop and kill it a little after it says something; returns what it said."""
    process, said, deadline = start(home), [], time.monotonic() + LONGEST_S
    assert process.stdout is not None
    with process:
        for line in process.stdout:
            said.append(line)
            assert time.monotonic() < deadline, "".join(said[-20:])
            if re.search(moment, line):
                time.sleep(delay_s)
                break
        process.send_signal(signal.SIGKILL)
        process.stdout.close()
    assert process.returncode == -signal.SIGKILL, f"it ended before {moment!r} was said:\n{''.join(said[-20:])}"
    return said


def results(run: Run) -> tuple[list[str], list[dict[str, object]]]:
    """Digests of the policies, and every row without what a clock measured: the lock is dated, so the evaluation is."""
    policies = judging.policies(run)
    rows = [row for policy in policies for row in judging.row_store(run, policy).complete()]
    measured = {"evaluation", "latency_s", "sandbox_s", "verifier_s"}
    return [policy.digest for policy in policies], [row.model_dump(exclude=measured) for row in rows]


@pytest.mark.slow
def test_a_loop_that_was_killed_three_times_ends_like_one_that_was_not(tmp_path: Path, finished: Path) -> None:
    seed = random.randrange(10**6)
    rng = random.Random(seed)
    print(f"seed {seed}")
    home = tmp_path / "home"
    for moment in MOMENTS:
        kill_at(home, moment, rng.uniform(0.0, 1.5))
    process = start(home)
    shown, _ = process.communicate(timeout=LONGEST_S)
    assert process.returncode == 0, shown[-2000:]
    reused = {parts[0]: parts[1] for parts in map(str.split, shown.splitlines()) if len(parts) == 3}
    assert reused["task_catalogue"] == reused["split_lock"] == reused["landing_logs"] == reused["sft"] == "True"
    with open_run(finished, MANIFEST) as run:
        policies, rows = results(run)
    with open_run(home, MANIFEST) as run:
        own_policies, own_rows = results(run)
        wanted = len(MANIFEST.evaluation.seeds) * MANIFEST.splits.heldout
        keys = [(row["policy"], row["task_id"], row["seed"]) for row in own_rows]
        assert len(keys) == len(set(keys)) == 3 * wanted
        stored = [run.store.names(judging.row_store(run, policy).prefix) for policy in judging.policies(run)]
        lines = sum(run.store.read(name).count(b"\n") for names in stored for name in names)
        assert lines == 3 * wanted, "no row was stored twice"
        assert deciding.open_decision(run).candidate
    assert own_policies == policies
    assert own_rows == rows
