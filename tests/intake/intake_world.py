"""Small logs and a state root with one grant, for the intake tests."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from ratchet.contracts.score import Scored
from ratchet.contracts.trajectory import (
    Agent,
    CallRecord,
    Observation,
    ObservationResult,
    RatchetExtra,
    Step,
    Trajectory,
)
from ratchet.intake import IntakeReport, ingest
from ratchet.rights import Event, Ledger
from ratchet.store import Store

NOW = datetime(2030, 1, 1, tzinfo=UTC)


class World(NamedTuple):
    home: Path
    store: Store
    ledger: Ledger
    landing: Path

    def ingest(self, *sources: Path, tenant="acme", grant_id="g", at=NOW, **options) -> IntakeReport:
        chosen = list(sources) or [self.landing]
        return ingest(self.store, self.ledger, chosen, tenant=tenant, grant_id=grant_id, at=at, **options)

    def land(self, name: str, content: object) -> Path:
        """Write a landing file: bytes as they are, a list as JSON Lines, anything else as JSON."""
        path = self.landing / name
        if isinstance(content, list):
            content = "".join(json.dumps(item) + "\n" for item in content).encode()
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
        return path


def world(home: Path) -> World:
    ledger = Ledger.at_home(home)
    for name, tenant in (("g", "acme"), ("theirs", "other")):
        if name not in ledger:
            until = NOW + timedelta(days=90)
            ledger.append(
                Event(
                    kind="grant", grant_id=name, tenant=tenant, purposes=("train_sft",), base_models=("*",),
                    retention_until=until, by="owner", at=NOW,
                )
            )  # fmt: skip
    landing = home / "landing"
    landing.mkdir(exist_ok=True, parents=True)
    return World(home, Store(home / "store"), ledger, landing)


def trajectory(number: int = 0, **extra) -> Trajectory:
    """One honest episode: a report, a call, its result."""
    fields = {"task_id": f"task-{number}", "repo": "r", "segment": "s", "seed": number, "score": Scored(value=0.5)}
    ratchet = RatchetExtra(tenant="acme", grant_id="g", **fields | extra)
    call = CallRecord(tool_call_id="c1", function_name="run", arguments={"tests": None, "n": number})
    result = ObservationResult(source_call_id="c1", content="2 passed")
    steps = [
        Step(step_id=1, source="user", message=f"fix bug {number}"),
        Step(step_id=2, source="agent", message="", tool_calls=[call], observation=Observation(results=[result])),
        Step(step_id=3, source="agent", message="done"),
    ]
    return Trajectory(agent=Agent(name="expert", version="1"), steps=steps).with_ratchet(ratchet)


def chat(*messages, **fields) -> dict:
    return {"messages": list(messages) or [{"role": "user", "content": "hello"}], **fields}


def document(number: int = 0) -> dict:
    """One ATIF document in plain JSON."""
    return trajectory(number).model_dump(mode="json", exclude_none=True)
