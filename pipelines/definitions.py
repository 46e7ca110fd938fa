"""All definitions. Loading them imports no torch, transformers, trl, vllm, great_expectations or mlflow."""

from __future__ import annotations

import dagster as dg

from assets import checks, evaluation, intake, release, rewards, splits, training
from pipelines.jobs import JOBS
from pipelines.schedules import daily_retention_sweep, nightly_improvement_loop
from pipelines.sensors import SENSORS
from resources.home import Home

defs = dg.Definitions(
    assets=dg.load_assets_from_modules([intake, splits, rewards, training, evaluation, release]),
    asset_checks=dg.load_asset_checks_from_modules([checks]),
    jobs=JOBS,
    schedules=[nightly_improvement_loop, daily_retention_sweep],
    sensors=SENSORS,
    resources={"home": Home()},
    executor=dg.in_process_executor,
)
