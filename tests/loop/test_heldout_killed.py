"""A held-out evaluation that is killed again and again: nothing missing, nothing double, nothing opened twice.

As a program it makes the held-out rows of a home, a few runs at a time, so that a kill falls among them.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from loop_world import MANIFEST, ROOT

from ratchet.errors import IntegrityError, TooManyInvalid
from ratchet.evaluation import run as running
from ratchet.evaluation.openings import openings
from ratchet.evaluation.rows import EvaluationRow
from ratchet.loop import deciding, judging
from ratchet.loop.context import Run, reopen_run

KILLS = 4


def start(home: Path) -> subprocess.Popen[bytes]:
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    return subprocess.Popen(
        [sys.executable, __file__, str(home)],
        cwd=ROOT, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip


def forgotten(run: Run) -> None:
    """Leave the home as it is before its evaluation."""
    run.store.delete_all("heldout/evaluation")
    run.store.delete_all("evaluation")
    run.store.delete_all("openings")
    (run.home / "heldout" / "executions.db").unlink(missing_ok=True)


def held(run: Run) -> list[EvaluationRow]:
    what = judging.evaluation_plan(run)
    return [row for policy in judging.policies(run) for row in judging.row_store(run, policy, what).read()]


def outcome(row: EvaluationRow) -> dict[str, object]:
    return row.model_dump(exclude={"latency_s", "sandbox_s", "verifier_s"})


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_rows_of_an_evaluation_that_was_killed_at_random_are_those_of_one_that_was_not(done: Path) -> None:
    seed = random.randrange(10**6)
    rng = random.Random(seed)
    print(f"seed {seed}")
    with reopen_run(done, MANIFEST.run_id) as run:
        whole = held(run)
        forgotten(run)
        counts = []
        for _ in range(KILLS):
            process, wanted = start(done), len(run.store.names("heldout/evaluation")) + rng.randrange(1, 5)
            deadline = time.monotonic() + 300.0
            while len(run.store.names("heldout/evaluation")) < wanted and process.poll() is None:
                assert time.monotonic() < deadline
                time.sleep(0.005)
            time.sleep(rng.uniform(0.0, 0.4))
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            counts.append(len(held(run)))
        assert counts == sorted(counts)
        assert counts[0] > 0
        said = start(done).communicate(timeout=600)
        assert said[0].decode().strip() == "False", said[1].decode()[-2000:]
        rows = held(run)
        assert [outcome(row) for row in rows] == [outcome(row) for row in whole]
        what = judging.evaluation_plan(run)
        for policy in judging.policies(run):
            store = judging.row_store(run, policy, what)
            listed = [tuple(one) for entry in store.index.read() for one in entry.content["rows"]]
            assert len(listed) == len({one[:3] for one in listed}) == len(store.complete())
        found = openings(run.store, run.lock.heldout)
        assert sorted(one.policy_digest for one in found) == sorted(one.digest for one in judging.policies(run))
        assert judging.heldout_rows(run).reused
        assert openings(run.store, run.lock.heldout) == found


def test_an_opening_is_in_the_log_before_the_first_held_out_task_is_read(done: Path) -> None:
    with reopen_run(done, MANIFEST.run_id) as run:
        forgotten(run)
        heldout = run.lock.heldout
        catalogue = run.store.path(run.name("tasks.jsonl"))  # type: ignore[attr-defined]

        def read() -> None:
            raise IntegrityError("first read", rule="it is watched", remedy="none")

        run.heldout_tasks = read  # type: ignore[assignment, method-assign]
        with pytest.raises(IntegrityError, match="first read"):
            judging.heldout_rows(run)
        assert catalogue.exists()
        assert [one.policy for one in openings(run.store, heldout)] == ["baseline", "sft", "grpo"]
        assert run.store.names("heldout/evaluation") == []


def test_too_many_invalid_runs_stop_the_stage_and_too_many_invalid_tasks_void_the_decision(
    done: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1 of 32 runs is over the share of runs that may be invalid; where that is raised, 1 of 16 tasks is over 1 %."""
    with reopen_run(done, MANIFEST.run_id) as run:
        sft = judging.policies(run)[1]
        store = judging.row_store(run, sft)
        first, *others = store.complete()
        run.store.delete_all(store.prefix)
        run.store.delete(store.index.head)
        lost = {"status": "invalid", "invalid_reason": "sandbox: the disk was full", "reward": None, "parts": {}}
        store.append([first.model_copy(update=lost | {"attempts": 99}), *others])
        monkeypatch.setattr(running, "attempts_allowed", lambda *_: 1)
        monkeypatch.setattr(judging, "attempts_allowed", lambda *_: 0)
        run.store.delete_all(run.name("scorecards"))
        for name in ("decision.json", "report.json"):
            run.store.delete(run.name(name))
        judging.heldout_scorecard(run)
        with pytest.raises(TooManyInvalid, match="the disk was full"):
            running.refuse_excess("held-out runs of sft", running.failed(store.complete()), 0.02)
        deciding.release_decision(run)
        decision = deciding.open_decision(run)
        assert decision.state == "reject"
        (rule,) = [rule for rule in decision.rules if rule.name == "evaluation_not_void"]
        if decision.candidate == "sft":
            assert not rule.passed
            assert "1 of 16 tasks of 'sft' stay invalid" in rule.reason
            assert "the disk was full" in rule.reason


if __name__ == "__main__":
    running.CHUNK = 3
    with reopen_run(Path(sys.argv[1]), MANIFEST.run_id) as opened:
        print(judging.heldout_rows(opened).reused, flush=True)
