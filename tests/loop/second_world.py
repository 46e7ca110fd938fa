"""A second experiment of the same line: the small loop once more, after a version of the first went to production."""

from __future__ import annotations

from typing import Any

from loop_world import judge, small_manifest
from partner_world import policy
from release_world import a_decision, a_qualification

from ratchet.contracts.manifest import Manifest
from ratchet.loop import learning
from ratchet.loop.context import Run, Stage
from ratchet.release.ledger import Ledger
from ratchet.release.records import Version
from ratchet.release.review import approve_version

SFT = {"method": "sft", "data": {"policies": ["expert"]}, "settings": {"epochs": 1, "batch_size": 8}}


def second_manifest(**overrides: Any) -> Manifest:
    """The small experiment with two candidates: one from the base, one from what is in production."""
    methods = [{"name": "fresh", "start": "base", **SFT}, {"name": "further", "start": "incumbent", **SFT}]
    return small_manifest(**{"methods": methods, **overrides})


def promoted(run: Run, name: str) -> Version:
    """Bring a policy of a run into production, certified, on a decision as the gate issues it."""
    ledger = Ledger.of(run.home)
    version = ledger.register(run.manifest, policy(run, name), by=run.manifest.author)
    serving = ledger.current(run.manifest.tenant, run.manifest.experiment).production
    decision = a_decision(run.manifest, version.policy, serving.policy if serving else policy(run, "baseline"))
    ledger.qualify(a_qualification(version))
    ledger.apply(version, decision)
    approve_version(run.store, ledger, version, by="Olga", reason="good", upto="production")
    return version


def finish(run: Run) -> list[Stage]:
    """Training and everything after it."""
    return [*learning.train_method(run, "sft"), *judge(run)]
