"""MLflow's model registry as a projection of the release ledger, and the way back for a reviewer's answer.

One registered model per tenant and experiment (`<tenant>.<experiment>`); a version per version of the ledger; aliases
as slots; tags that repeat state, reason, evidence and digests. Nothing is decided from what stands in MLflow, except
that a reviewer's answer is read from it. `python -m resources.registry reconcile --home .ratchet` repairs it.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from ratchet.release.ledger import Ledger
from ratchet.release.records import Incident, Version, version_id
from ratchet.release.states import rank
from ratchet.store import Store, open_store
from resources.mlflow_models import VERSION, Models, PolicyCard, model_name
from resources.reconciler import REVIEW, REVIEW_BY, REVIEW_REASON, Reconciler

OUTCOME = "ratchet.review.outcome"
ANSWERS: dict[str, Literal["approve", "reject"]] = {
    "approve": "approve",
    "approved": "approve",
    "reject": "reject",
    "rejected": "reject",
}


class Review(NamedTuple):
    """An answer that a person gave in MLflow."""

    version: Version
    number: str
    answer: Literal["approve", "reject"]
    by: str
    reason: str


class Registry:
    """The projection on one MLflow tracking server or database."""

    def __init__(self, tracking_uri: str, store: Store, artifact_root: Path | None = None) -> None:
        """Project to `tracking_uri`, with checkpoint files and evidence from `store`.

        Args:
            tracking_uri: `http(s)://...` or a database URI such as `sqlite:///.ratchet/mlflow.db`.
            store: the store of the home folder.
            artifact_root: folder for files, needed with a database URI; a server decides by itself.
        """
        self.store = store
        self.models = Models(tracking_uri, store, None if tracking_uri.startswith("http") else artifact_root)

    @classmethod
    def of(cls, home: str | Path) -> Registry:
        """The registry of a home folder: `MLFLOW_TRACKING_URI` where that is set, else `<home>/mlflow.db`."""
        folder = Path(home).resolve()
        uri = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{folder / 'mlflow.db'}"
        return cls(uri, open_store(folder), folder / "mlflow-artifacts")

    def project(self, ledger: Ledger, tenant: str, experiment: str, cards: Sequence[PolicyCard]) -> list[Incident]:
        """Show every policy with its figures, and bring versions, tags and aliases up to the ledger.

        Policies that the ledger does not hold (the baseline) get a run and a logged model, but no version.
        """
        name = model_name(tenant, experiment)
        with self.store.locked(f"registry/{name}"):
            experiment_id = self.models.experiment(name)
            for card in cards:
                self.models.record(experiment_id, tenant, experiment, card)
        incidents = self.reconcile(ledger, tenant, experiment)
        for card in cards:
            if card.description:
                version = version_id(tenant, experiment, card.manifest_digest, card.policy.digest)
                self.models.describe(name, experiment_id, version, card.description)
        return incidents

    def reconcile(self, ledger: Ledger, tenant: str, experiment: str) -> list[Incident]:
        """Bring the projection up to the ledger; returns, and keeps in the ledger, what was changed by hand."""
        name = model_name(tenant, experiment)
        with self.store.locked(f"registry/{name}"):
            # Read under the lock: a pass with older events after one with newer ones would look like interference.
            events = ledger.history(tenant, experiment)
            if not events:
                return []
            incidents = Reconciler(self.models, ledger, tenant, experiment, events).run()
        for incident in incidents:
            ledger.report(incident)
        return incidents

    def pending_reviews(self, ledger: Ledger, tenant: str, experiment: str) -> list[Review]:
        """Answers given in MLflow that nobody acted on yet: complete ones, on versions that may still move."""
        known = ledger.versions(tenant, experiment)
        found = []
        for item in self.models.versions(model_name(tenant, experiment)):
            answer = ANSWERS.get(item.tags.get(REVIEW, "").strip().casefold())
            by, reason = (item.tags.get(key, "").strip() for key in (REVIEW_BY, REVIEW_REASON))
            version, state = known.get(item.tags.get(VERSION, ""), (None, None))
            if answer and by and reason and version is not None and state is not None and rank(state) >= 0:
                found.append(Review(version, str(item.version), answer, by, reason))
        return found

    def settle(self, review: Review, outcome: str) -> None:
        """Write what became of an answer and take the answer away, so that it is acted on once."""
        name, client = model_name(review.version.tenant, review.version.experiment), self.models.client
        said = f"{review.answer} by {review.by} ({review.reason}): {outcome}"
        client.set_model_version_tag(name, review.number, OUTCOME, said)
        for key in (REVIEW, REVIEW_BY, REVIEW_REASON):
            client.delete_model_version_tag(name, review.number, key)


def main(arguments: list[str] | None = None) -> int:
    """Reconcile every line of the ledger of a home folder."""
    parser = argparse.ArgumentParser(prog="python -m resources.registry", description=main.__doc__)
    parser.add_argument("command", choices=["reconcile"])
    parser.add_argument("--home", default=os.environ.get("RATCHET_HOME", ".ratchet"))
    given = parser.parse_args(arguments)
    ledger, registry = Ledger.of(given.home), Registry.of(given.home)
    for tenant, experiment in ledger.lines():
        for incident in registry.reconcile(ledger, tenant, experiment):
            done = "put right" if incident.repaired else "left as it is"
            print(f"incident: {incident.what} was {incident.seen}, expected {incident.expected}; {done}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
