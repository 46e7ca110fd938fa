"""Which tasks must stay together: union-find over everything that the contamination check compares.

Two tasks are joined by a repo, an issue or a prompt that they share, by any other identifier, by a mention of one in
the other's prompt, by an equal text of the payload, by an equal function, and by word 5-grams: half of the smaller
prompt's shingles found in the other (which every pair at Jaccard 0.8 meets). Joining is transitive: chains are one
group.

What more than 5 % of the groups (by repo, issue and prompt alone) and more than 5 of them share is boilerplate:
templates, harness code, a library that everybody mentions. It joins nothing and is never compared. Counting groups,
not tasks, keeps the many mutants of one function from making their own text common. The price: a near copy (not an
exact one) that occurs in more than 5 % of the groups is taken for a template.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

import numpy as np

from ratchet.contracts.environment import Task
from ratchet.contracts.manifest import Splits
from ratchet.splits.evidence import Boilerplate
from ratchet.splits.features import Features, near, needed
from ratchet.splits.identifiers import Mentions, issue_key, key_of
from ratchet.splits.near_duplicates import pairs_of_runs
from ratchet.splits.text import SHINGLE, Hashes, contains, grams, hash_words, words
from ratchet.splits.unions import Groups

COMMON_SHARE = 0.05
COMMON_GROUPS = 5
_Value = TypeVar("_Value", bound=Hashable)


def group(
    tasks: Sequence[Task], features: Sequence[Features], rule: Splits, templates: Iterable[str]
) -> tuple[list[int], Boilerplate]:
    """Group the tasks.

    Args:
        tasks: the tasks; their order changes no group.
        features: their features, extracted without boilerplate known.
        rule: its `group_by` says whether repo and issue are keys; the prompt always is.
        templates: texts that are boilerplate by decision.

    Returns:
        The label of every task's group, and the boilerplate that was found.
    """
    groups = Groups(len(tasks))
    owned: dict[Hashable, list[int]] = {}
    for number, (task, one) in enumerate(zip(tasks, features, strict=True)):
        own: list[Hashable] = [("prompt", one.prompt or number)]
        if "repo" in rule.group_by:
            own.append(("repo", key_of(task.repo) or task.repo))
        if "issue_id" in rule.group_by:
            own.append(("issue", issue_key(task) or task.issue_id))
        for key in own:
            owned.setdefault(key, []).append(number)
    _join_all(groups, owned)
    base = groups.labels()

    prompts = {one.prompt for one in features}
    digests = _owners(one.digests for one in features)
    common_digests = {key for key in _common(digests, base) if key not in prompts}
    shingles = _common_shingles([one.shingles for one in features], base, templates)
    keys = _owners(one.names.keys for one in features)
    common_keys = frozenset(_common(keys, base))

    everything = Mentions([one.names for one in features], frozenset(), common_keys)
    mentioned = _owners({phrase for text in one.hashed for phrase in everything.found(*text)} for one in features)
    common_phrases = frozenset(_common(mentioned, base))

    for phrase, numbers in mentioned.items():
        if phrase not in common_phrases:
            groups.join([*numbers, *everything.owners(phrase)])
    for key, numbers in keys.items():
        if key not in common_keys:
            groups.join([*numbers, *everything.owners(key)])
    _join_all(groups, {key: numbers for key, numbers in digests.items() if key not in common_digests})
    join_near(groups, [one.shingles[~contains(shingles, one.shingles)] for one in features])
    return groups.labels(), Boilerplate(
        shingles=tuple(f"{int(value):016x}" for value in shingles),
        digests=tuple(sorted(common_digests)),
        phrases=tuple(sorted(common_phrases)),
        keys=tuple(sorted(common_keys)),
    )


def _join_all(groups: Groups, owned: dict[_Value, list[int]]) -> None:
    for numbers in owned.values():
        groups.join(numbers)


def join_near(groups: Groups, shingles: Sequence[Hashes]) -> None:
    """Join what shares half of the smaller set's shingles.

    An exact prefix filter (after Chaudhuri, Ganti and Kaushik 2006, "A primitive operator for similarity joins in data
    cleaning"): who holds half of a set holds at least one of its rarest `size - size / 2 + 1` shingles, and most of
    these no other set has at all.
    """
    sizes = np.array([len(one) for one in shingles], dtype=np.int64)
    _, inverse, holders = np.unique(
        np.concatenate([np.empty(0, dtype=np.uint64), *shingles]), return_inverse=True, return_counts=True
    )
    shared = holders[inverse] > 1
    rare = np.zeros(len(inverse), dtype=np.bool_)
    ends = np.cumsum(sizes)
    for end, size in zip(ends.tolist(), sizes.tolist(), strict=True):
        own = holders[inverse[end - size : end]]
        if size and own.max() > 1:
            length = size - needed(size) + 1
            rare[end - size + np.argpartition(own, length - 1)[:length]] = True
    values, owners, rare = inverse[shared], np.repeat(np.arange(len(sizes)), sizes)[shared], rare[shared]
    order = np.argsort(values, kind="stable")
    values, owners, rare = values[order], owners[order], rare[order]
    starts = np.flatnonzero(np.diff(values, prepend=-1))
    known = np.array(groups.labels(), dtype=np.int64)
    seen: set[tuple[int, int]] = set()
    for left, right in pairs_of_runs(np.arange(len(values)), starts, np.diff(starts, append=len(values))):
        ones, others = owners[left], owners[right]
        smaller = np.where(sizes[ones] <= sizes[others], left, right)
        open_ = rare[smaller] & (known[ones] != known[others])
        for one, other in zip(ones[open_].tolist(), others[open_].tolist(), strict=True):
            if (one, other) in seen or groups.find(one) == groups.find(other):
                continue
            seen.add((one, other))
            common = np.count_nonzero(contains(shingles[one], shingles[other]))
            if near(np.array([common]), np.minimum(sizes[[one]], sizes[[other]]))[0]:
                groups.join([one, other])


def _owners(values: Iterable[Iterable[_Value]]) -> dict[_Value, list[int]]:
    owned: dict[_Value, list[int]] = {}
    for number, own in enumerate(values):
        for value in own:
            owned.setdefault(value, []).append(number)
    return owned


def _limit(base: Sequence[int]) -> float:
    return max(COMMON_GROUPS, COMMON_SHARE * len(set(base)))


def _common(owned: dict[_Value, list[int]], base: Sequence[int]) -> set[_Value]:
    limit = _limit(base)
    return {value for value, numbers in owned.items() if len({base[number] for number in numbers}) > limit}


def _common_shingles(shingles: Sequence[Hashes], base: Sequence[int], templates: Iterable[str]) -> Hashes:
    """Sorted shingles that many groups hold, and those of the templates."""
    by_group: dict[int, list[Hashes]] = {}
    for label, own in zip(base, shingles, strict=True):
        by_group.setdefault(label, []).append(own)
    held = [np.unique(np.concatenate(own)) for own in by_group.values()]
    nothing = np.empty(0, dtype=np.uint64)
    values, counts = np.unique(np.concatenate([nothing, *held]), return_counts=True)
    given = [grams(hash_words(words(template)), SHINGLE) for template in templates]
    return np.unique(np.concatenate([values[counts > _limit(base)], *given]))
