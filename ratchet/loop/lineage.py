"""What every training run of a home saw, read back from stored evidence: the graph behind `ratchet rights trace`.

A training run leaves a record before it starts: the authorised dataset, the grants behind it, the policy it starts
from, and the policies whose episodes are among its records. The trajectories can be erased later; the record stays. A
policy has seen a grant's data where its own dataset holds records of it, where it started from a policy that has, where
it learned from episodes that such a policy sampled, or where its base checkpoint is such a policy's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from pydantic import Field

from ratchet.contracts.evidence import Evidence
from ratchet.contracts.manifest import Manifest, Purpose
from ratchet.contracts.policy import Policy
from ratchet.errors import IntegrityError
from ratchet.intake import index
from ratchet.loop.context import Run, reopen_run, runs
from ratchet.policies.record import read_policy
from ratchet.rights import AuthorisedDataset, reopen
from ratchet.store import folder_digest


class TrainingRecord(Evidence, owner="ratchet.loop"):
    """What one training run was given, written before it starts."""

    tenant: str = Field(description="Whose run it is.")
    run_id: str = Field(description="Experiment.")
    name: str = Field(description="Name of the candidate; `baseline` for the base checkpoint.")
    method: str = Field(description="Training method, or `baseline`.")
    parent: str | None = Field(description="Digest of the policy that it starts from; None for the base checkpoint.")
    dataset: str | None = Field(description="Digest of the authorised dataset; None for the base checkpoint.")
    purpose: Purpose | None = Field(description="Purpose that the dataset was authorised for.")
    reads: bool = Field(description="Whether the method reads the records; if not, they are its right to act alone.")
    grants: dict[str, int] = Field(description="Records by grant.")
    sampled_by: tuple[str, ...] = Field(description="Digests of the policies that sampled records of it, sorted.")
    base_weights: str | None = Field(description="Digest of the folder that a base checkpoint was taken from.")


class Learner(NamedTuple):
    """A policy of an experiment with what it learned from."""

    run_id: str
    manifest: Manifest
    policy: Policy
    record: TrainingRecord | None
    dataset: AuthorisedDataset | None


class Cause(NamedTuple):
    """Why a policy counts as having seen a grant's data."""

    policy: str
    """Digest of the policy."""
    name: str
    run_id: str
    how: str
    """In words: its own records, or what it got them through."""
    steps: int
    """0 where its own dataset holds records, else steps from one that does."""


def record_training(
    run: Run, name: str, method: str, parent: Policy, dataset: AuthorisedDataset, *, reads: bool
) -> str:
    """Keep what a training run is about to see; returns the record's place in the store."""
    frame = index(run.store, run.manifest.tenant)
    mine = frame[frame["digest"].isin([digest for digest, _ in dataset.records])]
    record = TrainingRecord.issue(
        tenant=run.manifest.tenant,
        run_id=run.manifest.run_id,
        name=name,
        method=method,
        parent=parent.digest,
        dataset=dataset.digest,
        purpose=dataset.purpose,
        reads=reads,
        grants=dict(Counter(grant for _, grant in dataset.records)),
        sampled_by=tuple(sorted({str(one) for one in mine["policy_digest"].dropna()})),
        base_weights=None,
    )
    place = run.name("trainings", f"{name}-{dataset.digest[:16]}.json")
    run.store.create_same(place, record.to_bytes())
    return place


def record_base(run: Run) -> None:
    """Keep which folder the base checkpoint was taken from, where it was one: it may be another policy's."""
    base = Path(run.manifest.base.checkpoint)
    record = TrainingRecord.issue(
        tenant=run.manifest.tenant,
        run_id=run.manifest.run_id,
        name="baseline",
        method="baseline",
        parent=None,
        dataset=None,
        purpose=None,
        reads=False,
        grants={},
        sampled_by=(),
        base_weights=folder_digest(base) if base.is_dir() else None,
    )
    run.store.create(_base_place(run), record.to_bytes())


class Lineage:
    """Everything that was learned in a home, verified as it is read."""

    def __init__(self, home: Path) -> None:
        """Read the policies of every experiment of the home, with their records and datasets.

        Raises:
            IntegrityError: a policy's record, training record or dataset is missing, or was changed.
        """
        self.home = home.resolve()
        self.learners: list[Learner] = []
        for run_id in runs(self.home):
            with reopen_run(self.home, run_id) as run:
                self.learners += [one for one in (_learner(run, name) for name in _names(run)) if one]

    @cached_property
    def by_digest(self) -> dict[str, list[Learner]]:
        """Learners by the digest of their policy; the same weights may be made by several experiments."""
        found: dict[str, list[Learner]] = {}
        for learner in self.learners:
            found.setdefault(learner.policy.digest, []).append(learner)
        return found

    def causes(self, grant_id: str) -> dict[str, Cause]:
        """Every policy that saw data of a grant, by digest.

        A method that acts on tasks reads no records, though it needs a right to some: such a policy counts too, but is
        said to have learned through another one where it did.
        """
        found: dict[str, Cause] = {}
        for reading in (True, False):
            for learner in self.learners:
                self._see(learner, grant_id, found, reading)
            while self._pass_on(found):
                pass
        return found

    def grants(self, policy: str) -> dict[str, list[str]]:
        """Every grant whose data a policy saw, with the ways in words."""
        known = {grant for learner in self.learners if learner.dataset for grant in learner.dataset.grant_ids}
        found: dict[str, list[str]] = {}
        for grant_id in sorted(known):
            cause = self.causes(grant_id).get(policy)
            if cause is not None:
                found[grant_id] = [cause.how]
        return found

    def chain(self, policy: str) -> list[Learner]:
        """A policy and those it started from, the base last; the first experiment that made each of them."""
        found: list[Learner] = []
        step: str | None = policy
        while step in self.by_digest and step not in {one.policy.digest for one in found}:
            found.append(self.by_digest[str(step)][0])
            step = found[-1].policy.parent or self._origin(found[-1])
        return found

    @staticmethod
    def _see(learner: Learner, grant_id: str, found: dict[str, Cause], reading: bool) -> None:
        """Take in a policy whose own dataset holds records of the grant."""
        policy, dataset = learner.policy, learner.dataset
        reads = learner.record is None or learner.record.reads
        count = sum(grant == grant_id for _, grant in dataset.records) if dataset else 0
        if count and dataset and reads is reading and policy.digest not in found:
            used = "learned from" if reads else "acted under the right to"
            how = f"{used} {count} of its records ({dataset.purpose}, dataset {dataset.digest[:12]})"
            found[policy.digest] = Cause(policy.digest, policy.name, learner.run_id, how, 0)

    def _pass_on(self, found: dict[str, Cause]) -> bool:
        """Take in the policies one step further; returns whether there were any."""
        fresh = [cause for learner in self.learners if (cause := self._passed_on(learner, found)) is not None]
        for cause in fresh:
            found.setdefault(cause.policy, cause)
        return bool(fresh)

    def _passed_on(self, learner: Learner, found: dict[str, Cause]) -> Cause | None:
        """What a policy that is not yet among those found got through another one that is."""
        policy = learner.policy
        if policy.digest in found:
            return None
        sampled = [one for one in (learner.record.sampled_by if learner.record else ()) if one in found]
        origin = self._origin(learner)
        if policy.parent in found:
            source, words = found[str(policy.parent)], "started from"
        elif origin in found:
            source, words = found[str(origin)], "its base checkpoint is"
        elif sampled:
            source, words = found[sampled[0]], "learned from episodes of"
        else:
            return None
        how = f"{words} {source.name} ({source.policy[:12]})"
        return Cause(policy.digest, policy.name, learner.run_id, how, source.steps + 1)

    def _origin(self, learner: Learner) -> str | None:
        """Digest of the policy whose checkpoint was taken as the base, as far as this home knows it."""
        weights = learner.record.base_weights if learner.record else None
        made = [one for one in self.learners if weights and one.policy.weights_digest == weights]
        return made[0].policy.digest if made and made[0].policy.digest != learner.policy.digest else None


def descent(run: Run, policy: Policy) -> list[Policy]:
    """A policy that a run trained and the ones of the run that it started from, the nearest first, the base left out.

    By name: a training that changed nothing leaves the very policy that it started from.
    """
    sections = {section.name: section for section in run.manifest.methods}
    chain, name = [policy], sections[policy.name].start
    while name in sections:
        place = run.name("policies", name, "policy.json")
        chain.append(read_policy(run.store.read(place), place))
        name = sections[name].start
    return chain


def passed_on(run: Run, chain: Sequence[Policy]) -> list[str]:
    """Grants that a chain of policies of one experiment has seen through policies outside of it, sorted.

    Those are the makers of sampled episodes among its records, the policy whose checkpoint its base is, and the version
    from production that it started from. Other experiments are read only where there is one.
    """
    learners = [_learner(run, name) for name in ("baseline", *(policy.name for policy in chain))]
    inside = {learner.policy.digest for learner in learners if learner}
    records = [learner.record for learner in learners if learner and learner.record]
    outside = {str(policy.parent) for policy in chain} - inside
    if not outside and not any(record.base_weights or set(record.sampled_by) - inside for record in records):
        return []
    own = {grant for learner in learners if learner and learner.dataset for grant in learner.dataset.grant_ids}
    return sorted(Lineage(run.home).grants(chain[0].digest).keys() - own)


def _names(run: Run) -> list[str]:
    return ["baseline", *(section.name for section in run.manifest.methods)]


def _base_place(run: Run) -> str:
    return run.name("trainings", "baseline.json")


def _learner(run: Run, name: str) -> Learner | None:
    """A policy of a run with its evidence, verified; None where it was not made (yet)."""
    place = run.name("policies", name, "policy.json")
    if not run.store.exists(place):
        return None
    policy = read_policy(run.store.read(place), place)
    dataset = record = None
    if "dataset" in policy.training:
        source = run.name("datasets", f"{policy.training['dataset']}.json")
        dataset = reopen(run.store.read(source), source)
        if dataset.digest != policy.training["dataset"]:
            raise IntegrityError(
                source,
                seen=dataset.digest,
                rule=f"policy {name!r} names the dataset {policy.training['dataset']}",
                remedy="restore the file from a backup of the store",
            )
    kept = policy.training.get("record") or (_base_place(run) if name == "baseline" else None)
    if kept and run.store.exists(kept):
        record = TrainingRecord.reopen(run.store.read(kept), kept)
        if record.dataset != (dataset.digest if dataset else None):
            raise IntegrityError(
                kept,
                seen=record.dataset,
                rule=f"it must be about the dataset that policy {name!r} learned from",
                remedy="restore the file from a backup of the store",
            )
    return Learner(run.manifest.run_id, run.manifest, policy, record, dataset)
