"""No group straddles two splits: families of tasks that belong together by each rule, and by chains of several."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from split_tasks import made, task

from ratchet.contracts.environment import Task
from ratchet.errors import SplitError
from ratchet.splits import SplitLock, check
from ratchet.splits.grouping import join_near
from ratchet.splits.unions import Groups

VOCABULARY = [f"{a}{b}{c}{d}" for a in "bdfgkl" for b in "aeiou" for c in "mnprst" for d in "aeiou"]
KINDS = ("repo", "renamed", "issue", "prompt", "chain", "commit", "mention")
SPELLINGS = (
    "{0}/{1}", "https://github.com/{0}/{1}.git", "git@gitlab.com:{0}/{1}", "HTTPS://GitHub.com/{0}/{1}/",
    "ssh://git@github.com/{0}/{1}.git",
)  # fmt: skip
SPLITS = ("train", "validation", "heldout")


def prose(seed: object, count: int = 40) -> list[str]:
    return random.Random(f"prose/{seed}").choices(VOCABULARY, k=count)


def family(kind: str, size: int, tag: int, aliases: dict[str, str]) -> list[Task]:
    """Up to five tasks that belong together by one rule, with everything else their own."""
    shuffler = random.Random(f"{kind}/{tag}")
    owner, name = f"owner{tag}", f"project{tag}"
    base, found = prose(f"family/{tag}", 200), []
    for at in range(size):
        repo, issue = f"solo{tag}x{at}/code{tag}x{at}", f"solo{tag}x{at}/code{tag}x{at}#{at}"
        words, payload = prose(f"{tag}/{at}"), {}
        if kind == "repo":
            repo = shuffler.choice(SPELLINGS).format(owner, name)
        elif kind == "renamed":
            repo = f"{owner}/{name}" if not at else f"mirror{at}of{tag}/{name}"
            aliases.update({repo: f"{owner}/{name}"} if at else {})
        elif kind == "issue":
            issue = shuffler.choice(["{0}/{1}#7", "https://github.com/{0}/{1}/issues/7?x=1", "{0}/{1}/pull/7"])
            issue = issue.format(owner, name)
        elif kind == "prompt":
            words = [shuffler.choice([word, word.upper()]) for word in base]
        elif kind == "chain":
            for place in shuffler.sample(range(len(base)), 3):
                base[place] = shuffler.choice(VOCABULARY)
            words = list(base)
        elif kind == "commit":
            payload = {shuffler.choice(["base_commit", "commit"]): f"{random.Random(tag).getrandbits(160):040x}"}
        elif kind == "mention":
            repo = f"{owner}/{name}" if not at else repo
            words += [] if not at else ["as", "in", f"https://github.com/{owner}/{name}/blob/main/x.py"]
        separator = shuffler.choice([" ", "\n", "  \t"])
        found.append(
            task(f"f{tag}-{at}", separator.join(words), repo=repo, issue=issue, segment="ab"[at % 2], **payload)
        )
    return found


@st.composite
def families(draw: st.DrawFn) -> tuple[list[list[Task]], dict[str, str]]:
    """Families; some are linked to the next one by a repo that two of their tasks share."""
    aliases: dict[str, str] = {}
    count = draw(st.integers(3, 9))
    found = [family(draw(st.sampled_from(KINDS)), draw(st.integers(1, 4)), tag, aliases) for tag in range(count)]
    merged: list[list[Task]] = []
    for tag, own in enumerate(found):
        if merged and draw(st.integers(0, 5)) == 0:
            extra = [
                task(f"l{tag}-{side}", " ".join([*prose(f"link/{tag}/{side}"), "see", other.repo]), repo=f"link/l{tag}")
                for side, other in enumerate((own[0], merged[-1][-1]))
            ]
            merged[-1] = [*merged[-1], *extra, *own]
        else:
            merged.append(own)
    return merged, aliases


def split_of(locked: SplitLock) -> dict[str, str]:
    return {task_id: name for name in SPLITS for task_id, _ in locked.split(name)}


@given(families(), st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(1, 4)), st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_no_family_straddles_two_splits(drawn, wanted: tuple[int, int, int], seed: int) -> None:
    groups, aliases = drawn
    tasks = [one for own in groups for one in own]
    refusal = ""
    try:
        locked = made(tasks, *wanted, seed=seed, aliases=aliases)
    except SplitError as error:
        refusal = str(error)
    if refusal:
        assert f"{len(tasks)} tasks in" in refusal
        assert "the largest of" in refusal
        return
    where = split_of(locked)
    assert [len(locked.split(name)) for name in SPLITS] == list(wanted)
    for own in groups:
        assert len({where[one.task_id] for one in own if one.task_id in where}) <= 1, [one.task_id for one in own]
    certificate = check(locked, tasks, [])
    assert certificate.passed, certificate.findings


@given(st.lists(st.frozensets(st.integers(0, 40), max_size=16), max_size=14))
@settings(max_examples=300, deadline=None)
def test_near_sets_are_joined_exactly_as_all_pairs_say(sets: list[frozenset[int]]) -> None:
    expected, found = Groups(len(sets)), Groups(len(sets))
    for left, one in enumerate(sets):
        for right in range(left):
            other = sets[right]
            shared, smaller = len(one & other), min(len(one), len(other))
            if shared and shared >= 0.5 * smaller and (shared >= 5 or shared == smaller):
                expected.join([left, right])
    join_near(found, [np.array(sorted(one), dtype=np.uint64) for one in sets])
    assert _partition(found) == _partition(expected)


def _partition(groups: Groups) -> list[int]:
    """The smallest member of everyone's group."""
    first: dict[int, int] = {}
    return [first.setdefault(label, number) for number, label in enumerate(groups.labels())]


@given(st.lists(st.integers(8, 60), min_size=1, max_size=4), st.integers(0, 5))
@settings(max_examples=12, deadline=None)
def test_every_split_has_the_segments_in_proportion(sizes: list[int], seed: int) -> None:
    tasks = [
        task(f"s{segment}-{at}", " ".join(prose(f"{segment}/{at}")), segment=f"segment {segment}")
        for segment, size in enumerate(sizes)
        for at in range(size)
    ]
    total = len(tasks)
    wanted = (total // 2, total // 8, total // 4)
    locked = made(tasks, *wanted, seed=seed)
    for name, size in zip(SPLITS, wanted, strict=True):
        for segment, held in enumerate(sizes):
            count = locked.segments[name].get(f"segment {segment}", 0)
            assert abs(count - size * held / total) <= 1


@pytest.mark.parametrize("wanted", [(6, 2, 2), (2, 6, 2), (2, 2, 6)])
def test_a_group_larger_than_its_split_is_named_with_its_size(wanted: tuple[int, int, int]) -> None:
    big = family("repo", 4, 1, {}) + [
        task(f"more{at}", " ".join(prose(f"more/{at}")), repo="owner1/project1") for at in range(16)
    ]
    small = [task(f"t{at}", " ".join(prose(f"small/{at}"))) for at in range(3)]
    with pytest.raises(SplitError, match=r"23 tasks in 4 groups, the largest of 20, 1, 1, 1 tasks"):
        made(big + small, *wanted)
