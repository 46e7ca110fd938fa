"""A small manifest, real checkpoint folders and issued decisions for the tests of release and registry."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from postgres_server import postgres_url

from ratchet.contracts.manifest import Manifest
from ratchet.contracts.policy import Harness, Policy
from ratchet.contracts.score import NotComputable
from ratchet.release.certificate import certify, write_certificate
from ratchet.release.decision import Decision, Rule
from ratchet.release.ledger import Ledger
from ratchet.release.qualification import Probe, Qualification, qualify
from ratchet.release.records import Version
from ratchet.store import Store

AT = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
HARNESS = Harness(tools=("run_tests",), max_calls=4)


def a_manifest(**release: Any) -> Manifest:
    """A valid manifest of the experiment `repair` of tenant `acme`, with other release rules where given."""
    prices = dict.fromkeys(
        (
            "per_million_input_tokens",
            "per_million_output_tokens",
            "per_sandbox_s",
            "per_verifier_s",
            "per_judge_call",
            "per_trainer_hour",
        ),
        1.0,
    )
    limits = {"max_calls": 4, "max_tokens_per_turn": 4, "episode_timeout_s": 5.0}
    return Manifest.model_validate(
        {
            "experiment": "repair",
            "tenant": "acme",
            "seed": 1,
            "author": "Ada",
            "job": {"description": "Repair bugs.", "acceptance": "Hidden tests pass."},
            "environment": {"name": "repair", "version": "1", "tools": ["run_tests"], "limits": limits},
            "base": {"checkpoint": "random", "licence": "MIT", "weights_available": True, "training_permitted": True},
            "grants": [{"grant_id": "g", "purposes": ["train_sft"], "retention_days": 30, "signed_by": "Ada"}],
            "splits": {"train": 6, "validation": 2, "heldout": 4},
            "reward": {"parts": [{"verifier": "target", "weight": 1.0}]},
            "methods": [{"name": "sft", "method": "sft", "start": "base"}],
            "evaluation": {"seeds": [0], "minimum_effect": 0.02},
            "prices": {"currency": "USD", **prices},
            "release": {"owner": "Olga", "max_latency_ratio": 2.0, "max_cost_ratio": 2.0, "canary_share": 0, **release},
            "retention_days": 30,
        }
    )


def a_policy(store: Store, name: str) -> Policy:
    """A policy whose checkpoint folder really lies in the store."""
    folder = store.root / "made" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text('{"model_type": "llama"}')
    (folder / "model.safetensors").write_bytes(f"weights of {name}".encode() * 64)
    weights = store.publish_folder(folder, f"checkpoints/{name}")
    return Policy(name=name, method="sft", checkpoint=f"checkpoints/{name}", weights_digest=weights, harness=HARNESS)


def a_decision(
    manifest: Manifest, candidate: Policy, incumbent: Policy, state: str = "promote", version: str | None = None
) -> Decision:
    """A decision as the gate issues it, with a figure that is a number and one that is words."""
    passed = state == "promote"
    return Decision.issue(
        state=state,
        candidate=candidate.name,
        candidate_digest=candidate.digest,
        incumbent=incumbent.name,
        incumbent_digest=incumbent.digest,
        incumbent_version=version,
        manifest_digest=manifest.digest,
        rules=(
            Rule(
                name="lower_bound_exceeds_minimum_effect",
                passed=passed,
                figure=0.11,
                threshold=0.02,
                evidence="e" * 64,
                reason="+11 points at least",
            ),
            Rule(
                name="cost_within_limit",
                passed=None if state == "review" else True,
                figure=NotComputable(reason="0 accepted results in the window"),
                threshold=2.0,
                evidence="f" * 64,
                on_failure="review",
                reason="no accepted run to divide by",
            ),
        ),
        reasons=() if passed else ("the lower bound is too low",),
        inputs={"split_lock": "a" * 64, "scorecard": "b" * 64},
        decided_at=AT,
        decided_by="rule:gate",
    )


def a_qualification(version: Version, *, previous: str | None = None, off: float = 0.0) -> Qualification:
    """A qualification as the loop records it; it passes unless the engine is `off` by more than the tolerance."""
    probe = Probe(
        prompt_ids=(1, 2),
        completion_ids=(3, 4),
        sampled=(True, True),
        served=(-0.5, -0.25 + off),
        trained=(-0.5, -0.25),
        previous=(-1.0, -1.0) if previous else None,
    )
    return qualify(
        version,
        served_digest=version.policy.weights_digest,
        engine="transformers",
        probes=[probe],
        previous_weights=previous,
        by="rule:gate",
        at=AT,
    )


class World:
    """A home folder with its store and ledger, a manifest and the baseline."""

    def __init__(self, home: Path, url: str | None = None, **release: Any) -> None:
        """Make it under `home`; the ledger at `url` where that is given."""
        self.home = home
        self.store = Store(home / "store")
        self.manifest = a_manifest(**release)
        self.ledger = Ledger(url) if url else Ledger.of(home)
        self.baseline = a_policy(self.store, "baseline")
        self.tenant, self.experiment = self.manifest.tenant, self.manifest.experiment

    def candidate(self, name: str) -> Version:
        """A registered candidate that the serving engine qualified."""
        version = self.ledger.register(self.manifest, a_policy(self.store, name), by="Ada", at=AT)
        self.ledger.qualify(a_qualification(version))
        return version

    def decision(self, version: Version, state: str = "promote", incumbent: Policy | None = None) -> Decision:
        """A decision on it, against the baseline unless told otherwise."""
        return a_decision(self.manifest, version.policy, incumbent or self.baseline, state)

    @property
    def seq(self) -> int:
        """Position of the line."""
        return self.ledger.current(self.tenant, self.experiment).seq

    def produce(self, name: str) -> Version:
        """A candidate that goes all the way to production, judged against what is there."""
        serving = self.ledger.current(self.tenant, self.experiment).production
        version = self.candidate(name)
        decision = self.decision(version, incumbent=serving.policy if serving else None)
        self.ledger.apply(version, decision, at=AT)
        self.ledger.approve(version, by="Olga", reason="good", upto="production", at=AT)
        approvals = self.ledger.approvals(version, decision)
        write_certificate(self.store, certify(version, decision, {}, approvals=approvals, by="Olga", at=AT))
        return version


@contextmanager
def spawned(target: Callable[..., None], arguments: Sequence[tuple[Any, ...]]) -> Iterator[list[Connection]]:
    """Processes of their own that call `target` with arguments and a pipe, and end at a None; yields its other ends."""
    spawn = multiprocessing.get_context("spawn")
    started = []
    for given in arguments:
        mine, theirs = spawn.Pipe()
        process = spawn.Process(target=target, args=(*given, theirs))
        process.start()
        started.append((process, mine))
    try:
        yield [pipe for _, pipe in started]
    finally:
        for process, pipe in started:
            pipe.send(None)
            process.join(timeout=30)
            pipe.close()
            if process.is_alive():
                process.kill()
            process.close()


@contextmanager
def world_on(database: str, home: Path) -> Iterator[World]:
    """A world that a rule may bring to staging, its ledger on `sqlite` or on a `postgres` server of its own."""
    if database == "sqlite":
        yield World(home, authorised_rule="staging")
    else:
        with postgres_url() as url:
            yield World(home, url, authorised_rule="staging")
