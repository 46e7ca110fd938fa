"""The two questions of a data steward: what became of a grant, and what is behind a version.

Both answers are plain JSON, computed from evidence that is verified while it is read (see `lineage`), from the rights
ledger as it stands, and from the release ledger.
"""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path
from typing import Any

from ratchet.errors import RightsError, TransitionError
from ratchet.intake import published
from ratchet.loop.erasing import certificates
from ratchet.loop.lineage import Cause, Learner, Lineage
from ratchet.release.ledger import Ledger as ReleaseLedger
from ratchet.release.records import Version
from ratchet.release.states import State
from ratchet.rights import Ledger
from ratchet.store import open_store

Held = dict[str, tuple[Version, State]]


def trace(home: Path, text: str, at: datetime) -> dict[str, Any]:
    """Trace a grant where the rights ledger knows one of that id, and a version or policy otherwise."""
    if text in Ledger.at_home(home):
        return trace_grant(home, text, at)
    return trace_version(home, text, at)


def trace_grant(home: Path, grant_id: str, at: datetime) -> dict[str, Any]:
    """Follow a grant to everything that was learned under it.

    Returns:
        `grant` (the right at `at`, in full), `batches`, `datasets`, `policies` (each with the way it saw the data and
        its versions in the release ledger with their states), and `erasures`.

    Raises:
        RightsError: the ledger knows no such grant.
        IntegrityError: evidence on the way is missing or was changed.
    """
    right = Ledger.at_home(home).effective(grant_id, at)
    if right.tenant is None:
        raise RightsError(
            f"grant {grant_id!r}", rule="the ledger knows no such grant", remedy="see `ratchet rights list`"
        )
    lineage, held = Lineage(home), ReleaseLedger.of(home).versions()
    causes = lineage.causes(grant_id)
    policies = [_affected(cause, held) for cause in sorted(causes.values(), key=lambda one: (one.steps, one.name))]
    datasets = {
        one.dataset.digest: {
            "dataset": one.dataset.digest,
            "experiment": one.run_id,
            "purpose": one.dataset.purpose,
            "records": sum(grant == grant_id for _, grant in one.dataset.records),
            "of": len(one.dataset.records),
            "authorised_at": one.dataset.authorised_at.isoformat(),
        }
        for one in lineage.learners
        if one.dataset and grant_id in one.dataset.grant_ids
    }
    store = open_store(home)
    return {
        "grant": right.model_dump(mode="json"),
        "batches": [
            {
                "batch": batch.batch,
                "ingested_at": batch.ingested_at,
                "trajectories": batch.trajectories,
                "sources": len(batch.sources),
            }
            for batch in published.chain(store, right.tenant)
            if batch.grant_id == grant_id and not batch.erased
        ],
        "datasets": list(datasets.values()),
        "policies": policies,
        "erasures": [one.model_dump(mode="json", exclude={"objects"}) for one in certificates(store, right)],
    }


def trace_version(home: Path, text: str, at: datetime) -> dict[str, Any]:
    """Follow a version, or a policy that is not registered, back to the grants behind it.

    Args:
        home: the home folder.
        text: start of a version's or policy's digest (6 digits or more), a policy's name, or `MODEL/NUMBER`, where the
            model is `tenant.experiment` and the number that of the version in its line.
        at: the time that the rights are asked at.

    Returns:
        `policy`, `versions` with their states, the `chain` of policies that it started from with the dataset of each,
        and `grants` with the right of each at `at` and the ways its data were seen.

    Raises:
        TransitionError: nothing, or more than one thing, is called that.
        IntegrityError: evidence on the way is missing or was changed.
    """
    lineage, ledger = Lineage(home), ReleaseLedger.of(home)
    held = ledger.versions()
    policy = _policy_digest(lineage, ledger, text)
    rights = Ledger.at_home(home)
    chain = lineage.chain(policy)
    return {
        "policy": {"name": chain[0].policy.name, "digest": policy, "experiment": chain[0].run_id},
        "versions": _versions(policy, held),
        "chain": [_link(learner) for learner in chain],
        "grants": [
            {**rights.effective(grant_id, at).model_dump(mode="json"), "how": ways}
            for grant_id, ways in lineage.grants(policy).items()
        ],
    }


def _policy_digest(lineage: Lineage, ledger: ReleaseLedger, text: str) -> str:
    numbered = re.fullmatch(r"([a-z0-9_-]+)\.([a-z0-9_-]+)/(\d+)", text)
    if numbered:
        line = list(ledger.versions(numbered[1], numbered[2]).values())
        if not 0 < int(numbered[3]) <= len(line):
            raise TransitionError(
                f"version {text!r}",
                rule=f"the line {numbered[1]}.{numbered[2]} has {len(line)} versions",
                remedy="see `ratchet history`",
            )
        return line[int(numbered[3]) - 1][0].policy.digest
    found = {digest for digest in lineage.by_digest if len(text) >= 6 and digest.startswith(text)}
    if len(found) != 1:
        found = {one.policy.digest for one in lineage.learners if one.policy.name == text}
    if len(found) != 1:
        found = {ledger.find(text).policy.digest}
    (digest,) = found
    if digest not in lineage.by_digest:
        raise TransitionError(
            f"version {text!r}",
            rule=f"its policy {digest[:12]} must be in the store of this home",
            remedy="give the home that trained it",
        )
    return digest


def _affected(cause: Cause, held: Held) -> dict[str, Any]:
    return {
        "policy": cause.name,
        "digest": cause.policy,
        "experiment": cause.run_id,
        "how": cause.how,
        "versions": _versions(cause.policy, held),
    }


def _versions(policy: str, held: Held) -> list[dict[str, str]]:
    return [
        {"version": identity, "model": f"{version.tenant}.{version.experiment}", "state": str(state)}
        for identity, (version, state) in held.items()
        if version.policy.digest == policy
    ]


def _link(learner: Learner) -> dict[str, Any]:
    dataset, record = learner.dataset, learner.record
    return {
        "policy": learner.policy.name,
        "digest": learner.policy.digest,
        "method": learner.policy.method,
        "experiment": learner.run_id,
        "dataset": dataset.digest if dataset else None,
        "purpose": dataset.purpose if dataset else None,
        "records": len(dataset.records) if dataset else 0,
        "reads": record.reads if record else dataset is not None,
        "grants": list(dataset.grant_ids) if dataset else [],
        "sampled_by": list(record.sampled_by) if record else [],
    }
