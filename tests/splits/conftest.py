"""Fixtures that several tests of the splits share."""

from __future__ import annotations

import pytest
from split_tasks import made_with, task

from ratchet.contracts.environment import Task
from ratchet.splits import SplitLock


@pytest.fixture(scope="module")
def named() -> tuple[SplitLock, list[Task]]:
    sha = "3f2a9c" + "d1e4" * 8 + "ab"
    pool = [task(f"t{number}", f"the loop number {number} is wrong") for number in range(6)]
    pool.append(
        task(
            "HumanEval/1/4",
            "short text",
            repo="HumanEval/1",
            issue="Owner/Tool#12",
            base_commit=sha,
            url="https://bugs.example.org/show/881",
        )
    )
    return next(
        (locked, pool)
        for locked in (made_with(pool, seed) for seed in range(40))
        if "HumanEval/1/4" in dict(locked.heldout)
    )
