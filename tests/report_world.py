"""A report with everything that a report can hold, made of rows by the real statistics and the real gate."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
from heldout_rows import block, card, plan, rows

from ratchet.contracts.canonical import digest, plain
from ratchet.contracts.judge import DriftRule
from ratchet.contracts.score import NotComputable
from ratchet.evaluation.arm import Arm
from ratchet.evaluation.audits import audits_entry
from ratchet.evaluation.compare import compare
from ratchet.evaluation.judged import judge_entry
from ratchet.evaluation.report import report
from ratchet.release.gate import decide
from ratchet.release.inputs import GateInputs, IncumbentInput, Limits, PermissionsInput, RightInput
from ratchet.rewards.audit import RewardAudit
from ratchet.rewards.calibration.agreement import agreement
from ratchet.rewards.calibration.calibrate import JudgeCalibration
from ratchet.rewards.judges.bias import BiasAudit, BiasReport
from ratchet.rewards.policy_audit import audit_policy

PLAN = plan(400, 3, repos=80, segments=("off by one", "<wrong> & return"))
NOISE = np.random.default_rng(0)
INCUMBENT = rows(PLAN, NOISE.random((400, 3)) < 0.35, "production-3")
SFT = rows(PLAN, NOISE.random((400, 3)) < 0.5, "sft", exploit=True, exploits={"edited_tests": "touched a test"})
NOTHING = rows(PLAN, block(0, 400, 3), "dpo", violations=["no_secret"])
CURVES = {"reward": {"sft": [(0.0, 0.1), (10.0, 0.4), (20.0, float("nan"))]}, "loss": {"dpo": [(1.0, 0.7)]}}
AT = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
WORDS = "0 accepted results in the window"


def gate_inputs(rights: tuple[RightInput, ...] = ()) -> GateInputs:
    """What the gate of these reports reads beside the scorecards."""
    return GateInputs(
        manifest_digest="manifest",
        lock_digest="lock",
        reward_digest="reward",
        limits=Limits(minimum_effect=0.03, max_latency_ratio=1.5, max_cost_ratio=1.2),
        incumbent=IncumbentInput(digest="pin", version=None, released_for=None, evaluated_in="repair 1"),
        contamination=None,
        rights=rights,
        reward_audit=None,
        policy_audit=None,
        permissions=PermissionsInput(incumbent_digest="harness", candidate_digest="harness", widened=()),
    )


def body(decided: bool = True) -> dict[str, Any]:
    """The report: an incumbent from production, a candidate that is better, and one that accepts nothing."""
    cards = [
        card(INCUMBENT, None),
        card(SFT, INCUMBENT, [420.0], minimum_effect=0.03),
        card(NOTHING, INCUMBENT, [420.0, 10.0], minimum_effect=0.03),
    ]
    grants = (
        RightInput(grant_id="logs/train_sft", digest=digest("g"), state="active", valid=True, rows=900),
        RightInput(grant_id="first/train_sft", digest=digest("f"), state="active", valid=True, rows=7),
        RightInput(grant_id="other/passed_on", digest=digest("h"), state="withdrawn", valid=False),
    )
    inputs = gate_inputs(grants)
    decision = decide(cards[1], cards[0], inputs, others=cards[2:], decided_at=AT, decided_by="release-owner")
    whole = report(
        experiment="repair",
        manifest_digest=digest("manifest"),
        split_lock={"digest": digest("lock"), "train": 600, "validation": 160, "heldout": 400},
        scorecards=cards,
        comparisons=[compare(Arm(SFT), Arm(NOTHING), resamples=1000)],
        decision=decision.summary() if decided else None,
        lineage=lineage([plain(one) for one in grants]),
        audits=audits_entry(reward_audit(), ("empty is offered only after training",), audits()),
        further={
            "judge": judge(),
            "openings": [opening(one) for one in ("sft", "elsewhere")],
            "prices": {"currency": "USD", "per_sandbox_s": 1.0, "per_trainer_hour": 3.6},
            "logs": [{"agent": "expert", "episodes": 1900}],
        },
    )
    release = {"version": "sft (0123)", "state": "rejected"}
    return {**whole, "release": release, "rights_now": [{"grant_id": "logs", "state": "withdrawn"}]}


def opening(name: str) -> dict[str, Any]:
    """A candidate was judged."""
    return {
        "policy": digest(name), "name": name, "candidate": True, "experiment": "repair-1", "at": AT.isoformat(),
        "by": "ada",
    }  # fmt: skip


def lineage(grants: list[Any]) -> dict[str, Any]:
    """A candidate that started from another one."""
    step = {"dataset": digest("d"), "certificate": digest("c"), "purpose": "train_sft", "records": 900}
    return {
        "version": digest("v"),
        "policy": digest("sft"),
        "weights": digest("w"),
        "decision": digest("decision"),
        "environment": digest("e"),
        "inputs": {"manifest": digest("m"), "scorecard:sft": digest("s")},
        "trained_from": [
            {**step, "policy": "sft", "digest": digest("sft"), "grants": {"logs": 900}},
            {**step, "policy": "first", "digest": digest("first"), "grants": {"logs": 900}},
        ],
        "ancestors": [{"policy": "repair-1/older", "digest": digest("older"), "dataset": digest("d0")}],
        "incumbent": {"version": digest("i"), "label": "production-3 (abcd)", "policy": digest("production-3")},
        "grants": grants,
        "base": "package:starter",
    }


def reward_audit() -> RewardAudit:
    """An audit of a reward that pays for an exploit."""
    found = {"empty is accepted": ("task-0001",), "honest is accepted in too few tasks": ("task-0002",)}
    return RewardAudit.issue(
        spec_digest="reward", environment_digest="e", tasks_digest="t", tasks=2, probes=(), passed=False,
        failures=tuple(found), found=found,
    )  # fmt: skip


def audits() -> dict[str, Any]:
    """The audits of the candidates' episodes."""
    return {name: audit_policy(one, INCUMBENT, judge="edit_quality") for name, one in (("sft", SFT), ("dpo", NOTHING))}


def judge() -> dict[str, Any]:
    """A judge whose labels are simulated and too few, with biases of every kind."""
    missing = NotComputable(reason="no item counts")
    found = agreement(["poor", "good"] * 16, ["poor", "good"] * 15 + ["poor"] * 2, ["poor", "good"], resamples=500)
    calibration = JudgeCalibration.issue(
        judge_digest=digest("judge"), rubric="edit_quality", rubric_version="1", labels_digest="labels", simulated=True,
        raters=("function:edit_quality/1",), experts_alpha=NotComputable(reason="one rater alone has labelled"),
        agreement=found, invalid=0, cost_usd=0.0, rule=DriftRule(), biased=("injection",), audited=True,
        failures=("32 labels are fewer than 100: insufficient", "it is biased: injection"), at=AT,
    )  # fmt: skip
    sizes = {"n": 30, "invalid": 0, "limit": 0.1}
    known = {"rate": 0.2, "interval": {"low": 0.1, "high": 0.4}}
    biases = BiasReport.issue(
        judge_digest=digest("judge"),
        audits=(
            BiasAudit(kind="verbosity", rate=missing, interval=missing, verdict="inconclusive", **sizes),
            BiasAudit(kind="self_preference", rate=missing, interval=missing, verdict="not_applicable", **sizes),
            BiasAudit(kind="injection", verdict="biased", **known, **sizes),
        ),
    )
    return judge_entry(calibration, biases, 0.0)


BODY = body()
