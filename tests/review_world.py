"""A version that waits for a person, shown in MLflow, and what a reviewer does there by tag or in the review queue."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
from release_world import AT, World, a_policy

from pipelines.review_sensor import registry_review
from ratchet.release.evidence import bundle_evidence, write_bundle
from ratchet.release.records import Version
from resources import mlflow_queues
from resources.home import Home
from resources.mlflow_models import PolicyCard
from resources.registry import Registry
from resources.release_queue import ITEM, QUESTION, QUEUE, REVIEWER

ABOUT = "sft, made by `sft` from `base`.\n\nOn the held-out tasks:\n- acceptance: 61 %"


class ReviewWorld:
    """A home, its registry, and the version `sft` on which the gate said `review`."""

    def __init__(self, home: Path, *, qualified: bool = True, **release: Any) -> None:
        """Make it in `home`, where MLflow's database must be unless MLFLOW_TRACKING_URI names a server."""
        self.home, self.world = home, World(home, **release)
        self.ledger, self.registry = self.world.ledger, Registry.of(home)
        self.name = f"{self.world.tenant}.{self.world.experiment}"
        self.version = self.waits("sft", qualified=qualified)

    @property
    def client(self) -> Any:
        """MLflow's own client."""
        return self.registry.models.client

    def waits(self, name: str, *, qualified: bool = True) -> Version:
        """A candidate that waits for a person, projected with card, report and evidence."""
        world = self.world
        if qualified:
            version = world.candidate(name)
        else:
            version = self.ledger.register(world.manifest, a_policy(world.store, name), by="Ada", at=AT)
        decision = world.decision(version, "review")
        self.ledger.apply(version, decision, at=AT)
        cards = {name: "b" * 64}
        bundle = bundle_evidence(
            version, world.manifest, decision, split_lock="a" * 64, datasets={}, grants={}, scorecards=cards
        )
        write_bundle(world.store, bundle)
        report = self.home / "report.html"
        report.write_text("<h1>report</h1>")
        card = PolicyCard(version.policy, world.manifest.digest, {"acceptance": 0.61}, {}, {}, report, ABOUT)
        self.registry.project(self.ledger, world.tenant, world.experiment, [card])
        return version

    def tick(self, cursor: str | None = None) -> tuple[str, str]:
        """One tick of the sensor in an instance of its own; returns what it said and its cursor."""
        found = self.evaluate(cursor)
        assert found.skip_reason
        return str(found.skip_reason.skip_message), str(found.cursor)

    def evaluate(self, cursor: str | None = None) -> dg.SensorResult:
        """The whole result of one tick."""
        with (
            dg.DagsterInstance.ephemeral() as instance,
            dg.build_sensor_context(instance, cursor, resources={"home": Home(path=str(self.home))}) as context,
        ):
            found = registry_review(context)
        assert isinstance(found, dg.SensorResult)
        return found

    def seq(self) -> int:
        """Position of the line: it moves with everything that happens in the ledger."""
        return self.ledger.position(self.world.tenant, self.world.experiment)

    # Tags

    def number(self, version: Version | None = None) -> str:
        """Number of a version in MLflow."""
        wanted = (version or self.version).id
        (found,) = [
            one for one in self.registry.models.versions(self.name) if one.tags.get("ratchet.version") == wanted
        ]
        return str(found.version)

    def tag(self, answer: str, by: str = "Olga", reason: str = "looks right") -> None:
        """Set the three tags, as a person does."""
        for key, value in {".by": by, ".reason": reason, "": answer}.items():
            self.client.set_model_version_tag(self.name, self.number(), f"ratchet.review{key}", value)

    def tags(self) -> dict[str, str]:
        """Tags of the version in MLflow."""
        return dict(self.client.get_model_version(self.name, self.number()).tags)

    @property
    def outcome(self) -> str:
        """What the reviewer reads."""
        return self.tags().get("ratchet.review.outcome", "")

    # The queue

    def items(self) -> dict[str, tuple[str, Any]]:
        """Items of the release queue by trace id, oldest first: status and trace, as MLflow's interface shows them."""
        import mlflow

        with mlflow_queues.talking_to(self.registry.models.uri):
            experiment_id = self.client.get_experiment_by_name(self.name).experiment_id
            queue = mlflow_queues.find(experiment_id, QUEUE)
            if queue is None:
                return {}
            found = sorted(mlflow_queues.items(queue.queue_id).values(), key=lambda item: item.creation_time_ms)
            return {item.item_id: (str(item.status), mlflow.get_trace(item.item_id)) for item in found}

    def waiting(self) -> list[str]:
        """Trace ids of the items that wait for a person."""
        return [trace_id for trace_id, (status, _) in self.items().items() if status == "pending"]

    def reply(
        self, item: str, answer: str | None, reason: str = "looks right", *, name: str = "", by: str = "default"
    ) -> None:
        """What the review page does on *Submit*; without login it writes as `default`."""
        import mlflow
        from mlflow.entities import AssessmentSource
        from mlflow.genai import review_queues

        source = AssessmentSource("HUMAN", by)
        with mlflow_queues.talking_to(self.registry.models.uri):
            experiment_id = self.client.get_experiment_by_name(self.name).experiment_id
            queue = mlflow_queues.find(experiment_id, QUEUE)
            assert queue is not None
            if answer:
                mlflow.log_feedback(trace_id=item, name=QUESTION, value=answer, rationale=reason or None, source=source)
            if name:
                mlflow.log_feedback(trace_id=item, name=REVIEWER, value=name, source=source)
            review_queues.set_review_queue_item_status(queue.queue_id, item_id=item, status="complete", completed_by=by)

    def said(self, item: str) -> tuple[str, str]:
        """Question and text of an item."""
        span = self.items()[item][1].data.spans[0]
        return (
            span.inputs["messages"][0]["content"],
            span.outputs["choices"][0]["message"]["content"],
        )

    def about(self, item: str) -> str:
        """The version that an item is about, by its id."""
        return str(self.items()[item][1].info.tags[ITEM])
