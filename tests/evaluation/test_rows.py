"""The row store: append-only, gaps filled, nothing double, foreign or re-rolled."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from heldout_rows import plan, row, rows
from pydantic import ValidationError

from ratchet.contracts.canonical import digest
from ratchet.errors import EvaluationError, IntegrityError
from ratchet.evaluation.rows import EvaluationPlan, Gap, RowStore, rows_digest
from ratchet.store import Store

PLAN = plan(3, 2)


def arm(tmp_path: Path, planned: EvaluationPlan = PLAN) -> RowStore:
    return RowStore(Store(tmp_path), planned, digest("candidate"), "harness")


def test_a_resumed_evaluation_fills_exactly_the_gaps(tmp_path: Path) -> None:
    store = arm(tmp_path)
    assert len(store.missing()) == 6
    store.append([row(PLAN, 1, 0, "accepted"), row(PLAN, 2, 1, "rejected")])
    gaps = arm(tmp_path).missing()
    assert [(gap.task_id, gap.seed) for gap in gaps] == [
        ("task-0000", 0),
        ("task-0000", 1),
        ("task-0001", 1),
        ("task-0002", 0),
    ]
    store.append([row(PLAN, int(gap.task_id[-1]), gap.seed, "rejected") for gap in gaps])
    assert store.missing() == []
    assert [(held.task_id, held.seed) for held in store.complete()] == [
        (task.task_id, seed) for task in PLAN.tasks for seed in PLAN.seeds
    ]


def test_an_incomplete_evaluation_is_not_read_as_complete(tmp_path: Path) -> None:
    store = arm(tmp_path)
    store.append(rows(PLAN, [[1, 0]] * 3)[:-1])
    with pytest.raises(EvaluationError, match=r"'5 of 6 rows'.*task 'task-0002' seed 1 has none"):
        store.complete()


def test_the_same_part_again_changes_nothing(tmp_path: Path) -> None:
    store = arm(tmp_path)
    part = rows(PLAN, [[1, 0]] * 3)
    assert store.append(part) == store.append(part)
    store.append(part[:2])
    assert store.complete() == part


def test_one_attempt_with_two_outcomes_is_refused_and_the_first_stands(tmp_path: Path) -> None:
    store = arm(tmp_path)
    first = row(PLAN, 0, 0, "accepted")
    store.append([first])
    with pytest.raises(EvaluationError, match=r"'task-0000' seed 0.*one row, and two different"):
        store.append([row(PLAN, 0, 1, "accepted"), row(PLAN, 0, 0, "rejected")])
    assert store.read() == [first]


def test_two_outcomes_that_were_both_stored_are_refused(tmp_path: Path) -> None:
    store, elsewhere = arm(tmp_path / "here"), arm(tmp_path / "there")
    store.append([row(PLAN, 0, 0, "accepted")])
    name = elsewhere.append([row(PLAN, 0, 0, "rejected")])
    store.store.create(name, elsewhere.store.read(name))
    for look in (store.read, store.settle):
        with pytest.raises(EvaluationError, match=r"'task-0000' seed 0.*one row, and two different"):
            look()


def test_an_invalid_outcome_is_superseded_and_its_resources_are_kept(tmp_path: Path) -> None:
    store = arm(tmp_path)
    store.append([row(PLAN, 0, 0, "invalid", attempts=2, tokens_in=70, sandbox_s=1.0)])
    assert store.missing(max_attempts=2)[0] == Gap("task-0000", 1, 1)
    assert store.missing(max_attempts=3)[0] == Gap("task-0000", 0, 3)
    store.append([row(PLAN, 0, 0, "accepted", attempts=3, tokens_in=100, sandbox_s=2.0)])
    (held,) = store.read()
    assert (held.status, held.attempts, held.tokens_in, held.sandbox_s) == ("accepted", 3, 170, 3.0)
    assert store.missing(max_attempts=9)[0] == Gap("task-0000", 1, 1)


def test_a_rejected_run_cannot_be_rolled_again(tmp_path: Path) -> None:
    store = arm(tmp_path)
    store.append([row(PLAN, 0, 0, "rejected")])
    store.append([row(PLAN, 0, 0, "accepted", attempts=2)])
    with pytest.raises(EvaluationError, match="only an invalid outcome may be superseded"):
        store.read()


@pytest.mark.parametrize(
    ("over", "rule"),
    [
        ({"evaluation": "other"}, "another evaluation"),
        ({"policy_digest": "other"}, "another evaluation, policy"),
        ({"harness_digest": "other"}, "another evaluation, policy or harness"),
        ({"task_id": "stranger"}, "no such task and seed"),
        ({"seed": 7}, "no such task and seed"),
        ({"task_digest": "edited"}, "not the one that the lock pins"),
    ],
)
def test_foreign_rows_are_refused(tmp_path: Path, over: dict[str, object], rule: str) -> None:
    with pytest.raises(EvaluationError, match=rule):
        arm(tmp_path).append([row(PLAN, 0, 0, "accepted").model_copy(update=over)])


def test_a_foreign_part_that_was_copied_in_is_refused(tmp_path: Path) -> None:
    other = plan(2, 2)
    theirs = arm(tmp_path, other)
    name = theirs.append([row(other, 0, 0, "accepted")])
    mine = arm(tmp_path)
    mine.store.create(f"{mine.prefix}/parts/{name.rsplit('/', 1)[-1]}", mine.store.read(name))
    with pytest.raises(EvaluationError, match="another evaluation"):
        mine.read()


def test_an_edited_part_is_refused_with_the_rows_it_held(tmp_path: Path) -> None:
    store = arm(tmp_path)
    name = store.append([row(PLAN, 0, 0, "rejected"), row(PLAN, 2, 1, "accepted")])
    path = store.store.path(name)
    path.write_bytes(path.read_bytes().replace(b'"rejected"', b'"accepted"'))
    for look in (store.read, store.missing):
        with pytest.raises(IntegrityError, match=r"'task-0000' seed 0, task 'task-0002' seed 1.*match the digest"):
            look()


@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_part_that_was_taken_away_is_missed_by_name_and_never_run_again(tmp_path: Path, index: int) -> None:
    store = arm(tmp_path)
    names = [store.append([row(PLAN, task, 0, "rejected")]) for task in range(3)]
    store.store.delete(names[index])
    for look in (store.read, store.missing, store.complete):
        with pytest.raises(IntegrityError, match=rf"{names[index]} with task 'task-000{index}' seed 0.*is missing"):
            look()


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("harm", ["changed", "gone", "gone with its part"])
def test_an_entry_of_the_index_that_was_changed_or_taken_away_is_missed(tmp_path: Path, number: int, harm: str) -> None:
    store = arm(tmp_path)
    names = [store.append([row(PLAN, task, 0, "rejected")]) for task in range(3)]
    entry = f"{store.prefix}/index/{number:06d}.json"
    path = store.store.path(entry)
    if harm == "changed":
        path.write_bytes(path.read_bytes().replace(b"task-000", b"task-001"))
    else:
        path.unlink()
    if harm == "gone with its part":
        store.store.delete(names[number - 1])
    with pytest.raises(IntegrityError, match=entry):
        store.read()


def test_a_part_whose_writer_was_killed_before_the_index_knew_it_counts_and_is_entered(tmp_path: Path) -> None:
    store, elsewhere = arm(tmp_path / "here"), arm(tmp_path / "there")
    store.append([row(PLAN, 0, 0, "rejected")])
    name = elsewhere.append([row(PLAN, 1, 0, "accepted")])
    store.store.create(name, elsewhere.store.read(name))
    assert [held.task_id for held in store.read()] == ["task-0000", "task-0001"]
    store.append([row(PLAN, 2, 0, "accepted")])
    assert len(store.index.read()) == 3
    store.store.delete(name)
    with pytest.raises(IntegrityError, match=name):
        store.read()


def test_what_many_append_at_once_is_all_there_and_nothing_twice(tmp_path: Path) -> None:
    wide = plan(12, 2)

    def write(task: int) -> str:
        return arm(tmp_path, wide).append([row(wide, task % 12, seed, "rejected") for seed in (0, 1)])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(24)))
    store = arm(tmp_path, wide)
    assert len(store.complete()) == 24
    listed = [tuple(one) for entry in store.index.read() for one in entry.content["rows"]]
    assert len(listed) == len(set(listed)) == 24


def test_a_row_that_contradicts_itself_is_refused() -> None:
    for over in ({"status": "invalid", "invalid_reason": None}, {"invalid_reason": "x"}, {"ok_calls": 9}):
        with pytest.raises(ValidationError):
            row(PLAN, 0, 0, "accepted").model_validate({**row(PLAN, 0, 0, "accepted").model_dump(), **over})


def test_a_plan_with_a_double_task_is_refused() -> None:
    with pytest.raises(ValidationError, match="twice"):
        EvaluationPlan(**{**PLAN.model_dump(), "seeds": (1, 1)})


def test_digest_of_rows_ignores_their_order() -> None:
    part = rows(PLAN, [[1, 0]] * 3)
    assert rows_digest(part) == rows_digest(reversed(part)) != rows_digest(part[1:])
