"""The schedules. That of the improvement loop is stopped until somebody starts it; that of the rights always runs."""

import dagster as dg

from assets.partitions import experiments, tenants
from pipelines.instance import UNFINISHED
from pipelines.jobs import improve_policy, sweep_retention
from pipelines.timing import NIGHTLY, SWEEP
from ratchet.loop.context import runs
from ratchet.rights import Ledger
from resources.home import Home

PARTITION = "dagster/partition"


@dg.schedule(
    job=improve_policy,
    cron_schedule=NIGHTLY,
    execution_timezone="UTC",
    default_status=dg.DefaultScheduleStatus.STOPPED,
    description="Every night: finish, verify and decide the newest experiment. Finished work is not done again.",
)
def nightly_improvement_loop(context: dg.ScheduleEvaluationContext, home: Home) -> dg.RunRequest | dg.SkipReason:
    """Launch `improve_policy` for the experiment of this home that was added last, unless a run of it is under way."""
    held = set(runs(home.folder))
    keys = [key for key in context.instance.get_dynamic_partitions(str(experiments.name)) if key in held]
    if not keys:
        return dg.SkipReason("no experiment has been opened yet; `ratchet run` opens one")
    under_way = dg.RunsFilter(tags={PARTITION: keys[-1]}, statuses=[dg.DagsterRunStatus.QUEUED, *UNFINISHED])
    if context.instance.get_runs(under_way, limit=1):
        return dg.SkipReason(f"a run of {keys[-1]} is under way")
    return dg.RunRequest(
        run_key=f"{keys[-1]}@{context.scheduled_execution_time:%Y-%m-%dT%H:%M}",
        partition_key=keys[-1],
    )


@dg.schedule(
    job=sweep_retention,
    cron_schedule=SWEEP,
    execution_timezone="UTC",
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Every day: grants that have expired, what follows for models, and what is due for erasure.",
)
def daily_retention_sweep(context: dg.ScheduleEvaluationContext, home: Home) -> list[dg.RunRequest] | dg.SkipReason:
    """Launch `sweep_retention` for every tenant that has a grant in the ledger of this home and is shown in Dagster."""
    owners = {right.tenant for right in Ledger.at_home(home.folder).rights(context.scheduled_execution_time)}
    keys = [key for key in context.instance.get_dynamic_partitions(str(tenants.name)) if key in owners]
    moment = f"{context.scheduled_execution_time:%Y-%m-%dT%H:%M}"
    requests = [dg.RunRequest(run_key=f"{key}@{moment}", partition_key=key) for key in keys]
    return requests or dg.SkipReason("no tenant of this home has a grant yet")
