"""The jobs. One process, no retries: stages resume by themselves, and the default executor starts a process a step."""

from __future__ import annotations

import dagster as dg

from assets.rewards import RECALIBRATE

IMPROVEMENT = (
    "contamination_report",
    "reward_audit",
    "judge_calibration",
    "judge_disagreements",
    "baseline_policy",
    "harness_policy",
    "sft_policy",
    "dpo_policy",
    "orpo_policy",
    "grpo_policy",
    "gspo_policy",
    "rloo_policy",
    "heldout_rows",
    "heldout_scorecard",
    "policy_audit",
    "release_decision",
    "production_policy",
)

prepare_experiment = dg.define_asset_job(
    "prepare_experiment",
    selection=dg.AssetSelection.assets("task_catalogue", "split_lock", "landing_logs"),
    description="Make the tasks of an experiment, lock its splits, and let the scripted agents write the first logs.",
    executor_def=dg.in_process_executor,
)

ingest_trajectories = dg.define_asset_job(
    "ingest_trajectories",
    selection=dg.AssetSelection.assets("rights_ledger", "trajectories"),
    description="Take in what lies in a tenant's landing folder, under its grants.",
    executor_def=dg.in_process_executor,
)

improve_policy = dg.define_asset_job(
    "improve_policy",
    selection=dg.AssetSelection.assets(*IMPROVEMENT),
    description="Audit, train, evaluate on held-out tasks, decide, and release as far as the decision carries.",
    executor_def=dg.in_process_executor,
)

retrain_policy = dg.define_asset_job(
    "retrain_policy",
    selection=dg.AssetSelection.assets("task_catalogue", "split_lock", *IMPROVEMENT),
    description="The improvement of an experiment whose data came in already: no first logs are made.",
    executor_def=dg.in_process_executor,
)

sweep_retention = dg.define_asset_job(
    "sweep_retention",
    selection=dg.AssetSelection.assets("rights_ledger", "retention_sweep"),
    description="Find the grants of a tenant that have ended, let models follow, and list or erase data that is due.",
    executor_def=dg.in_process_executor,
)

recalibrate_judge = dg.define_asset_job(
    "recalibrate_judge",
    selection=dg.AssetSelection.assets("judge_calibration", "judge_disagreements"),
    description="Make and calibrate the next generation of the judge, on labels that no earlier one was calibrated on.",
    executor_def=dg.in_process_executor,
    tags={RECALIBRATE: "asked for by a person"},
)

LOOP = (prepare_experiment, ingest_trajectories, improve_policy)
"""The whole loop of one experiment, in order; the middle one runs by tenant."""
JOBS = (*LOOP, retrain_policy, sweep_retention, recalibrate_judge)
