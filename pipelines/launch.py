"""Run the whole loop of one experiment in this process, as Dagster runs that the UI shows.

`python -m pipelines.launch --home .ratchet --manifest experiments/repair.yaml [--fast] [--set key=value ...]`

Finished work is found done. One launch at a time may use a home folder.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import sys
import time
import traceback
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import dagster as dg
from dagster._core.errors import DagsterAssetCheckFailedError

from assets.partitions import experiments, tenants
from pipelines.definitions import defs
from pipelines.instance import PROCESS, ROOT, end_dead_runs, open_instance, process_tag
from pipelines.jobs import LOOP
from pipelines.narrator import Narrator
from ratchet.contracts.manifest import Manifest
from ratchet.contracts.manifest_file import load_manifest, read_overrides
from ratchet.errors import ConflictError, RatchetError
from ratchet.loop.context import open_run
from ratchet.loop.wall_time import keep
from ratchet.policies.checkpoint import refuse_missing
from ratchet.progress import say

QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
"""Dagster's own log stays in its storage; the terminal shows ours."""
TAIL_S = "0.5"
"""Dagster mirrors captured output through `tail`, which it would otherwise stop before the last lines are shown."""


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line, run the loop, and return the exit status: 0, or 1 after one clear error."""
    parser = argparse.ArgumentParser(prog="python -m pipelines.launch", description="Run the loop of one experiment.")
    parser.add_argument("--home", type=Path, default=Path(os.environ.get("RATCHET_HOME") or ".ratchet"))
    parser.add_argument("--manifest", type=Path, required=True)
    parser.add_argument("--fast", action="store_true", help="the short form that the manifest describes")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    given = parser.parse_args(arguments)
    try:
        manifest = load_manifest(given.manifest, fast=given.fast, overrides=read_overrides(given.settings))
        launch(given.home.resolve(), manifest)
    except RatchetError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return 1
    except (KeyboardInterrupt, dg.DagsterExecutionInterruptedError):
        print("interrupted; run again to go on", file=sys.stderr, flush=True)
        return 130
    return 0


def launch(home: Path, manifest: Manifest) -> str:
    """Run the three jobs of the loop one after the other; returns the id of the experiment.

    Raises:
        RatchetError: what a stage refused, or a blocking check that did not pass.
        ConflictError: another launch is using the home folder.
    """
    started = time.monotonic()
    os.chdir(ROOT)
    os.environ["RATCHET_HOME"] = str(home)
    os.environ.setdefault("DAGSTER_COMPUTE_LOG_TAIL_WAIT_AFTER_FINISH", TAIL_S)
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    # Two threads of torch beside two sandbox slots only wait for each other on two cores.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with exclusive(home), open_instance() as instance:
        run = open_run(home, manifest)
        # Here too, so that it is told at once and not after the catalogue and the logs.
        refuse_missing(manifest.base.checkpoint, run.store)
        run_id = manifest.run_id
        left = end_dead_runs(instance)
        say(f"experiment {run_id} under {home}" + (f"; {left} interrupted runs are resumed" if left else ""))
        instance.add_dynamic_partitions(str(experiments.name), [run_id])
        instance.add_dynamic_partitions(str(tenants.name), [manifest.tenant])
        keys = {str(experiments.name): run_id, str(tenants.name): manifest.tenant}
        jobs = [defs.resolve_job_def(job.name) for job in LOOP]
        steps = [key.to_user_string() for job in jobs for key in job.asset_layer.selected_asset_keys]
        narrator = Narrator(steps, partial(keep, run))
        for job in jobs:
            partitioned = job.partitions_def
            assert isinstance(partitioned, dg.DynamicPartitionsDefinition)
            execute(job, keys[str(partitioned.name)], instance, narrator)
        narrator.close()
        say(f"experiment {run_id}: done in {time.monotonic() - started:.0f} s")
    return run_id


def execute(job: dg.JobDefinition, key: str, instance: dg.DagsterInstance, narrator: Narrator) -> None:
    """Run one job for one partition. Raises RatchetError for what stops it, without Dagster's wrappers."""
    run_id = str(uuid.uuid4())
    instance.add_event_listener(run_id, narrator)
    try:
        job.execute_in_process(
            run_config=QUIET, instance=instance, partition_key=key, run_id=run_id, tags={PROCESS: process_tag()}
        )
    except DagsterAssetCheckFailedError:
        raise RatchetError(
            f"job {job.name}",
            rule="; ".join(narrator.refusals) or "every blocking check must pass",
            remedy="see the check's table in Dagster, remove the cause and run again",
        ) from None
    except dg.DagsterExecutionInterruptedError:
        raise
    except Exception as error:
        found = unwrapped(error)
        if found is None:
            traceback.print_exc()
            raise RatchetError(
                f"job {job.name}",
                seen=type(error).__name__,
                rule="it must end without an unexpected error (see the traceback above)",
                remedy="report it as a bug; running again resumes where it stopped",
            ) from error
        raise found from None


def unwrapped(error: BaseException | None) -> RatchetError | None:
    """The RatchetError inside Dagster's wrappers, or None."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, RatchetError):
            return error
        seen.add(id(error))
        error = getattr(error, "user_exception", None) or error.__cause__ or error.__context__
    return None


@contextlib.contextmanager
def exclusive(home: Path) -> Iterator[None]:
    """Hold the home folder for this launch. Raises ConflictError, naming the process that holds it."""
    home.mkdir(parents=True, exist_ok=True)
    with (home / ".launch.lock").open("a+") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            handle.seek(0)
            raise ConflictError(
                f"home folder {home}",
                seen=f"in use by process {handle.read().strip() or 'unknown'}",
                rule="one launch at a time may use it",
                remedy="wait until that one ends, or give another --home",
            ) from None
        handle.truncate(0)
        handle.write(str(os.getpid()))
        handle.flush()
        yield


if __name__ == "__main__":
    sys.exit(main())
