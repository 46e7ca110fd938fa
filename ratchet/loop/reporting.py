"""What the report shows beside scorecards and decision: the judge, who opened the held-out tasks, the prices, where the
first logs come from, which candidates were left out, and the rights as they stand now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from ratchet.contracts.policy import Policy
from ratchet.contracts.score import NotComputable
from ratchet.evaluation.judged import judge_entry
from ratchet.evaluation.openings import openings
from ratchet.loop import judge
from ratchet.loop.context import Run
from ratchet.loop.leaving_out import all_left_out
from ratchet.rewards.judges.bias import reopen_report
from ratchet.rights import reopen

UNCALIBRATED = NotComputable(reason="the judge was not calibrated")


def further(run: Run) -> dict[str, Any]:
    """The keys `judge` (where the reward has one), `openings`, `prices`, `logs` and `left_out` of the report, as plain
    JSON."""
    found: dict[str, Any] = {
        "openings": openings_of(run),
        "prices": run.manifest.prices.model_dump(mode="json"),
        "logs": [one.model_dump(mode="json", include={"agent", "episodes"}) for one in run.manifest.logs],
        "left_out": [{**one.model_dump(mode="json"), "reason": one.reason} for one in all_left_out(run)],
    }
    if run.manifest.reward.judge is not None:
        found["judge"] = _judge(run, run.manifest.reward.judge.weight)
    return found


def openings_of(run: Run) -> list[dict[str, Any]]:
    """Every logged opening of the held-out tasks, in whichever experiment: policy, its name there, when and by whom."""
    return [
        {
            "policy": one.policy_digest,
            "name": one.policy,
            "candidate": one.candidate,
            "experiment": one.experiment,
            "at": one.at.isoformat(),
            "by": one.by,
        }
        for one in openings(run.store, run.lock.heldout)
    ]


def learned_from(run: Run, policy: Policy) -> dict[str, Any]:
    """The purpose, records and grants (with records of each) of the dataset that a policy learned from."""
    name = run.name("datasets", f"{policy.training['dataset']}.json")
    dataset = reopen(run.store.read(name), name)
    grants = dict(sorted(Counter(grant for _, grant in dataset.records).items()))
    return {"purpose": dataset.purpose, "records": len(dataset.records), "grants": grants}


def rights_now(run: Run, lineage: Mapping[str, Any]) -> list[dict[str, str]]:
    """The state of every grant of a lineage at this moment: it may have ended since the decision."""
    run.rights.refresh()
    known = sorted({one["grant_id"].rpartition("/")[0] for one in lineage["grants"]})
    return [{"grant_id": one, "state": run.rights.effective(one, run.now()).state} for one in known]


def _judge(run: Run, weight: float) -> dict[str, Any]:
    found = judge.open_calibration(run)
    if found is None:
        return UNCALIBRATED.model_dump(mode="json")
    name = run.name(judge.place(run, "bias.json"))
    return judge_entry(found, reopen_report(run.store.read(name), name), weight)
