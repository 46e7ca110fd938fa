"""A home whose policy learned from two grants, without a training: real logs, datasets, records and checkpoints."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from release_world import HARNESS, a_decision, a_manifest, a_qualification

from ratchet.contracts.policy import Policy
from ratchet.contracts.score import Scored
from ratchet.contracts.trajectory import Agent, RatchetExtra, Step, Trajectory
from ratchet.intake import records, write_atif
from ratchet.loop.context import open_run
from ratchet.loop.intake import ingest_landing
from ratchet.loop.lineage import record_training
from ratchet.policies.record import seal
from ratchet.release.ledger import Ledger as ReleaseLedger
from ratchet.release.records import Version
from ratchet.release.review import approve_version
from ratchet.rights import Event, authorise

PARTNER = "partner"
WORD = "zwetschgenknoedelrezept7f3a"


class RightsWorld:
    """The home, with `clean` and then `learned` brought into production by `produce`."""

    def __init__(self, home: Path, experiment: str = "repair", **release: Any) -> None:
        """Make it under `home`, with another name of the experiment and other release rules where given."""
        self.home = home
        self.run = open_run(home, a_manifest(**release).model_copy(update={"experiment": experiment}))
        self.manifest, self.store = self.run.manifest, self.run.store
        self.tenant, self.experiment = self.manifest.tenant, self.manifest.experiment
        self.event("grant", purposes=("train_sft",), base_models=("*",), retention_until=now() + timedelta(days=30))
        self.land("g", "own")
        self.land(PARTNER, WORD)
        dataset = authorise(
            self.run.rights, records(self.store, self.tenant), purpose="train_sft", tenant=self.tenant,
            base_model="random", at=now(), manifest_digest=self.manifest.digest,
        )  # fmt: skip
        self.store.create(self.run.name("datasets", f"{dataset.digest}.json"), dataset.to_bytes())
        self.clean = self._kept(self._policy("baseline"))
        facts = {"dataset": dataset.digest, "validation": 0.5, "curve": []}
        facts["record"] = record_training(self.run, "sft", "sft", self.clean, dataset, reads=True)
        made = self._policy("sft").model_copy(update={"parent": self.clean.digest, "training": facts})
        self.learned = self._kept(made)

    @property
    def ledger(self) -> ReleaseLedger:
        """The release ledger."""
        return ReleaseLedger.of(self.home)

    def produce(self) -> tuple[Version, Version]:
        """Bring the clean policy into production, and then the one that learned; returns both versions."""
        return self._produced(self.clean), self._produced(self.learned)

    def serving(self) -> str | None:
        """Name of the policy in production."""
        version = self.ledger.current(self.tenant, self.experiment).production
        return version.policy.name if version else None

    def event(self, kind: str, **fields: Any) -> None:
        """Append an event of the partner's grant to the rights ledger."""
        about = {"kind": kind, "grant_id": PARTNER, "tenant": self.tenant, "by": "steward", "at": now()}
        self.run.rights.append(Event.model_validate({**about, "reason": "asked for", **fields}))

    def land(self, grant_id: str, word: str) -> None:
        """Take in one log under a grant, with a word in it and in the name of its file."""
        extra = RatchetExtra(tenant=self.tenant, grant_id=grant_id, task_id=f"t-{word}", score=Scored(value=1.0))
        steps = [Step(step_id=1, source="user", message=f"mend the {word} of {grant_id}")]
        log = Trajectory(agent=Agent(name="expert", version="1"), steps=steps).with_ratchet(extra)
        folder = self.home / "landing" / self.tenant / grant_id
        folder.mkdir(parents=True, exist_ok=True)
        write_atif([log], folder / f"{word}.jsonl")
        ingest_landing(self.home, self.tenant, now())

    def _policy(self, name: str) -> Policy:
        folder = self.home / "made" / name
        folder.mkdir(parents=True)
        (folder / "model.safetensors").write_bytes(f"weights of {name}".encode() * 64)
        place = self.run.name("policies", name, "checkpoint")
        weights = self.store.publish_folder(folder, place)
        return Policy(name=name, method=name, checkpoint=place, weights_digest=weights, harness=HARNESS)

    def _kept(self, policy: Policy) -> Policy:
        self.store.create_same(self.run.name("policies", policy.name, "policy.json"), seal(policy))
        return policy

    def _produced(self, policy: Policy) -> Version:
        ledger = self.ledger
        version = ledger.register(self.manifest, policy, by="Ada")
        serving = ledger.current(self.tenant, self.experiment).production
        ledger.apply(version, a_decision(self.manifest, policy, serving.policy if serving else self.clean))
        ledger.qualify(a_qualification(version))
        approve_version(self.store, ledger, version, by="Olga", reason="good", upto="production")
        return version


def now() -> datetime:
    """Now, in UTC."""
    return datetime.now(UTC)
