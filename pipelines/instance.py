"""The Dagster instance of a launch, and the runs that a killed launch left behind.

A launch runs its jobs in its own process, where no daemon can see it die: its runs would stay "started" for ever and
keep the slots of their pools. So every run is tagged with its process, and the next launch ends those of dead ones.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

import dagster as dg
import yaml
from dagster._core.instance.ref import InstanceRef

ROOT = Path(__file__).resolve().parents[1]
"""The project: where `dagster.yaml` is."""
PROCESS = "ratchet/process"
"""Run tag: host, process id and start time of the process that runs it."""
UNFINISHED = [
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def open_instance() -> dg.DagsterInstance:
    """The instance of DAGSTER_HOME, made where it is missing; without it that of the project's `dagster.yaml`.

    The storage of that file is relative: the working directory has to be the project.
    """
    home = os.environ.get("DAGSTER_HOME")
    if home:
        _configure(Path(home) / "dagster.yaml")
        return dg.DagsterInstance.get()
    (ROOT / ".dagster").mkdir(exist_ok=True)
    return dg.DagsterInstance.from_ref(InstanceRef.from_dir(str(ROOT / ".dagster"), config_dir=str(ROOT)))


def process_tag(pid: int | None = None) -> str:
    """Identity of a process of this machine; a later process with the same id has another one."""
    number = os.getpid() if pid is None else pid
    return f"{socket.gethostname()}:{number}:{_started(number)}"


def end_dead_runs(instance: dg.DagsterInstance) -> int:
    """Report runs whose process is gone as failed and free their pools; returns their number."""
    ended = 0
    for run in instance.get_runs(dg.RunsFilter(statuses=UNFINISHED)):
        host, _, rest = run.tags.get(PROCESS, "").rpartition(":")[0].rpartition(":")
        if host == socket.gethostname() and run.tags[PROCESS] != process_tag(int(rest)):
            instance.report_run_failed(run, "its process ended before it was done; run again to go on")
            instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
            ended += 1
    return ended


def _configure(path: Path) -> None:
    """Write the project's settings where a DAGSTER_HOME has none; where it stores things stays its own affair."""
    if path.exists():
        return
    settings = yaml.safe_load((ROOT / "dagster.yaml").read_text(encoding="utf-8"))
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = {key: settings[key] for key in ("telemetry", "nux", "concurrency", "run_monitoring")}
    path.write_text(yaml.safe_dump(kept), encoding="utf-8")


def _started(pid: int) -> str:
    """Start time of a process in clock ticks since boot, or `gone`."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return "gone"
    return stat.rpartition(")")[2].split()[19]
