"""The small loop with a second grant of the tenant: a partner's log with a phrase in it, which is learned from."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from loop_world import MANIFEST, judge, train
from release_world import a_decision, a_qualification

from ratchet.contracts.policy import Policy
from ratchet.loop import intake, learning
from ratchet.loop.context import Run, open_run
from ratchet.release.ledger import Ledger as ReleaseLedger
from ratchet.release.records import Version
from ratchet.rights import Event

TENANT = MANIFEST.tenant
FIRST = MANIFEST.grants[0].grant_id
PARTNER = "partner"
WORD = "zwetschgenknoedelrezept7f3a"
"""A word that nothing else holds, and that a file or an id may be called."""
PHRASE = f'Grüße an "Frau Öztürk": {WORD}, streng vertraulich \\ 4711'


def grant(run: Run, grant_id: str = PARTNER) -> None:
    """Record a grant of the tenant for everything."""
    run.rights.append(
        Event(
            kind="grant", grant_id=grant_id, tenant=TENANT, purposes=MANIFEST.grants[0].purposes, base_models=("*",),
            retention_until=run.now() + timedelta(days=30), by="partner", at=run.now(), reason="a partner's logs",
        )
    )  # fmt: skip


def end(run: Run, kind: str = "withdraw", grant_id: str = PARTNER, **fields: Any) -> None:
    """End a grant."""
    run.rights.append(Event(kind=kind, grant_id=grant_id, tenant=TENANT, by="steward", at=run.now(), **fields))


def land(run: Run, name: str, change: Callable[[dict[str, Any]], None], grant_id: str = PARTNER) -> None:
    """Put an accepted log of a training task into the landing folder of a grant, changed, and take it in."""
    source = next((run.home / "landing" / TENANT / FIRST).glob("*.expert.atif.jsonl"))
    records = [json.loads(line) for line in source.read_text().splitlines()]
    record = next(one for one in records if one["extra"]["ratchet"]["score"].get("value") == 1.0)
    record["extra"]["ratchet"]["grant_id"] = grant_id
    change(record)
    folder = run.home / "landing" / TENANT / grant_id
    folder.mkdir(parents=True, exist_ok=True)
    # A second line that is no record at all is set aside whole.
    (folder / name).write_text(json.dumps(record) + "\n" + '{"broken": ' + json.dumps(PHRASE) + "\n")
    intake.ingest_landing(run.home, TENANT, run.now())


def plant(record: dict[str, Any]) -> None:
    """Put the phrase wherever a log can carry text that training reads or a person is shown."""
    record["trajectory_id"] = f"log-{WORD}"
    record["steps"][0]["message"] = record["steps"][0]["message"] + "\n" + PHRASE
    record["notes"] = PHRASE


def leak(record: dict[str, Any], prompt: str) -> None:
    """Put the phrase beside the prompt of a locked task, so that the contamination check quotes both."""
    record["trajectory_id"] = f"leak-{WORD}"
    record["steps"][0]["message"] = f"{PHRASE}\n{prompt}\n{PHRASE}"


def learned(home: Path) -> None:
    """From a home before its first training to one that learned from both grants, and was judged."""
    with open_run(home, MANIFEST) as run:
        grant(run)
        land(run, f"{WORD}.jsonl", plant)
        train(run)
        judge(run)


def policy(run: Run, name: str) -> Policy:
    """A policy of the run."""
    return learning.open_policy(run, name)


def produce(run: Run, name: str, **release: Any) -> Version:
    """Bring a policy of the run into production, on a decision as the gate issues it when every rule passes.

    Args:
        run: the run.
        name: name of the policy.
        release: other release rules than the manifest's, as if it had been registered under another one.
    """
    ledger = ReleaseLedger.of(run.home)
    manifest = run.manifest.model_copy(update={"release": run.manifest.release.model_copy(update=release)})
    version = ledger.register(manifest, policy(run, name), by="Ada")
    serving = ledger.current(TENANT, run.manifest.experiment).production
    incumbent = serving.policy if serving else policy(run, "baseline")
    ledger.apply(version, a_decision(manifest, version.policy, incumbent))
    ledger.qualify(a_qualification(version))
    ledger.approve(version, by="Olga", reason="good", upto="production")
    return version
