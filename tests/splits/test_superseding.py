"""A withdrawn task supersedes the lock: by name, with sizes of its own, compared with nothing before."""

from __future__ import annotations

import random
from datetime import timedelta
from pathlib import Path

import heldout_rows
import pytest
from split_tasks import AT, made, task

from ratchet.contracts.environment import Task
from ratchet.errors import ConflictError, EvaluationError, IntegrityError, SplitError
from ratchet.evaluation.arm import Arm
from ratchet.evaluation.compare import compare
from ratchet.evaluation.rows import RowStore
from ratchet.evaluation.run import plan
from ratchet.splits import (
    SplitLock,
    check,
    corpus_digest,
    open_current_lock,
    open_lock,
    save_lock,
    save_successor,
    select,
    supersede,
    verify,
)
from ratchet.store import Store

BY = {"by": "ann", "reason": "its repo withdrew its licence", "at": AT + timedelta(days=1)}


def prose(seed: int) -> str:
    return " ".join(f"w{random.Random(f'{seed}/{at}').randrange(400)}" for at in range(30))


@pytest.fixture(scope="module")
def pool() -> list[Task]:
    return [task(f"t{number:02}", prose(number)) for number in range(24)]


@pytest.fixture(scope="module")
def locked(pool: list[Task]) -> SplitLock:
    return made(pool, 8, 4, 6)


@pytest.mark.parametrize("split", ["train", "validation", "heldout"])
def test_the_others_stay_where_they_are_and_the_size_says_what_is_left(pool, locked, split) -> None:
    gone = locked.split(split)[1][0]
    new = supersede(locked, pool, [gone], **BY)
    for name in ("train", "validation", "heldout"):
        expected = tuple(one for one in locked.split(name) if one[0] != gone)
        assert new.split(name) == expected
        assert getattr(new.rule, name) == len(expected) == getattr(locked.rule, name) - (name == split)
    assert (new.version, new.supersedes, new.comparable) == (2, locked.digest, False)
    assert [(one.task_id, one.split, one.by, one.reason) for one in new.withdrawn] == [
        (gone, split, "ann", "its repo withdrew its licence")
    ]
    assert new.digest != locked.digest
    assert new.groups[split] == locked.groups[split] - 1
    assert sum(new.segments[split].values()) == len(new.split(split))


def test_a_withdrawn_task_is_neither_required_nor_returned(pool: list[Task], locked: SplitLock) -> None:
    gone = locked.heldout[0][0]
    without = [one for one in pool if one.task_id != gone]
    with pytest.raises(SplitError, match=f"missing heldout task {gone!r}"):
        select(locked, without, "heldout")
    new = supersede(locked, without, [gone], **BY)
    assert new == supersede(locked, pool, [gone], **BY)
    for tasks in (pool, without):
        assert gone not in verify(new, tasks)
        assert len(select(new, tasks, "heldout")) == 5
    with pytest.raises(SplitError, match="missing heldout task"):
        verify(new, [one for one in without if one.task_id != new.heldout[0][0]])


def test_a_second_withdrawal_keeps_the_first(pool: list[Task], locked: SplitLock) -> None:
    first, second = locked.heldout[0][0], locked.left_out[0][0]
    newest = supersede(supersede(locked, pool, [first], **BY), pool, [second], **BY)
    assert newest.version == 3
    assert [(one.task_id, one.split) for one in newest.withdrawn] == [(first, "heldout"), (second, None)]


@pytest.mark.parametrize(
    ("withdrawn", "over", "why"),
    [
        ([], {}, "no task"),
        (["nothing"], {}, "the lock has no 'nothing'"),
        (["t"], {"by": " "}, "a person and a reason"),
        (["t"], {"reason": ""}, "a person and a reason"),
    ],
)
def test_a_withdrawal_names_known_tasks_a_person_and_a_reason(pool, locked, withdrawn, over, why) -> None:
    names = [locked.heldout[0][0] if name == "t" else name for name in withdrawn]
    with pytest.raises(SplitError, match=why):
        supersede(locked, pool, names, **{**BY, **over})


def test_a_split_cannot_become_empty_and_a_changed_task_is_not_carried_over(pool, locked) -> None:
    with pytest.raises(SplitError, match="split 'validation'"):
        supersede(locked, pool, [name for name, _ in locked.validation], **BY)
    changed = [one.model_copy(update={"prompt": f"{one.prompt}."}) for one in pool]
    with pytest.raises(SplitError, match="changed"):
        supersede(locked, changed, [locked.heldout[0][0]], **BY)


def test_rows_of_two_versions_are_neither_mixed_nor_compared(pool, locked, tmp_path: Path) -> None:
    new = supersede(locked, pool, [locked.heldout[0][0]], **BY)
    kept = select(new, pool, "heldout")
    # The same five tasks in both evaluations: only the version of the lock differs.
    before = plan(locked.digest, "environment", "reward", kept, [0, 1])
    after = plan(new.digest, "environment", "reward", kept, [0, 1])
    assert before.digest != after.digest
    rows = {
        name: [heldout_rows.row(what, at, seed, "accepted", name) for at in range(len(kept)) for seed in what.seeds]
        for name, what in (("old", before), ("new", after))
    }
    store = RowStore(Store(tmp_path), after, rows["old"][0].policy_digest, "harness")
    with pytest.raises(EvaluationError, match="belongs to another evaluation"):
        store.append(rows["old"])
    with pytest.raises(EvaluationError, match="of one evaluation"):
        compare(Arm(rows["new"]), Arm(rows["old"]))


def test_a_certificate_of_the_version_before_opens_nothing(pool: list[Task], locked: SplitLock) -> None:
    new = supersede(locked, pool, [locked.heldout[0][0]], **BY)
    check(new, pool, []).require(new.digest, corpus_digest([]))
    with pytest.raises(Exception, match="for the split lock"):
        check(locked, pool, []).require(new.digest, corpus_digest([]))


def test_the_newest_version_in_the_store_is_in_force_and_the_chain_is_verified(pool, locked, tmp_path: Path) -> None:
    store = Store(tmp_path)
    save_lock(store, locked, "splits/lock.json")
    assert open_current_lock(store, "splits") == locked
    one = supersede(locked, pool, [locked.heldout[0][0]], **BY)
    other = supersede(locked, pool, [locked.heldout[1][0]], **BY)
    assert save_successor(store, one, "splits")
    assert not save_successor(store, one, "splits")
    with pytest.raises(SplitError, match="must supersede the lock in force"):
        save_successor(store, other, "splits")
    assert open_current_lock(store, "splits") == one
    assert open_lock(store, "splits/lock.json") == locked
    with pytest.raises(ConflictError):
        save_lock(store, other, "splits/lock-2.json")
    (tmp_path / "splits/lock-2.json").unlink()
    save_lock(store, supersede(one, pool, [one.heldout[0][0]], **BY), "splits/lock-2.json")
    with pytest.raises(IntegrityError, match="it must supersede the lock"):
        open_current_lock(store, "splits")
