"""`ratchet serve`: answer live tasks and chat completions with the versions that the release ledger says."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from ratchet.cli.options import HOME, Home
from ratchet.errors import ConflictError, RatchetError, TransitionError

if TYPE_CHECKING:
    from ratchet.loop.context import Run

TOKEN = "RATCHET_SERVE_TOKEN"


def serve(
    line: Annotated[str, typer.Argument(metavar="TENANT/EXPERIMENT", help="Line of the release ledger to serve.")],
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="Port to listen on.")] = 8100,
    poll_ms: Annotated[int, typer.Option("--poll-ms", min=10, help="Time between two looks at the ledger.")] = 200,
    home: Home = HOME,
) -> None:
    """Serve the versions in production and canary over HTTP until Ctrl-C, switching as the ledger says."""
    import fcntl
    from concurrent.futures import ThreadPoolExecutor

    import uvicorn

    from ratchet.loop.learning import open_policy
    from ratchet.release.ledger import Ledger
    from ratchet.serving.depot import Depot
    from ratchet.serving.desk import Desk
    from ratchet.serving.outcomes import Spool
    from ratchet.serving.server import Service
    from ratchet.serving.tasks import LiveTasks, Work

    tenant, _, experiment = line.partition("/")
    home = home.resolve()
    with newest_run(home, tenant, experiment) as run, ThreadPoolExecutor(4) as pool:
        depot = Depot(home, run.store, ledger := Ledger.of(home), tenant, experiment)
        with (depot.root.parent / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConflictError(
                    f"serving {line}",
                    rule="one server of this home answers a line at a time, and another one does",
                    remedy="stop that one; on another machine a server has a home folder of its own",
                ) from None
            desk = Desk(ledger, depot, tenant, experiment, baseline=open_policy(run, "baseline"))
            spool = Spool(home, run.store, tenant, experiment)
            tasks = LiveTasks(desk, spool, Work(run.environment, run.manifest.reward, run.manifest.prices), pool)
            service = Service(desk, spool, tasks, poll_s=poll_ms / 1000, token=os.environ.get(TOKEN))
            typer.echo(f"serving {line} on http://{host}:{port}")
            uvicorn.run(service.app(), host=host, port=port, log_level="warning")
            spool.close()


def qualify(
    version: Annotated[
        str, typer.Argument(metavar="VERSION", help="Start of a version's or policy's digest, or a policy's name.")
    ],
    by: Annotated[str, typer.Option("--by", help="Who does this; it stays in the ledger.")],
    home: Home = HOME,
) -> None:
    """Try a version in the serving engine again, and promote it where that is what it waited for."""
    from ratchet.cli.release import project_registry
    from ratchet.loop.affected import refuse_affected
    from ratchet.loop.context import reopen_run
    from ratchet.loop.qualifying import qualify_version
    from ratchet.release.ledger import Ledger

    home = home.resolve()
    ledger = Ledger.of(home)
    found = ledger.find(version)
    with reopen_run(home, f"{found.experiment}-{found.manifest_digest[:12]}") as run:
        record = qualify_version(run, found, by=by)
        typer.echo(
            f"{found.label}: {len(record.probes)} prompts, {record.tokens} tokens, largest difference to the trainer "
            f"{record.largest_difference:.1e} nats of {record.tolerance:g}, {record.differing} prompts told from before"
        )
        if not record.passed:
            raise TransitionError(
                f"serving qualification of {found.label}",
                rule=f"it did not pass: {'; '.join(record.reasons)}",
                remedy="train or export it again; nothing reaches it",
            )
        if ledger.decision(found) is not None:
            refuse_affected(home, found, run.now())
            for event in ledger.advance(found, by=by, at=run.now()):
                typer.echo(f"{found.label} {event.before} -> {event.state}")
    project_registry(home)


def newest_run(home: os.PathLike[str], tenant: str, experiment: str) -> Run:
    """The newest experiment of a line: its manifest gives environment, reward and prices to live tasks.

    Raises:
        RatchetError: there is none.
    """
    from pathlib import Path

    from ratchet.loop.context import reopen_run, runs

    for run_id in reversed(runs(Path(home))):
        run = reopen_run(Path(home), run_id)
        if (run.manifest.tenant, run.manifest.experiment) == (tenant, experiment):
            return run
    raise RatchetError(
        f"line {tenant}/{experiment}",
        rule=f"it must be TENANT/EXPERIMENT of a run under {home}",
        remedy="see `ratchet history`, or run the experiment first",
    )
