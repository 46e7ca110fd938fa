"""The rows of a held-out evaluation: what one policy did on one task under one seed, kept for good.

Rows are stored append-only, as JSONL parts that are written once; totals would not be enough for a paired test. The key
of a row is (evaluation, task, seed, policy digest, harness digest), and the evaluation is the digest of its plan, so
rows of another lock, environment version, reward or set of seeds can never be mixed in. An index, chained and only ever
added to, lists the digest of every part and row: what was changed or taken away afterwards is named, not run again.

Retries: an invalid outcome may be superseded by a later attempt, a valid outcome by nothing (nobody re-rolls a rejected
run until it is accepted). Every stored row carries the number of its last attempt, and its resources are those spent
since the stored row before it. Reading reduces the rows of a key to one: the outcome of the last attempt, with the
resources of all of them, because failed and retried runs are paid for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

from pydantic import Field, ValidationError, model_validator

from ratchet.contracts.canonical import canonical_json, digest, digest_bytes
from ratchet.contracts.model import Contract
from ratchet.errors import EvaluationError, IntegrityError
from ratchet.store import Store
from ratchet.store.chain import Chain, Entry
from ratchet.store.heldout import PREFIX as HELDOUT

RESOURCES = ("tokens_in", "tokens_out", "sandbox_s", "verifier_s", "judge_calls")
SHOWN = 5
"""Rows that are named where a whole part of them is damaged."""


class PlannedTask(Contract):
    """A held-out task, as the lock pins it."""

    task_id: str = Field(min_length=1, description="Identity of the task.")
    task_digest: str = Field(min_length=1, description="SHA-256 of the whole task.")
    repo: str = Field(min_length=1, description="Cluster of the task.")
    segment: str = Field(min_length=1, description="Slice it is reported under.")


class EvaluationPlan(Contract):
    """What every arm of a comparison runs. Its digest is the identity of the evaluation."""

    lock_digest: str = Field(description="Digest of the split lock.")
    environment_digest: str = Field(description="Digest of environment, version and permissions.")
    reward_digest: str = Field(description="Digest of the verifier suite and reward.")
    tasks: tuple[PlannedTask, ...] = Field(min_length=1, description="Held-out tasks.")
    seeds: tuple[int, ...] = Field(min_length=1, description="Seeds of every task.")
    engine: str = Field(default="transformers", description="What samples every arm; each draws differently.")

    @model_validator(mode="after")
    def _no_double(self) -> EvaluationPlan:
        if len({task.task_id for task in self.tasks}) < len(self.tasks) or len(set(self.seeds)) < len(self.seeds):
            raise ValueError("a task or a seed occurs twice")
        return self

    @property
    def digest(self) -> str:
        """SHA-256 of the plan, computed anew each time: take it once per evaluation, not once per row."""
        return digest(self)


class Gap(NamedTuple):
    """A run that has to be made: `attempt` is 1, or one more than the attempts that stayed invalid."""

    task_id: str
    seed: int
    attempt: int


class EvaluationRow(Contract):
    """One run of one policy on one held-out task."""

    evaluation: str = Field(description="Digest of the evaluation plan.")
    task_id: str = Field(description="Task that was attempted.")
    task_digest: str = Field(description="SHA-256 of the whole task, as the lock pins it.")
    repo: str = Field(description="Cluster of the task.")
    segment: str = Field(description="Slice of the task.")
    seed: int = Field(description="Seed of the episode.")
    policy: str = Field(min_length=1, description="Name of the policy.")
    policy_digest: str = Field(min_length=1, description="Digest of weights and harness.")
    harness_digest: str = Field(min_length=1, description="Digest of the harness.")
    status: Literal["accepted", "rejected", "invalid"] = Field(
        description="Outcome; invalid says nothing of the policy."
    )
    invalid_reason: str | None = Field(default=None, description="What failed, where the run is invalid.")
    submitted: bool = Field(description="Whether the deliverable was handed in.")
    visible_passed: bool | None = Field(default=None, description="Result of the visible tests, where they ran last.")
    reward: float | None = Field(default=None, allow_inf_nan=False, description="Composite reward, or None if invalid.")
    calls: int = Field(ge=0, description="Tool calls made, refused and malformed ones included.")
    ok_calls: int = Field(ge=0, description="Calls that were well-formed, permitted and succeeded.")
    matched_calls: int | None = Field(
        default=None, ge=0, description="Calls that match a reference call of the task; None where it carries none."
    )
    violations: tuple[str, ...] = Field(default=(), description="Policy rules that were broken, one entry each time.")
    exploit: bool = Field(default=False, description="Whether a honeypot was touched.")
    exploits: dict[str, str] = Field(default_factory=dict, description="Kinds of exploit, each with what was seen.")
    parts: dict[str, float] = Field(
        default_factory=dict, description="Values of the parts of reward and acceptance, by name; none where invalid."
    )
    tokens_in: int = Field(ge=0, description="Tokens read, since the stored row before it.")
    tokens_out: int = Field(ge=0, description="Tokens sampled, likewise.")
    sandbox_s: float = Field(ge=0, allow_inf_nan=False, description="Sandbox CPU seconds, likewise.")
    verifier_s: float = Field(ge=0, allow_inf_nan=False, description="Verifier CPU seconds, likewise.")
    judge_calls: int = Field(default=0, ge=0, description="Judged items, likewise.")
    latency_s: float = Field(ge=0, allow_inf_nan=False, description="Wall clock of the last attempt, seconds.")
    attempts: int = Field(default=1, ge=1, description="Attempts so far, this one included.")

    @model_validator(mode="after")
    def _consistent(self) -> EvaluationRow:
        if (self.status == "invalid") != (self.invalid_reason is not None):
            raise ValueError("invalid_reason is given exactly where the status is invalid")
        if self.ok_calls > self.calls:
            raise ValueError("ok_calls cannot exceed calls")
        if (self.matched_calls or 0) > self.ok_calls:
            raise ValueError("matched_calls cannot exceed ok_calls: a call that failed matches nothing")
        return self

    @property
    def key(self) -> tuple[str, str, int, str, str]:
        """Evaluation, task, seed, policy digest, harness digest."""
        return (self.evaluation, self.task_id, self.seed, self.policy_digest, self.harness_digest)


def rows_digest(rows: Iterable[EvaluationRow]) -> str:
    """SHA-256 of a set of rows, in any order."""
    return digest(sorted(digest(row) for row in rows))


class _Indexed(NamedTuple):
    """What the index knows of the stored rows."""

    parts: dict[str, list[str]]
    """Names of the rows of every part, as people read them, by the part's name, in the order they were stored."""
    rows: dict[tuple[str, int, int], str]
    """Digest of every row by task, seed and attempt."""


class RowStore:
    """Append-only rows of one policy under one harness in one evaluation.

    Different policies never share a folder, so that their workers never meet. All of it is held out from training.
    """

    def __init__(self, store: Store, plan: EvaluationPlan, policy_digest: str, harness_digest: str) -> None:
        """Open the rows of an arm. Nothing is written before `append`."""
        self.store, self.plan = store, plan
        self.policy_digest, self.harness_digest = policy_digest, harness_digest
        self.evaluation = plan.digest
        own = f"evaluation/{self.evaluation}/{policy_digest}/{harness_digest}"
        self.prefix = f"{HELDOUT}/{own}"
        self.index = Chain(store, f"{self.prefix}/index", f"{own}.head")
        self._tasks = {task.task_id: task for task in plan.tasks}

    def append(self, rows: Sequence[EvaluationRow]) -> str:
        """Store rows as one part and return its name. Rows that are stored already change nothing.

        Raises:
            EvaluationError: a row is foreign to this evaluation or arm, or differs from the stored one of its attempt.
            IntegrityError: as `read`.
        """
        for row in rows:
            self._refuse_foreign(row, "the rows to append")
        self.settle()
        held = self._indexed().rows
        fresh = [row for row in rows if self._is_new(row, held, "the rows to append")]
        data = "".join(canonical_json(row) + "\n" for row in fresh or rows).encode()
        name = f"{self.prefix}/parts/{digest_bytes(data)}.jsonl"
        if fresh:
            self.store.create_same(name, data)
            try:
                self.settle()
            except EvaluationError:
                # Another machine's run of the same attempts was entered meanwhile: theirs stand.
                self.store.delete(name)
                raise
        return name

    def settle(self) -> None:
        """Enter into the index the parts that were stored by somebody who did not come to enter them.

        Raises:
            EvaluationError: a row of such a part differs from the stored one of its attempt.
        """
        for name in self.parts():

            def entry(found: list[Entry], name: str = name) -> dict[str, Any] | None:
                held = self._listed(found)
                if name in held.parts:
                    return None
                rows = self._part(name, [])
                for row in rows:
                    self._is_new(row, held.rows, name)
                return {
                    "part": name,
                    "rows": [[row.task_id, row.seed, row.attempts, digest(row)] for row in rows],
                }

            if name not in self._indexed().parts:
                self.index.append(entry)

    def missing(self, max_attempts: int = 1) -> list[Gap]:
        """Return the runs to make, in the plan's order: absent ones, and invalid ones with attempts left.

        Args:
            max_attempts: attempts that a run may take in all, over every resumption (1 + the manifest's retries).
        """
        held = {(row.task_id, row.seed): row for row in self.read()}
        gaps = []
        for task in self.plan.tasks:
            for seed in self.plan.seeds:
                row = held.get((task.task_id, seed))
                if row is None:
                    gaps.append(Gap(task.task_id, seed, 1))
                elif row.status == "invalid" and row.attempts < max_attempts:
                    gaps.append(Gap(task.task_id, seed, row.attempts + 1))
        return gaps

    def read(self) -> list[EvaluationRow]:
        """Return the rows held so far, one per task and seed, in the plan's order.

        Raises:
            IntegrityError: a part, or an entry of the index, was changed or is missing; it is named with its rows.
            EvaluationError: a row is foreign, two rows of one attempt differ, or a valid outcome was superseded.
        """
        found: dict[tuple[str, int], dict[int, EvaluationRow]] = {}
        indexed, stored = self._indexed(), self.parts()
        for name in dict.fromkeys((*indexed.parts, *stored)):
            listed = indexed.parts.get(name, [])
            if name not in stored:
                raise IntegrityError(
                    f"{name} with {_told(listed)}",
                    rule="rows are only ever added, and this part of them is missing",
                    remedy="restore it from a version or a backup of the store; what was seen is not run again",
                )
            for row in self._part(name, listed):
                self._refuse_foreign(row, name)
                attempts = found.setdefault((row.task_id, row.seed), {})
                if attempts.setdefault(row.attempts, row) != row:
                    raise _doubled(row, name)
        order = [(task.task_id, seed) for task in self.plan.tasks for seed in self.plan.seeds]
        return [_reduced(found[key]) for key in order if key in found]

    def complete(self) -> list[EvaluationRow]:
        """Return all rows of the arm.

        Raises:
            EvaluationError: a task-seed pair is missing (or as in `read`).
        """
        rows = self.read()
        wanted = len(self.plan.tasks) * len(self.plan.seeds)
        if len(rows) < wanted:
            gap = self.missing()[0]
            raise EvaluationError(
                f"evaluation {self.evaluation[:12]} of policy {self.policy_digest[:12]}",
                seen=f"{len(rows)} of {wanted} rows",
                rule=f"every task and seed needs a row, and task {gap.task_id!r} seed {gap.seed} has none",
                remedy="run the evaluation again; it fills the gaps",
            )
        return rows

    def parts(self) -> list[str]:
        """Names of the stored parts, to copy or digest them."""
        return self.store.names(f"{self.prefix}/parts")

    def _indexed(self) -> _Indexed:
        return self._listed(self.index.read())

    def _listed(self, entries: list[Entry]) -> _Indexed:
        known = _Indexed({}, {})
        for entry in entries:
            rows = [(task_id, seed, attempt, value) for task_id, seed, attempt, value in entry.content["rows"]]
            known.parts[entry.content["part"]] = [f"task {task_id!r} seed {seed}" for task_id, seed, *_ in rows]
            known.rows.update({(task_id, seed, attempt): value for task_id, seed, attempt, value in rows})
        return known

    def _part(self, name: str, listed: Sequence[str]) -> list[EvaluationRow]:
        culprit = f"{name} with {_told(listed)}" if listed else name
        remedy = "restore the part from a version or a backup of the store; what was seen is not run again"
        try:
            data = self.store.read(name)
        except IntegrityError as error:
            raise IntegrityError(culprit, rule=error.rule, remedy=remedy) from None
        if digest_bytes(data) != name.rsplit("/", 1)[-1].removesuffix(".jsonl"):
            raise IntegrityError(culprit, rule="the part must match the digest it is named by", remedy=remedy)
        try:
            return [EvaluationRow.model_validate_json(line) for line in data.splitlines()]
        except ValidationError as error:
            raise IntegrityError(culprit, rule=f"every line must be a row ({error})", remedy=remedy) from None

    def _is_new(self, row: EvaluationRow, held: dict[tuple[str, int, int], str], source: str) -> bool:
        known = held.get((row.task_id, row.seed, row.attempts))
        if known not in (None, digest(row)):
            raise _doubled(row, source)
        return known is None

    def _refuse_foreign(self, row: EvaluationRow, source: str) -> None:
        task = self._tasks.get(row.task_id)
        mine = (self.evaluation, self.policy_digest, self.harness_digest)
        if (row.evaluation, row.policy_digest, row.harness_digest) != mine:
            rule = "it belongs to another evaluation, policy or harness"
        elif task is None or row.seed not in self.plan.seeds:
            rule = "the plan has no such task and seed"
        elif (row.task_digest, row.repo, row.segment) != (task.task_digest, task.repo, task.segment):
            rule = "the task is not the one that the lock pins"
        else:
            return
        raise EvaluationError(
            f"row of task {row.task_id!r} seed {row.seed} in {source}",
            rule=rule,
            remedy="evaluate the locked tasks with the plan's seeds, and keep other rows elsewhere",
        )


def _told(rows: Sequence[str]) -> str:
    return ", ".join(rows[:SHOWN]) + (f" and {len(rows) - SHOWN} more" if len(rows) > SHOWN else "")


def _doubled(row: EvaluationRow, source: str) -> EvaluationError:
    return EvaluationError(
        f"task {row.task_id!r} seed {row.seed} in {source}",
        rule="one attempt at a task and seed has one row, and two different ones are stored",
        remedy="two runs wrote the same evaluation; move one run's part out of the store",
    )


def _reduced(attempts: dict[int, EvaluationRow]) -> EvaluationRow:
    """Reduce the stored rows of one key to the last outcome with the resources of all."""
    *earlier, last = (attempts[number] for number in sorted(attempts))
    for row in earlier:
        if row.status != "invalid":
            raise EvaluationError(
                f"task {row.task_id!r} seed {row.seed}",
                seen=f"{row.status} at attempt {row.attempts}, then attempt {last.attempts}",
                rule="only an invalid outcome may be superseded by a retry",
                remedy="keep the first valid outcome; move the later part out of the store",
            )
    if not earlier:
        return last
    spent = {name: sum(getattr(row, name) for row in (*earlier, last)) for name in RESOURCES}
    return last.model_copy(update=spent)
