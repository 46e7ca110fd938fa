"""All definitions as one snapshot: a change of the graph, its checks, jobs, schedules or sensors is seen here first."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from pipelines.definitions import defs

ROOT = Path(__file__).resolve().parents[1]
HEAVY = ("torch", "transformers", "trl", "vllm", "great_expectations", "mlflow", "matplotlib", "pandas", "peft")

ASSETS = {
    "rights_ledger": ("intake", "tenants", None, set()),
    "retention_sweep": ("intake", "tenants", None, {"rights_ledger"}),
    "trajectories": ("intake", "tenants", None, {"rights_ledger", "landing_logs"}),
    "task_catalogue": ("splits", "experiments", "sandbox", set()),
    "split_lock": ("splits", "experiments", None, {"task_catalogue"}),
    "landing_logs": ("splits", "experiments", "sandbox", {"split_lock"}),
    "contamination_report": ("splits", "experiments", None, {"split_lock", "trajectories", "rights_ledger"}),
    "reward_audit": ("rewards", "experiments", "sandbox", {"split_lock", "judge_calibration"}),
    "judge_calibration": ("rewards", "experiments", "trainer", {"split_lock", "trajectories", "rights_ledger"}),
    "judge_disagreements": ("rewards", "experiments", None, {"judge_calibration"}),
    "baseline_policy": ("training", "experiments", None, {"contamination_report"}),
    "harness_policy": (
        "training",
        "experiments",
        "trainer",
        {"baseline_policy", "contamination_report", "trajectories"},
    ),
    "sft_policy": ("training", "experiments", "trainer", {"harness_policy", "contamination_report", "trajectories"}),
    "dpo_policy": ("training", "experiments", "trainer", {"sft_policy", "contamination_report", "trajectories"}),
    "orpo_policy": ("training", "experiments", "trainer", {"sft_policy", "contamination_report", "trajectories"}),
    **{
        f"{method}_policy": (
            "training",
            "experiments",
            "trainer",
            {"sft_policy", "contamination_report", "reward_audit", "judge_calibration"},
        )
        for method in ("grpo", "gspo", "rloo")
    },
    "heldout_rows": (
        "evaluation",
        "experiments",
        "sandbox",
        {
            "split_lock",
            "baseline_policy",
            *(f"{made}_policy" for made in ("harness", "sft", "dpo", "orpo", "grpo", "gspo", "rloo")),
        },
    ),
    "heldout_scorecard": ("evaluation", "experiments", None, {"heldout_rows"}),
    "policy_audit": ("evaluation", "experiments", None, {"heldout_rows"}),
    "release_decision": (
        "release",
        "experiments",
        None,
        {"heldout_scorecard", "policy_audit", "contamination_report", "reward_audit", "rights_ledger"},
    ),
    "production_policy": ("release", "experiments", None, {"release_decision"}),
    "canary_window": ("release", "experiments", None, {"production_policy"}),
}
"""Group, partitions, pool and upstream assets."""
BLOCKING = {
    "split_lock:split_lock_is_intact",
    "contamination_report:zero_contamination",
    "reward_audit:reward_audit_passed",
    "heldout_rows:evaluation_is_complete",
}
CHECKS = BLOCKING | {
    "rights_ledger:no_affected_version_serves",
    "trajectories:rights_hold",
    "trajectories:index_meets_expectations",
    "judge_calibration:kappa_above_floor",
    "heldout_scorecard:no_invalid_excess",
    "release_decision:every_rule_of_the_decision_is_computable",
    "production_policy:registry_matches_ledger",
}
GATE = {
    "evaluation_not_void",
    "candidate_is_another_policy",
    "incumbent_ran_where_it_serves",
    "zero_contamination",
    "training_rights_valid",
    "permissions_not_widened",
    "judges_calibrated",
    "reward_audit_passed",
    "policy_audit_passed",
    "exploit_rate_not_above_incumbent",
    "violations_not_above_incumbent",
    "paired_difference_above_minimum_effect",
    "difference_holds_among_candidates",
    "no_segment_regression",
    "no_large_segment_drop",
    "latency_within_limit",
    "cost_within_limit",
}
INTAKE = {"rights_ledger", "retention_sweep", "trajectories"}
IMPROVEMENT = ASSETS.keys() - INTAKE - {"task_catalogue", "split_lock", "landing_logs", "canary_window"}
JOBS = {
    "prepare_experiment": {"task_catalogue", "split_lock", "landing_logs"},
    "ingest_trajectories": {"rights_ledger", "trajectories"},
    "improve_policy": set(IMPROVEMENT),
    "retrain_policy": IMPROVEMENT | {"task_catalogue", "split_lock"},
    "sweep_retention": {"rights_ledger", "retention_sweep"},
    "recalibrate_judge": {"judge_calibration", "judge_disagreements"},
}


def test_the_assets_are_these() -> None:
    graph = defs.resolve_asset_graph()
    found = {}
    for key in graph.get_all_asset_keys():
        node = graph.get(key)
        parents = {parent.to_user_string() for parent in node.parent_keys}
        pools = node.pools or {None}
        found[key.to_user_string()] = (node.group_name, node.partitions_def.name, next(iter(pools)), parents)
    assert found == ASSETS


@pytest.mark.parametrize("name", ASSETS)
def test_every_asset_says_what_it_is_and_whose(name: str) -> None:
    node = defs.resolve_asset_graph().get(dg.AssetKey(name))
    assert node.description
    assert node.owners
    assert node.kinds


def test_the_checks_are_these() -> None:
    graph = defs.resolve_asset_graph()
    keys = graph.asset_check_keys
    names = {f"{key.asset_key.to_user_string()}:{key.name}" for key in keys}
    assert names == CHECKS | {f"release_decision:{rule}" for rule in GATE}
    blocking = {f"{key.asset_key.to_user_string()}:{key.name}" for key in keys if graph.get_check_spec(key).blocking}
    assert blocking == BLOCKING


def test_the_jobs_are_these_and_run_in_one_process() -> None:
    found = {}
    for name in JOBS:
        job = defs.resolve_job_def(name)
        found[name] = {key.to_user_string() for key in job.asset_layer.selected_asset_keys}
        assert job.executor_def is dg.in_process_executor
    assert found == JOBS


def test_the_schedules_and_sensors_are_these_and_only_those_that_protect_or_obey_a_person_start_by_themselves() -> None:
    schedule = defs.resolve_schedule_def("nightly_improvement_loop")
    assert schedule.cron_schedule == "0 2 * * *"
    assert schedule.job_name == "improve_policy"
    assert schedule.default_status is dg.DefaultScheduleStatus.STOPPED
    for name in ("retraining_trigger", "registry_reconciler", "judge_drift"):
        assert defs.resolve_sensor_def(name).default_status is dg.DefaultSensorStatus.STOPPED
    sweep = defs.resolve_schedule_def("daily_retention_sweep")
    assert (sweep.cron_schedule, sweep.job_name) == ("0 1 * * *", "sweep_retention")
    assert sweep.default_status is dg.DefaultScheduleStatus.RUNNING
    for name in ("rights_withdrawn", "canary_regression", "registry_review"):
        assert defs.resolve_sensor_def(name).default_status is dg.DefaultSensorStatus.RUNNING
    repository = defs.get_repository_def()
    assert len(repository.schedule_defs) == 2
    assert len(repository.sensor_defs) == 6


def test_the_definitions_are_valid() -> None:
    dg.Definitions.validate_loadable(defs)


def test_loading_the_definitions_imports_nothing_heavy() -> None:
    code = f"import sys, pipelines.definitions\nprint([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
