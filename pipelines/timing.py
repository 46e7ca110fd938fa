"""When schedules and sensors tick. The defaults suit a day's work; an operator moves them by environment variables.

    RATCHET_NIGHTLY_CRON       five fields, UTC; `0 2 * * *`
    RATCHET_SWEEP_CRON         five fields, UTC; `0 1 * * *`
    RATCHET_SENSOR_INTERVAL_S  seconds between two looks of any sensor; else each sensor's own

They are read when Dagster loads the definitions, so its processes are started anew after a change.
"""

from __future__ import annotations

import os

NIGHTLY = os.environ.get("RATCHET_NIGHTLY_CRON") or "0 2 * * *"
SWEEP = os.environ.get("RATCHET_SWEEP_CRON") or "0 1 * * *"


def seconds(own: int) -> int:
    """Seconds between two looks of a sensor that would look every `own` seconds by itself."""
    return int(os.environ.get("RATCHET_SENSOR_INTERVAL_S") or own)
