"""The schedule of the improvement loop. It is stopped until somebody starts it."""

import dagster as dg

from assets.partitions import experiments
from pipelines.jobs import improve_policy
from ratchet.loop.context import runs
from resources.home import Home


@dg.schedule(
    job=improve_policy,
    cron_schedule="0 2 * * *",
    execution_timezone="UTC",
    default_status=dg.DefaultScheduleStatus.STOPPED,
    description="Every night: finish, verify and decide the newest experiment. Finished work is not done again.",
)
def nightly_improvement(context: dg.ScheduleEvaluationContext, home: Home) -> dg.RunRequest | dg.SkipReason:
    """Launch `improve_policy` for the experiment of this home that was added last."""
    held = set(runs(home.folder))
    keys = [key for key in context.instance.get_dynamic_partitions(str(experiments.name)) if key in held]
    if not keys:
        return dg.SkipReason("no experiment has been opened yet; `ratchet run` opens one")
    return dg.RunRequest(
        run_key=f"{keys[-1]}@{context.scheduled_execution_time:%Y-%m-%d}",
        partition_key=keys[-1],
    )
