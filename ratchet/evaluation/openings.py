"""Openings of a held-out set: each is logged before the first task is read, and counted over all runs of a home.

What wears out is the set of tasks, whichever experiment decides on it. So openings are kept by the digest of the set,
not by that of a lock, which every manifest makes anew, and a set that shares even one task with another shares its
openings: neither a new manifest nor the withdrawal of a task sets the count back. An evaluation that is resumed is the
same opening: it is known by policy, harness, lock, environment, reward and seeds.

    openings/<digest of the set>/tasks.json       the set: task ids and digests
    openings/<digest of the set>/log/000001.json  openings, chained (see `ratchet.store.chain`)
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from pydantic import AwareDatetime, Field, ValidationError

from ratchet.contracts.canonical import canonical_json, digest
from ratchet.contracts.model import Contract
from ratchet.contracts.policy import Policy
from ratchet.errors import EvaluationError, IntegrityError
from ratchet.evaluation.rows import EvaluationPlan
from ratchet.store import Store
from ratchet.store.chain import Chain

PREFIX = "openings"
Entries = tuple[tuple[str, str], ...]
"""(task id, task digest), as a split lock has them."""


class Conditions(NamedTuple):
    """What an evaluation is made under, all of it known before a held-out task is read."""

    heldout: Entries
    lock_digest: str
    environment_digest: str
    reward_digest: str
    seeds: tuple[int, ...]

    @classmethod
    def of(cls, plan: EvaluationPlan) -> Conditions:
        """Those of a plan."""
        tasks = tuple((task.task_id, task.task_digest) for task in plan.tasks)
        return cls(tasks, plan.lock_digest, plan.environment_digest, plan.reward_digest, plan.seeds)


class Opening(Contract):
    """One policy that was, or is being, judged on a held-out set."""

    opening_id: str = Field(description="Digest of set, lock, environment, reward, seeds, policy and harness.")
    set_digest: str = Field(description="Digest of the held-out set.")
    tasks: int = Field(ge=1, description="Tasks of the set.")
    lock_digest: str = Field(description="Digest of the split lock.")
    policy: str = Field(description="Name of the policy in its experiment.")
    policy_digest: str = Field(description="Digest of weights and harness.")
    candidate: bool = Field(description="Whether it was compared with an incumbent, rather than being it.")
    experiment: str = Field(description="Experiment that opened the set.")
    by: str = Field(description="Who is answerable: the author of the manifest.")
    at: AwareDatetime = Field(description="When, before the first task was read.")


def set_digest(heldout: Iterable[tuple[str, str]]) -> str:
    """Digest of a held-out set, in any order."""
    return digest(sorted(heldout))


def log_opening(
    store: Store, conditions: Conditions, policy: Policy, *, candidate: bool, experiment: str, by: str, at: datetime
) -> bool:
    """Log that a policy is about to be judged on a held-out set, before any of its tasks is read.

    Args:
        store: of the home.
        conditions: of the evaluation.
        policy: who is judged.
        candidate: whether it is compared with an incumbent.
        experiment: id of the experiment.
        by: who is answerable.
        at: the time, with zone.

    Returns:
        Whether it is a new opening; False for one that is resumed.

    Raises:
        IntegrityError: the log was changed.
    """
    key = set_digest(conditions.heldout)
    store.create_same(f"{PREFIX}/{key}/tasks.json", canonical_json(sorted(conditions.heldout)).encode())
    opening = Opening(
        opening_id=_identity(conditions, policy.digest, policy.harness.digest),
        set_digest=key,
        tasks=len(conditions.heldout),
        lock_digest=conditions.lock_digest,
        policy=policy.name,
        policy_digest=policy.digest,
        candidate=candidate,
        experiment=experiment,
        by=by,
        at=at,
    )
    return _log(store, key).append(
        lambda found: (
            None
            if any(entry.content["opening_id"] == opening.opening_id for entry in found)
            else opening.model_dump(mode="json")
        )
    )


def openings(store: Store, heldout: Iterable[tuple[str, str]]) -> list[Opening]:
    """Return every opening of a held-out set, and of every other set that shares a task with it, oldest first.

    Args:
        store: of the home.
        heldout: (task id, task digest) of the set, as a split lock has them.

    Raises:
        IntegrityError: a log was changed, or an entry of it is missing.
    """
    wanted = {value for _, value in heldout}
    found = []
    for key in store.children(PREFIX):
        name = f"{PREFIX}/{key}/tasks.json"
        entries = json.loads(store.read(name))
        if set_digest((task_id, value) for task_id, value in entries) != key:
            raise IntegrityError(name, rule="it must be the set that it is named by", remedy="restore it from a backup")
        if wanted & {value for _, value in entries}:
            found += _opened(store, key)
    return sorted(found, key=lambda opening: (opening.at, opening.opening_id))


def judged(found: Iterable[Opening]) -> dict[str, Opening]:
    """The candidates among some openings, by policy digest, each with its first opening: what Holm's correction covers.

    A policy that is judged again, in another experiment or under another seed, is the same candidate.
    """
    first: dict[str, Opening] = {}
    for opening in found:
        if opening.candidate:
            first.setdefault(opening.policy_digest, opening)
    return first


def require_opening(store: Store, plan: EvaluationPlan, policy_digest: str, harness_digest: str) -> None:
    """Raise EvaluationError unless this opening of the plan's tasks was logged."""
    conditions = Conditions.of(plan)
    wanted, key = _identity(conditions, policy_digest, harness_digest), set_digest(conditions.heldout)
    if not any(opening.opening_id == wanted for opening in _opened(store, key)):
        raise EvaluationError(
            f"policy {policy_digest[:12]} on {len(plan.tasks)} held-out tasks",
            rule="the opening of a held-out set is logged before it is read, and this one was not",
            remedy="call log_opening first, as the stage heldout_rows does",
        )


def _identity(conditions: Conditions, policy_digest: str, harness_digest: str) -> str:
    return digest(
        {
            **conditions._asdict(),
            "heldout": set_digest(conditions.heldout),
            "policy_digest": policy_digest,
            "harness_digest": harness_digest,
        }
    )


def _log(store: Store, key: str) -> Chain:
    return Chain(store, f"{PREFIX}/{key}/log", f"{PREFIX}/{key}/head")


def _opened(store: Store, key: str) -> list[Opening]:
    found = []
    for entry in _log(store, key).read():
        try:
            found.append(Opening.model_validate(entry.content))
        except ValidationError as error:
            raise IntegrityError(entry.name, rule=f"it must be an opening ({error})", remedy="restore it") from None
    return found
