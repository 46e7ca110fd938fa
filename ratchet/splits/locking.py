"""Locking: make the split lock, verify tasks against it, select a split, keep it in the store.

The lock pins every task by digest, the surplus included, so that a task that changed, went missing or was added is
refused by name before it can be trained on or evaluated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from ratchet.contracts.canonical import digest
from ratchet.contracts.environment import Task
from ratchet.contracts.manifest import Splits
from ratchet.errors import SplitError
from ratchet.splits.evidence import SPLITS, Entries, SplitLock, SplitName
from ratchet.splits.features import of_task
from ratchet.splits.filling import assign, take
from ratchet.splits.grouping import group
from ratchet.store import Store


def lock(
    tasks: Iterable[Task],
    rule: Splits,
    *,
    seed: int,
    at: datetime,
    manifest_digest: str,
    aliases: Mapping[str, str] | None = None,
    templates: Iterable[str] = (),
) -> SplitLock:
    """Group the tasks, give whole groups to splits, and pin exactly the sizes that the rule asks for.

    Args:
        tasks: every task of the environment, in any order.
        rule: sizes and grouping keys.
        seed: decides which groups go where.
        at: the time, with zone.
        manifest_digest: the manifest this is for.
        aliases: other name of a repo -> its name (renames, mirrors).
        templates: texts whose wording is boilerplate; see `grouping` for what is found without them.

    Raises:
        SplitError: a task id occurs twice, or the sizes cannot be met by whole groups.
    """
    by_id: dict[str, Task] = {}
    for task in tasks:
        if by_id.setdefault(task.task_id, task) is not task:
            raise SplitError(
                f"task {task.task_id!r}", rule="a task id occurs once", remedy="give every task an id of its own"
            )
    ordered = [by_id[name] for name in sorted(by_id)]
    known = dict(aliases or {})
    features = [of_task(task, keys=rule.group_by, aliases=known) for task in ordered]
    labels, boilerplate = group(ordered, features, rule, templates)
    groups: dict[int, list[Task]] = {}
    for label, task in zip(labels, ordered, strict=True):
        groups.setdefault(label, []).append(task)
    wanted: dict[str, int] = {name: getattr(rule, name) for name in SPLITS}
    placed = assign(list(groups.values()), wanted, seed)
    shares = {segment: n / len(ordered) for segment, n in Counter(task.segment for task in ordered).items()}
    chosen = {name: take(placed[name], wanted[name], shares, seed) for name in SPLITS}
    used = {task.task_id for split in chosen.values() for task in split}
    left_out = _entries([task for task in ordered if task.task_id not in used])
    entries = {name: _entries(split) for name, split in chosen.items()}
    in_use = {
        name: sum(any(task.task_id in used for task in one) for one in placed_groups)
        for name, placed_groups in placed.items()
    }
    return SplitLock.issue(
        manifest_digest=manifest_digest,
        rule=rule,
        seed=seed,
        at=at,
        **entries,
        left_out=left_out,
        root=root_of(entries, left_out),
        groups={**in_use, "unused": len(groups) - sum(in_use.values())},
        segments={
            name: dict(sorted(Counter(task.segment for task in split).items())) for name, split in chosen.items()
        },
        largest_group=max(map(len, groups.values())),
        aliases=tuple(sorted(known.items())),
        boilerplate=boilerplate,
    )


def root_of(splits: Mapping[SplitName, Entries], left_out: Entries) -> str:
    """Digest of the sorted `task_id, digest` lines of every split and of the surplus."""
    return digest({**{name: splits[name] for name in SPLITS}, "left_out": left_out})


def verify(lock: SplitLock, tasks: Iterable[Task], among: Sequence[SplitName] = SPLITS) -> dict[str, Task]:
    """Compare the environment's tasks with the lock, and return them by id.

    Args:
        lock: the lock in force.
        tasks: every task of the environment; the surplus that the lock left out may be absent. Tasks that were
            withdrawn may be there, are not returned and thus never used.
        among: the splits that `tasks` are of, where a process is given those of some splits alone.

    Raises:
        SplitError: a task is changed, missing, added, double or of another split, or the lock's root does not match its
            lines.
    """
    if root_of({name: lock.split(name) for name in SPLITS}, lock.left_out) != lock.root:
        raise SplitError("split lock", seen=lock.root, rule="its root must match its lines", remedy="lock anew")
    pinned = {task_id: (name, value) for name in among for task_id, value in lock.split(name)}
    surplus = {task_id: ("surplus", value) for task_id, value in lock.left_out}
    known: dict[str, tuple[str, str]] = {**pinned, **surplus}
    withdrawn = {one.task_id for one in lock.withdrawn}
    seen: dict[str, Task] = {}
    remedy = "restore the environment the lock was made for, or make a new lock, which is not comparable with this one"
    for task in tasks:
        if task.task_id in withdrawn:
            continue
        where, stated = known.get(task.task_id, ("", ""))
        if not where:
            raise SplitError(f"added task {task.task_id!r}", rule="the lock does not know it", remedy=remedy)
        if task.task_id in seen:
            raise SplitError(f"task {task.task_id!r}", rule="it occurs twice", remedy=remedy)
        if task.digest != stated:
            raise SplitError(
                f"changed {where} task {task.task_id!r}",
                seen=task.digest,
                rule=f"the lock pins the digest {stated}",
                remedy=remedy,
            )
        seen[task.task_id] = task
    missing = sorted(set(pinned) - set(seen))
    if missing:
        raise SplitError(
            f"missing {pinned[missing[0]][0]} task {missing[0]!r}",
            seen=len(missing),
            rule=f"none of the {len(pinned)} locked tasks may be missing",
            remedy=remedy,
        )
    return seen


def select(
    lock: SplitLock, tasks: Iterable[Task], split: SplitName, among: Sequence[SplitName] = SPLITS
) -> tuple[Task, ...]:
    """Verify the environment's tasks and return those of one split, in the lock's order. Raises as `verify`."""
    known = verify(lock, tasks, among)
    return tuple(known[task_id] for task_id, _ in lock.split(split))


def save_lock(store: Store, lock: SplitLock, name: str) -> bool:
    """Write the lock once. Returns whether this call wrote it; raises ConflictError where another one is there."""
    return store.create_same(name, lock.to_bytes())


def open_lock(store: Store, name: str) -> SplitLock:
    """Read a lock back. Raises IntegrityError where it is missing or changed."""
    return SplitLock.reopen(store.read(name), name)


def _entries(tasks: Sequence[Task]) -> Entries:
    return tuple(sorted((task.task_id, task.digest) for task in tasks))
