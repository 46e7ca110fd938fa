"""What Dagster shows of live tasks, on a home whose version really went through the loop into canary."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import dagster as dg
from evidence_world import Made
from serving_world import Stream

from assets.partitions import experiments
from assets.release import canary_window
from ratchet.loop.canary import canary_window_stage, look, watched_version
from ratchet.loop.context import reopen_run
from ratchet.release.canary import read_window
from ratchet.release.ledger import Ledger
from ratchet.release.states import State
from ratchet.serving.outcomes import Spool
from resources.home import Home


def live(home: Path, made: Made, count: int, canary: float) -> None:
    """Keep simulated outcomes of the version in canary."""
    version = made.version
    with reopen_run(home, f"{version.experiment}-{version.manifest_digest[:12]}") as run:
        spool = Spool(home, run.store, version.tenant, version.experiment)
    for number, one in enumerate(islice(Stream(version.id, canary=canary, production=0.7), count)):
        spool.add(one.model_copy(update={"live_id": f"t{number}"}))
    spool.flush()
    spool.close()


def test_the_loop_qualified_what_it_promoted(home: Path, made: Made) -> None:
    record = Ledger.of(home).qualification(made.version)
    assert record is not None
    assert record.passed
    assert record.largest_difference <= 1e-4


def test_the_asset_shows_both_arms_and_the_verdict(home: Path, made: Made) -> None:
    live(home, made, 1200, canary=0.4)
    with dg.DagsterInstance.ephemeral() as instance:
        key = f"{made.version.experiment}-{made.version.manifest_digest[:12]}"
        instance.add_dynamic_partitions(str(experiments.name), [key])
        done = dg.materialize(
            [canary_window], instance=instance, partition_key=key, resources={"home": Home(path=str(home))},
            selection=[canary_window],
        )  # fmt: skip
        (event,) = done.asset_materializations_for_node("canary_window")
    assert done.success
    assert event.metadata["verdict"].value == "roll_back"
    assert "points in acceptance over" in str(event.metadata["summary"].value)
    table = str(event.metadata["table"].value)
    assert "canary" in table
    assert "production" in table


def test_what_was_noted_is_shown_when_the_version_serves_no_more(home: Path, made: Made) -> None:
    live(home, made, 1200, canary=0.4)
    ledger, version = Ledger.of(home), made.version
    assert watched_version(ledger, version.tenant, version.experiment) == (version, State.CANARY)
    with reopen_run(home, f"{version.experiment}-{version.manifest_digest[:12]}") as run:
        found = look(home, run.store, ledger, version, State.CANARY, run.now())
        assert found is not None
        assert found.asks
        kept = read_window(run.store.read(found.place), found.place)
        assert kept == found.window == ledger.window(version)
        ledger.reject(version, by="Olga", reason="live tasks say so")
        stage = canary_window_stage(run)
    assert stage.summary.endswith(f"in rejected: {kept.reason}")
    assert (stage.figures["state"], stage.digest) == ("rejected", kept.digest)
