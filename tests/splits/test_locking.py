"""The split lock: grouping, sizes, determinism, refusal of what is impossible or has changed, create-only storage."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from split_tasks import AT, MANIFEST, TEMPLATE, made, repair_tasks, task

from ratchet.contracts.environment import Task
from ratchet.contracts.manifest import Splits
from ratchet.errors import ConflictError, IntegrityError, SplitError
from ratchet.splits import SplitLock, check, lock, open_lock, save_lock, select, verify
from ratchet.splits.filling import assign
from ratchet.store import Store

NAMES = ("train", "validation", "heldout")
WORDS = [
    f"{first}{second}" for first in ("ka", "lo", "mi", "ru", "se") for second in ("bar", "den", "fox", "gul", "hin")
]
CLONE = """def {0}({1}):
    total = 0
    for {2} in {1}:
        if {2} > 3:
            total += {2} * 2
    return total
"""


def prose(seed: int, count: int = 30) -> str:
    """Words in an order of their own."""
    return " ".join(random.Random(seed).choices(WORDS, k=count))


def split_of(locked: SplitLock) -> dict[str, str]:
    return {task_id: name for name in NAMES for task_id, _ in getattr(locked, name)}


@st.composite
def task_sets(draw: st.DrawFn) -> list[Task]:
    """Tasks that share repos, issues, whole and half prompts, functions and mentions, in any combination."""
    count = draw(st.integers(6, 24))
    small = st.integers(0, 7)
    found = []
    for number in range(count):
        prompt = prose(draw(small)) if draw(st.booleans()) else prose(1000 + number)
        prompt += " " + prose(draw(small), draw(st.integers(0, 40)))
        if draw(st.booleans()):
            prompt += f" see also own-{draw(small)}/code-{draw(small)}#{draw(small)}"
        payload = {"source": CLONE.format(*draw(st.permutations(["a", "b", "c"])))} if draw(small) == 0 else {}
        repo = f"own-{draw(small)}/code-{draw(small)}" if draw(st.booleans()) else f"lone-{number}/code-{number}"
        issue = f"{repo}#{draw(small)}" if draw(st.booleans()) else f"tracker-{draw(small)}-{number}"
        found.append(
            task(f"t{number:02}", prompt, repo=repo, issue=issue, segment="xy"[draw(st.integers(0, 1))], **payload)
        )
    return found


@given(task_sets(), st.integers(0, 3), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_lock_of_any_tasks_keeps_groups_whole_ignores_order_and_passes_the_check(
    tasks: list[Task], seed: int, shuffler: random.Random
) -> None:
    try:
        locked = made(tasks, 2, 1, 2, seed=seed)
    except SplitError:
        return
    where = split_of(locked)
    assert [len(getattr(locked, name)) for name in NAMES] == [2, 1, 2]
    for one, other in itertools.combinations([one for one in tasks if one.task_id in where], 2):
        if one.repo == other.repo or one.issue_id == other.issue_id or one.prompt == other.prompt:
            assert where[one.task_id] == where[other.task_id]
    again = list(tasks)
    shuffler.shuffle(again)
    assert made(again, 2, 1, 2, seed=seed).digest == locked.digest
    certificate = check(locked, tasks, [])
    assert certificate.passed, certificate.findings


@given(
    st.lists(st.integers(1, 7), min_size=1, max_size=8),
    st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9)),
    st.integers(0, 5),
)
@settings(max_examples=150, deadline=None)
def test_groups_are_assigned_exactly_when_that_is_possible(
    sizes: list[int], wanted: tuple[int, int, int], seed: int
) -> None:
    groups = [[task(f"g{at}-{number}", "p") for number in range(size)] for at, size in enumerate(sizes)]
    possible = any(
        all(
            sum(size for size, to in zip(sizes, way, strict=True) if to == split) >= wanted[split] for split in range(3)
        )
        for way in itertools.product(range(3), repeat=len(sizes))
    )
    if not possible:
        with pytest.raises(SplitError):
            assign(groups, dict(zip(NAMES, wanted, strict=True)), seed)
        return
    placed = assign(groups, dict(zip(NAMES, wanted, strict=True)), seed)
    assert all(sum(map(len, placed[name])) >= size for name, size in zip(NAMES, wanted, strict=True))
    assert sorted(one[0].task_id for split in placed.values() for one in split) == sorted(
        one[0].task_id for one in groups
    )


def test_refusal_names_the_numbers() -> None:
    tasks = [task(f"t{number}", prose(number), repo="one/repo") for number in range(9)] + [task("x", prose(50))]
    with pytest.raises(SplitError, match=r"train 4.*10 tasks in 2 groups, the largest of 9"):
        made(tasks, 4, 2, 2)
    with pytest.raises(SplitError, match=r"there are 0 tasks in 0 groups"):
        made([], 1, 1, 1)
    with pytest.raises(SplitError, match=r"20 tasks in 3 splits.*there are 10 tasks"):
        made(tasks, 10, 5, 5)


def test_group_larger_than_its_split_is_refused_where_no_other_can_take_it() -> None:
    tasks = [task(f"t{number}", prose(number), repo="one/repo") for number in range(20)]
    tasks += [task("x", prose(90)), task("y", prose(91))]
    with pytest.raises(SplitError, match=r"no assignment of whole groups.*20, 1, 1 tasks"):
        made(tasks, 4, 2, 2)


def test_another_seed_gives_another_lock() -> None:
    tasks = [task(f"t{number:02}", prose(number)) for number in range(40)]
    assert len({made(tasks, 10, 10, 10, seed=seed).root for seed in range(4)}) == 4


def test_double_id_is_refused() -> None:
    with pytest.raises(SplitError, match=r"'same'.*occurs once"):
        made([task("same", "one text"), task("same", "another text")], 1, 1, 1)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (task("l", prose(1)), task("r", prose(1).upper().replace(" ", "\n\t"))),
        (task("l", prose(1, 60)), task("r", prose(1, 60) + " and a few words more")),
        (
            task("l", prose(1), source=CLONE.format("f", "a", "b")),
            task("r", prose(2), source=CLONE.format("g", "x", "y")),
        ),
        (task("l", prose(1), repo="https://github.com/Some/Thing.git"), task("r", prose(2), repo="some/thing")),
        (task("l", prose(1), base_commit="a1" * 20), task("r", prose(2), commit="a1" * 20)),
        (task("l", prose(1), repo="fine/tool"), task("r", prose(2) + " as in github.com/fine/tool")),
    ],
    ids=["prompt", "near", "function", "repo", "commit", "mention"],
)
def test_what_belongs_together_stays_together(left: Task, right: Task) -> None:
    others = [task(f"t{number}", prose(100 + number)) for number in range(10)]
    assert made([left, right, *others], 3, 3, 3).largest_group == 2
    assert made(others, 3, 3, 3).largest_group == 1


def test_near_duplicate_chain_is_one_group() -> None:
    chain = [task(f"c{at}", prose(1, 200).split(" ", at * 12)[-1] + " " + prose(2 + at, at * 12)) for at in range(5)]
    others = [task(f"t{number}", prose(100 + number)) for number in range(10)]
    assert made(chain + others, 3, 3, 3).largest_group == 5


def test_boilerplate_does_not_glue_repos() -> None:
    shared = f"{TEMPLATE}{prose(7, 120)}"
    tasks = [task(f"t{number}", f"{shared} {prose(100 + number, 12)}", note=TEMPLATE) for number in range(12)]
    locked = made(tasks, 4, 4, 4)
    assert locked.largest_group == 1
    assert len(locked.boilerplate.shingles) > 100


def test_a_template_that_is_declared_does_not_glue_even_two_repos() -> None:
    tasks = [task(f"t{number}", f"{TEMPLATE}{prose(number, 9)}") for number in range(3)]
    assert made(tasks, 1, 1, 1, templates=[TEMPLATE]).largest_group == 1
    with pytest.raises(SplitError, match="3 tasks in 1 groups"):
        made(tasks, 1, 1, 1)


def test_grouping_keys_of_the_rule_are_followed() -> None:
    tasks = [task(f"t{number}", prose(number), repo="one/repo") for number in range(6)]
    rule = Splits(train=2, validation=2, heldout=2, group_by=("issue_id", "prompt"))
    locked = lock(tasks, rule, seed=0, at=AT, manifest_digest=MANIFEST)
    assert locked.largest_group == 1
    assert check(locked, tasks, []).passed


def test_renamed_repos_are_one() -> None:
    tasks = [task("l", prose(1), repo="old/name"), task("r", prose(2), repo="new/name")]
    tasks += [task(f"t{number}", prose(100 + number)) for number in range(6)]
    assert made(tasks, 2, 2, 2, aliases={"old/name": "new/name"}).largest_group == 2


@pytest.fixture(scope="module")
def pool() -> list[Task]:
    return [task(f"t{number:02}", prose(number)) for number in range(20)]


@pytest.fixture(scope="module")
def locked(pool: list[Task]) -> SplitLock:
    return made(pool, 6, 3, 5)


def test_unchanged_tasks_are_selected_in_the_order_of_the_lock(pool: list[Task], locked: SplitLock) -> None:
    assert [one.task_id for one in select(locked, reversed(pool), "heldout")] == [name for name, _ in locked.heldout]
    kept = {name for split in NAMES for name, _ in getattr(locked, split)}
    assert set(verify(locked, [one for one in pool if one.task_id in kept])) == kept


@pytest.mark.parametrize("where", ["train", "validation", "heldout", "left_out"])
def test_changed_task_is_refused_by_name(pool: list[Task], locked: SplitLock, where: str) -> None:
    name = getattr(locked, where)[0][0]
    edited = [one.model_copy(update={"prompt": one.prompt + "."}) if one.task_id == name else one for one in pool]
    with pytest.raises(SplitError, match=f"changed .*task {name!r}"):
        verify(locked, edited)


def test_missing_added_and_double_tasks_are_refused_by_name(pool: list[Task], locked: SplitLock) -> None:
    name = locked.heldout[2][0]
    with pytest.raises(SplitError, match=f"missing heldout task {name!r}"):
        verify(locked, [one for one in pool if one.task_id != name])
    with pytest.raises(SplitError, match="added task 'new'"):
        verify(locked, [*pool, task("new", "new")])
    with pytest.raises(SplitError, match="occurs twice"):
        verify(locked, [*pool, pool[0]])


def test_lock_is_written_once_and_verified_when_it_is_read(pool: list[Task], locked: SplitLock, tmp_path) -> None:
    store = Store(tmp_path)
    assert save_lock(store, locked, "splits/lock.json")
    assert not save_lock(store, locked, "splits/lock.json")
    assert open_lock(store, "splits/lock.json") == locked
    with pytest.raises(ConflictError):
        save_lock(store, made(pool, 6, 3, 5, seed=9), "splits/lock.json")
    path = tmp_path / "splits/lock.json"
    path.write_bytes(path.read_bytes().replace(locked.heldout[0][1].encode(), b"0" * 64))
    with pytest.raises(IntegrityError, match="digest must match"):
        open_lock(store, "splits/lock.json")


def test_reference_sizes_on_real_problems_with_segments_in_proportion() -> None:
    tasks = list(repair_tasks(10))
    locked = made(tasks, 600, 160, 400)
    where = split_of(locked)
    assert [len(getattr(locked, name)) for name in NAMES] == [600, 160, 400]
    repos = [{one.repo for one in tasks if where.get(one.task_id) == name} for name in NAMES]
    assert all(one.isdisjoint(other) for one, other in itertools.combinations(repos, 2))
    assert len(repos[2]) >= 45
    assert locked.largest_group < 60
    for segment in {one.segment for one in tasks}:
        share = sum(one.segment == segment for one in tasks) / len(tasks)
        for name, size in zip(NAMES, (600, 160, 400), strict=True):
            assert abs(locked.segments[name].get(segment, 0) / size - share) < 0.05
    assert check(locked, tasks, []).passed
