"""A world of releases with its projection in MLflow, and short ways to look into it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from release_world import World

from ratchet.contracts.policy import Policy
from ratchet.contracts.score import NotComputable
from ratchet.release.records import Version
from resources.mlflow_models import PolicyCard
from resources.registry import Registry


class Show:
    """A world with its registry, and short ways to look into MLflow."""

    def __init__(self, home: Path, uri: str, experiment: str = "repair") -> None:
        self.world = World(home)
        if experiment != "repair":
            self.world.manifest = self.world.manifest.model_copy(update={"experiment": experiment})
            self.world.experiment = experiment
        self.registry = Registry(uri, self.world.store, home / "mlflow-artifacts")
        self.name = f"{self.world.tenant}.{experiment}"
        self.report = home / "report.html"
        self.report.write_text("<h1>report</h1>")

    @property
    def client(self) -> Any:
        return self.registry.models.client

    def card(self, policy: Policy) -> PolicyCard:
        metrics = {"acceptance": 0.61, "cost_per_accepted": NotComputable(reason="0 accepted results in the window")}
        curves = {"curve/reward": [(0, 0.1), (1, 0.4)]}
        return PolicyCard(policy, self.world.manifest.digest, metrics, {"seeds": "3"}, curves, self.report)

    def project(self, *policies: Policy) -> list[str]:
        world = self.world
        cards = [self.card(policy) for policy in policies]
        return [item.what for item in self.registry.project(world.ledger, world.tenant, world.experiment, cards)]

    def reconcile(self) -> list[tuple[str, str, str, bool]]:
        found = self.registry.reconcile(self.world.ledger, self.world.tenant, self.world.experiment)
        return [(item.what, item.seen, item.expected, item.repaired) for item in found]

    def aliases(self) -> dict[str, str]:
        """Policy names by alias."""
        found = self.client.get_registered_model(self.name).aliases
        return {
            alias: self.client.get_model_version(self.name, str(number)).tags["ratchet.name"]
            for alias, number in found.items()
        }

    def number(self, version: Version) -> str:
        (found,) = [v for v in self.registry.models.versions(self.name) if v.tags.get("ratchet.version") == version.id]
        return str(found.version)

    def tags(self, version: Version) -> dict[str, str]:
        return dict(self.client.get_model_version(self.name, self.number(version)).tags)
