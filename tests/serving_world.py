"""Small real policies that a server loads, with released versions of them; and live outcomes as a canary gives them."""

from __future__ import annotations

import functools
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

from release_world import AT, HARNESS, World, a_decision

from ratchet.contracts.policy import Policy
from ratchet.contracts.score import Invalid, Scored
from ratchet.policies.checkpoint import STARTER, fresh, load_tokenizer, save
from ratchet.release.certificate import certify, write_certificate
from ratchet.release.decision import Decision
from ratchet.release.live import LiveOutcome
from ratchet.release.qualification import Probe, Qualification, qualify
from ratchet.release.records import Version
from ratchet.serving.depot import Depot
from ratchet.serving.desk import Desk
from ratchet.serving.served import Served, forward_logprobs
from ratchet.store import Store


@functools.cache
def checkpoint(seed: int) -> Path:
    """A folder with a random Llama of about 30 thousand parameters, made once per process."""
    folder = Path(tempfile.mkdtemp(prefix=f"policy-{seed}-"))
    tokenizer = load_tokenizer(STARTER)
    save(fresh(tokenizer, seed=seed, width=32, layers=1, heads=2), tokenizer, folder)
    return folder


def real_policy(store: Store, name: str, seed: int) -> Policy:
    """A policy whose checkpoint can be loaded; another seed is another policy."""
    weights = store.publish_folder(checkpoint(seed), f"checkpoints/{name}")
    return Policy(name=name, method="sft", checkpoint=f"checkpoints/{name}", weights_digest=weights, harness=HARNESS)


class ServingWorld(World):
    """A home whose policies can be loaded; `produce` and `to_canary` write certificates, as the loop does."""

    def __init__(self, home: Path, url: str | None = None, *, store: Store | None = None, **release: Any) -> None:
        """As `World`, on another store where one is given; the baseline has seed 0, every further policy the next."""
        self._seeds = iter(range(1, 1000))
        super().__init__(home, url, **release)
        self.store = store or self.store
        self.baseline = real_policy(self.store, "base", 0)

    def candidate(self, name: str) -> Version:
        """A registered candidate that the serving engine qualified."""
        seed = next(self._seeds)
        policy = real_policy(self.store, name, seed)
        version = self.ledger.register(self.manifest, policy, by="Ada", at=AT)
        self.ledger.qualify(measured(version, seed))
        return version

    def promote(self, name: str, upto: str) -> Version:
        """A candidate judged against what is in production, approved and certified up to a state."""
        serving = self.ledger.current(self.tenant, self.experiment).production
        version = self.candidate(name)
        decision = a_decision(self.manifest, version.policy, serving.policy if serving else self.baseline)
        self.sealed(version, decision)
        self.ledger.apply(version, decision, at=AT)
        self.ledger.approve(version, by="Olga", reason="good", upto=upto, at=AT)
        approvals = self.ledger.approvals(version, decision)
        write_certificate(self.store, certify(version, decision, {}, approvals=approvals, by="Olga", at=AT))
        return version

    def sealed(self, version: Version, decision: Decision) -> None:
        """What is done to a version before it is promoted: nothing, unless a test signs it."""

    def produce(self, name: str) -> Version:
        """A candidate that goes all the way to production."""
        return self.promote(name, "production")

    def desk(self, *, baseline: bool = True) -> Desk:
        """A desk of this line, with the depot of the home."""
        depot = Depot(self.home, self.store, self.ledger, self.tenant, self.experiment)
        return Desk(self.ledger, depot, self.tenant, self.experiment, baseline=self.baseline if baseline else None)


def measured(version: Version, seed: int) -> Qualification:
    """A passing qualification with what the policy really says after one prompt."""
    served = Served(version.id, version.policy, checkpoint(seed))
    prompt, after, sampled = (5, 6, 7), (8, 9), (True, True)
    said = tuple(forward_logprobs(served.model, prompt, after, sampled))
    probe = Probe(prompt_ids=prompt, completion_ids=after, sampled=sampled, served=said, trained=said)
    weights = version.policy.weights_digest
    return qualify(
        version, served_digest=weights, engine="transformers", probes=[probe], previous_weights=None, by="x", at=AT
    )


def outcome(
    live_id: str,
    arm: str,
    version: str,
    canary: str | None,
    accepted: bool | None,
    violations: tuple[str, ...] = (),
) -> LiveOutcome:
    """One live outcome; `accepted` None: the infrastructure failed."""
    return LiveOutcome.model_validate(
        {
            "live_id": live_id,
            "segment": "s",
            "arm": arm,
            "version": version,
            "policy_digest": "p" * 64,
            "canary": canary,
            "score": Invalid(reason="sandbox") if accepted is None else Scored(value=float(accepted)),
            "accepted": accepted,
            "latency_s": 1.0,
            "cost": 0.01,
            "violations": violations,
            "at": AT,
        }
    )


class Stream:
    """Simulated live tasks of two arms with given acceptance rates. Outcomes are few objects that are used again."""

    def __init__(self, version: str, *, canary: float, production: float, share: float = 0.5, seed: int = 0) -> None:
        """Rates of acceptance by arm; `share` of the tasks goes to the canary."""
        self.random, self.share = Random(seed), share
        self.rates = {"canary": canary, "production": production}
        self.made = {
            (arm, accepted): outcome("t", arm, version if arm == "canary" else "old", version, accepted)
            for arm in self.rates
            for accepted in (True, False)
        }

    def __iter__(self) -> Iterator[LiveOutcome]:
        """Yield outcomes for ever."""
        while True:
            arm = "canary" if self.random.random() < self.share else "production"
            yield self.made[arm, self.random.random() < self.rates[arm]]


def until(holds: Callable[[], object], seconds: float = 30.0) -> None:
    """Wait until a condition holds; fails after so many seconds."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def now() -> datetime:
    """Now, in UTC."""
    return datetime.now(UTC)
