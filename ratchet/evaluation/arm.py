"""The complete rows of one policy as aligned arrays, whatever order they came in.

An arm refuses rows that do not belong together: of two evaluations or policies, double, or with a task-seed pair
missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ratchet.contracts.score import NotComputable, Quantity
from ratchet.errors import EvaluationError
from ratchet.evaluation.reducers import Floats, majority, mean_of_seeds
from ratchet.evaluation.rows import EvaluationRow, rows_digest

OUTCOME = {"accepted": 1.0, "rejected": 0.0, "invalid": np.nan}


class Arm:
    """Rows of one policy in one evaluation: tasks sorted by id, seeds ascending, clusters (repos) sorted by name."""

    def __init__(self, rows: Iterable[EvaluationRow], name: str | None = None) -> None:
        """Align `rows`, one per task and seed; `name` is the policy's, where its rows bear another name of it.

        Raises:
            EvaluationError: there are none, they mix evaluations or policies, or a pair is missing or double.
        """
        self.rows = sorted(rows, key=lambda row: (row.task_id, row.seed))
        if not self.rows:
            raise _refusal("a scorecard", "it needs the rows of an evaluation, and there are none")
        first = self.rows[0]
        self.policy = name or first.policy
        self.policy_digest, self.harness_digest = first.policy_digest, first.harness_digest
        self.evaluation = first.evaluation
        if len({(row.evaluation, row.policy, row.policy_digest, row.harness_digest) for row in self.rows}) > 1:
            raise _refusal(
                f"rows of policy {first.policy!r}", "all rows of an arm share evaluation, policy and harness"
            )
        self.seeds = tuple(sorted({row.seed for row in self.rows}))
        self.tasks = tuple(sorted({row.task_id for row in self.rows}))
        pairs = Counter((row.task_id, row.seed) for row in self.rows)
        double = [pair for pair, count in pairs.items() if count > 1]
        if double or len(pairs) != len(self.tasks) * len(self.seeds):
            what = f"{double[0]} is double" if double else "a pair is missing"
            raise _refusal(f"rows of policy {first.policy!r}", f"every task and seed has exactly one row, and {what}")
        firsts = self.rows[:: len(self.seeds)]
        self.repos = np.array([row.repo for row in firsts])
        self.segments = np.array([row.segment for row in firsts])
        self.identity = tuple((row.task_id, row.task_digest, row.repo, row.segment) for row in firsts)
        self.clusters, self._cluster_of = np.unique(self.repos, return_inverse=True)
        self.outcomes = self.per_run(lambda row: OUTCOME[row.status])
        self.majority = majority(self.outcomes)
        self.mean = mean_of_seeds(self.outcomes)
        self.valid = [row for row in self.rows if row.status != "invalid"]

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the rows, in any order."""
        return rows_digest(self.rows)

    @property
    def n(self) -> int:
        """Tasks."""
        return len(self.tasks)

    def per_run(self, value: Callable[[EvaluationRow], float]) -> Floats:
        """Return `(tasks, seeds)` of a figure of each row."""
        return np.array([value(row) for row in self.rows], dtype=np.float64).reshape(self.n, len(self.seeds))

    def by_cluster(self, *columns: Floats | NDArray[np.bool_]) -> Floats:
        """Sum `(tasks,)` columns over the tasks of each cluster: `(clusters, k)`."""
        count = len(self.clusters)
        return np.stack([np.bincount(self._cluster_of, weights=column, minlength=count) for column in columns], axis=1)

    @cached_property
    def invalid_tasks(self) -> int:
        """Tasks of which at least one seed stays invalid."""
        return int(np.isnan(self.outcomes).any(axis=1).sum())

    def void(self, max_share: float) -> NotComputable | None:
        """Say why the evaluation is void, or None where it stands.

        Args:
            max_share: share of tasks that may stay invalid.
        """
        if self.invalid_tasks <= max_share * self.n:
            return None
        reasons = Counter(row.invalid_reason for row in self.rows if row.invalid_reason)
        common = max(reasons, key=lambda reason: (reasons[reason], reason))
        return NotComputable(
            reason=f"evaluation void: {self.invalid_tasks} of {self.n} tasks of {self.policy!r} stay invalid, "
            f"over {max_share:.1%}; most often: {common}"
        )

    def refuse_unlike(self, other: Arm) -> None:
        """Raise EvaluationError unless both arms ran the same tasks and seeds in the same evaluation."""
        if (self.evaluation, self.identity, self.seeds) != (other.evaluation, other.identity, other.seeds):
            raise _refusal(
                f"policies {self.policy!r} and {other.policy!r}",
                "arms are compared on the same tasks, seeds, environment and verifiers of one evaluation",
            )


def share(numerator: float, denominator: float, otherwise: str) -> Quantity:
    """Divide, or say why there is nothing to divide by."""
    return numerator / denominator if denominator else NotComputable(reason=otherwise)


def _refusal(culprit: str, rule: str) -> EvaluationError:
    return EvaluationError(culprit, rule=rule, remedy="run the evaluation again; it fills its gaps and keeps its rows")
