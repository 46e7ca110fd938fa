"""MLflow's model registry as a projection of the release ledger, and the way back for a reviewer's answer.

One registered model per tenant and experiment (`<tenant>.<experiment>`); a version per version of the ledger; aliases
as slots; tags that repeat state, reason, evidence and digests. Nothing is decided from what stands in MLflow, except
that a reviewer's answer is read from it. `python -m resources.registry reconcile --home .ratchet` repairs it.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ratchet.release.ledger import Ledger
from ratchet.release.records import Incident, version_id
from ratchet.store import Store, open_store
from resources.answers import OUTCOME, REVIEW, REVIEW_BY, REVIEW_REASON, Answers, Review, Unfit, tagged
from resources.mlflow_models import Models, PolicyCard, model_name
from resources.reconciler import Reconciler
from resources.release_queue import ReleaseQueue, settle_item


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

    def project(
        self,
        ledger: Ledger,
        tenant: str,
        experiment: str,
        cards: Sequence[PolicyCard],
        left_out: Mapping[str, str] | None = None,
    ) -> list[Incident]:
        """Show every policy with its figures, and bring versions, tags and aliases up to the ledger.

        Policies that the ledger does not hold (the baseline) get a run and a logged model, but no version. Candidates
        that were `left_out` get a failed run with the reason, by name.
        """
        name = model_name(tenant, experiment)
        with self.store.locked(f"registry/{name}"):
            experiment_id = self.models.experiment(name)
            for card in cards:
                self.models.record(experiment_id, tenant, experiment, card)
            for candidate, why in (left_out or {}).items():
                self.models.leave_out(experiment_id, cards[0].manifest_digest, candidate, why)
        incidents = self._reconcile(ledger, tenant, experiment)
        for card in cards:
            if card.description:
                version = version_id(tenant, experiment, card.manifest_digest, card.policy.digest)
                self.models.describe(name, experiment_id, version, card.description)
        self._ask(ledger, tenant, experiment)
        return incidents

    def reconcile(self, ledger: Ledger, tenant: str, experiment: str) -> list[Incident]:
        """Bring the projection up to the ledger, and the review queue up to what waits for a person.

        Returns what was changed by hand; the ledger keeps it.
        """
        incidents = self._reconcile(ledger, tenant, experiment)
        self._ask(ledger, tenant, experiment)
        return incidents

    def _reconcile(self, ledger: Ledger, tenant: str, experiment: str) -> list[Incident]:
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

    def _ask(self, ledger: Ledger, tenant: str, experiment: str) -> None:
        if ledger.position(tenant, experiment):
            with self.store.locked(f"registry/{model_name(tenant, experiment)}"):
                ReleaseQueue(self.models, ledger, tenant, experiment).show()

    def answers(self, ledger: Ledger, tenant: str, experiment: str) -> Answers:
        """What people answered in MLflow, by tag or in the review queue, that was not settled yet."""
        known, items = ledger.versions(tenant, experiment), self.models.versions(model_name(tenant, experiment))
        tags = tagged(items, known, asks_for_login=self.models.reached() == "login")
        queue = ReleaseQueue(self.models, ledger, tenant, experiment).answers()
        return Answers(tags.fit + queue.fit, tags.unfit + queue.unfit)

    def settle(self, review: Review, outcome: str) -> None:
        """Write what became of an answer, and take tags away, so that it is acted on once."""
        tenant, experiment, said = review.version.tenant, review.version.experiment, review.told(outcome)
        self.tell(tenant, experiment, Unfit(review.number, said, review.item, review.stamp))
        if not review.item:
            for key in (REVIEW, REVIEW_BY, REVIEW_REASON):
                self.models.client.delete_model_version_tag(model_name(tenant, experiment), review.number, key)

    def tell(self, tenant: str, experiment: str, answer: Unfit) -> None:
        """Write what an answer lacks. Tags stay, to be completed; an item of the queue is settled by it."""
        if answer.number:
            name = model_name(tenant, experiment)
            self.models.client.set_model_version_tag(name, answer.number, OUTCOME, answer.said)
        if answer.item:
            settle_item(self.models.client, answer.item, answer.stamp, answer.said)


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
