"""Superseding: a lock of which a task is withdrawn gets a new version without it, which compares with nothing before.

The tasks that stay keep their splits, so nothing that a policy has trained on becomes held-out. The sizes of the new
version are what is left, stated as its rule: 399 held-out tasks are a version of their own, never 400 less one.
Evaluation rows are bound to the digest of their lock, so rows of two versions cannot be mixed or compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from ratchet.contracts.environment import Task
from ratchet.errors import IntegrityError, SplitError
from ratchet.splits.evidence import SPLITS, Entries, SplitLock, SplitName, Withdrawal
from ratchet.splits.features import Common, of_task
from ratchet.splits.grouping import group
from ratchet.splits.locking import open_lock, root_of, save_lock, verify
from ratchet.store import Store

FIRST = "lock.json"


def supersede(
    lock: SplitLock, tasks: Iterable[Task], withdrawn: Iterable[str], *, by: str, reason: str, at: datetime
) -> SplitLock:
    """Make the version of a lock without some of its tasks.

    Args:
        lock: the lock in force.
        tasks: every task of the environment; the withdrawn ones may be absent already.
        withdrawn: ids of the tasks that may be used no more.
        by: who withdraws them.
        reason: why.
        at: the time, with zone.

    Raises:
        SplitError: nothing or an unknown task is withdrawn, nobody or no reason is named, a split would be empty, or a
            remaining task is changed, missing or added.
    """
    gone = sorted(set(withdrawn))
    known: dict[str, tuple[SplitName | None, str]] = {name: (None, value) for name, value in lock.left_out}
    known |= {task_id: (name, value) for name in SPLITS for task_id, value in lock.split(name)}
    unknown = [name for name in gone if name not in known]
    if not gone or unknown or not by.strip() or not reason.strip():
        raise SplitError(
            f"withdrawal of {', '.join(map(repr, gone[:5])) or 'no task'}",
            rule="it names tasks of the lock in force, a person and a reason"
            + (f"; the lock has no {unknown[0]!r}" if unknown else ""),
            remedy="give ids as the lock has them",
        )
    dropped = [
        Withdrawal.model_validate(
            {"task_id": name, "digest": known[name][1], "split": known[name][0], "by": by, "reason": reason}
        )
        for name in gone
    ]
    entries = {name: tuple(one for one in lock.split(name) if one[0] not in gone) for name in SPLITS}
    empty = [name for name, left in entries.items() if not left]
    if empty:
        raise SplitError(
            f"split {empty[0]!r}",
            seen=0,
            rule="at least one of its tasks must remain",
            remedy="make a new lock, for a new experiment",
        )
    left_out = tuple(one for one in lock.left_out if one[0] not in gone)
    fields: dict[str, Any] = {name: getattr(lock, name) for name in SplitLock.model_fields}
    fields |= {name: entries[name] for name in SPLITS}
    fields |= {
        "left_out": left_out,
        "rule": lock.rule.model_copy(update={name: len(left) for name, left in entries.items()}),
        "at": at,
        "root": root_of(entries, left_out),
        "version": lock.version + 1,
        "supersedes": lock.digest,
        "withdrawn": (*lock.withdrawn, *dropped),
        "comparable": False,
    }
    remaining = verify(SplitLock.issue(**fields), tasks)
    return SplitLock.issue(**{**fields, **_counted(lock, entries, remaining)})


def _counted(lock: SplitLock, entries: Mapping[SplitName, Entries], remaining: Mapping[str, Task]) -> dict[str, Any]:
    """Groups, segments and the largest group of what is left."""
    ordered = [remaining[name] for name in sorted(remaining)]
    aliases, common = dict(lock.aliases), Common(lock.boilerplate)
    features = [of_task(task, keys=lock.rule.group_by, aliases=aliases, common=common) for task in ordered]
    labels = dict(zip((task.task_id for task in ordered), group(ordered, features, lock.rule, ())[0], strict=True))
    groups: dict[str, int] = {name: len({labels[task_id] for task_id, _ in entries[name]}) for name in SPLITS}
    used = {labels[task_id] for name in SPLITS for task_id, _ in entries[name]}
    return {
        "groups": groups | {"unused": len(set(labels.values()) - used)},
        "segments": {
            name: dict(sorted(Counter(remaining[task_id].segment for task_id, _ in entries[name]).items()))
            for name in SPLITS
        },
        "largest_group": max(Counter(labels.values()).values()),
    }


def open_current_lock(store: Store, folder: str) -> SplitLock:
    """Read the newest version of a lock.

    Raises:
        IntegrityError: a version is missing or changed, or does not supersede the one before.
    """
    current = open_lock(store, f"{folder}/{FIRST}")
    while store.exists(name := _name(folder, current.version + 1)):
        following = open_lock(store, name)
        if following.supersedes != current.digest or following.version != current.version + 1:
            raise IntegrityError(
                name,
                seen=following.supersedes,
                rule=f"it must supersede the lock {current.digest}",
                remedy="restore the versions of the lock as they were written",
            )
        current = following
    return current


def save_successor(store: Store, lock: SplitLock, folder: str) -> bool:
    """Write a version of a lock once. Returns whether this call wrote it.

    Raises:
        SplitError: the lock in the store is not the one that it supersedes.
        ConflictError: another version was written first.
    """
    current = open_current_lock(store, folder)
    if lock.supersedes != current.digest and lock.digest != current.digest:
        raise SplitError(
            "split lock",
            seen=lock.supersedes,
            rule=f"it must supersede the lock in force, {current.digest}",
            remedy="supersede the lock as it is now",
        )
    return save_lock(store, lock, _name(folder, lock.version))


def _name(folder: str, version: int) -> str:
    return f"{folder}/{FIRST}" if version == 1 else f"{folder}/lock-{version}.json"
