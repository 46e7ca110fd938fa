"""What MLflow holds of a policy: a run with its metrics, a logged model with its files, a registered version.

Everything is found again by the tag `ratchet.version`, so that each call may be repeated. MLflow is imported inside
functions: importing it costs about 2 s, and its first use of a new SQLite file migrates that for several seconds.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import urlsplit

from ratchet.contracts.canonical import canonical_json, digest, plain
from ratchet.contracts.policy import Policy
from ratchet.contracts.score import NotComputable, Quantity
from ratchet.release.records import version_id
from ratchet.store import Store

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import LoggedModel
    from mlflow.entities.model_registry import ModelVersion

VERSION = "ratchet.version"
REGISTERED = "ratchet.registered"
EVIDENCE = "ratchet.evidence"
LEFT_OUT = "ratchet.left_out"
NOTE = "mlflow.note.content"
"""The tag that MLflow shows as the description of a run, a logged model or an experiment."""
ABOUT = (
    "One run per policy: figures on the held-out tasks, learning curves (`curve_*`), `report.html`, `regression.json`."
)

LINKS = "\n\n[Open the release report]"
"""Where the description of a version ends and its links begin."""
PROBE, PROBE_S = "/api/2.0/mlflow/experiments/search?max_results=1", 10.0
"""A request that a server with login refuses to anybody, and how long it may take."""


def model_name(tenant: str, experiment: str) -> str:
    """Name of the registered model, and of the MLflow experiment, of one tenant's experiment."""
    return f"{tenant}.{experiment}"


class PolicyCard(NamedTuple):
    """What is shown of one policy beside its files."""

    policy: Policy
    manifest_digest: str
    metrics: Mapping[str, Quantity]
    """Figures by name. One that cannot be computed is left out, and a tag says why."""
    params: Mapping[str, str]
    curves: Mapping[str, Sequence[tuple[int, float]]] = {}
    """Learning curves: (step, value) by name."""
    report: Path | None = None
    """The release report, a self-contained HTML page."""
    description: str = ""
    """What a reviewer reads first, as markdown: what it is, what was decided and why, where to look."""


class Models:
    """Runs, logged models and versions on one tracking server."""

    def __init__(self, uri: str, store: Store, artifact_root: Path | None) -> None:
        """Talk to `uri`. `artifact_root` is where files go when no server decides that (a database URI)."""
        self.uri, self.store, self.artifact_root = uri, store, artifact_root

    @cached_property
    def client(self) -> MlflowClient:
        """The client; made on first use."""
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow import MlflowClient

        for name in ("mlflow.store.db.utils", "alembic"):
            logging.getLogger(name).setLevel(logging.WARNING)
        return MlflowClient(tracking_uri=self.uri, registry_uri=self.uri)

    def reached(self) -> Literal["open", "login", "away"]:
        """Whether it can be asked now, and if so whether it asks for a login. A client would try for minutes."""
        if self.uri.startswith("sqlite:///"):
            return "open" if Path(self.uri.removeprefix("sqlite:///")).exists() else "away"
        if not self.uri.startswith("http"):
            return "open"
        place = urlsplit(self.uri)
        # Without the user and password of this process: what anybody gets to see is the question.
        anonymous = place._replace(netloc=place.netloc.rpartition("@")[2]).geturl().rstrip("/")
        try:
            urllib.request.urlopen(f"{anonymous}{PROBE}", timeout=PROBE_S).close()
        except urllib.error.HTTPError as refused:
            return "login" if refused.code in (401, 403) else "away"
        except OSError:
            return "away"
        return "open"

    def experiment(self, name: str) -> str:
        """Id of the MLflow experiment of that name, made where it is missing."""
        found = self.client.get_experiment_by_name(name)
        if found is not None:
            return str(found.experiment_id)
        place = f"{self.artifact_root.resolve().as_uri()}/{name}" if self.artifact_root else None
        return str(self.client.create_experiment(name, artifact_location=place, tags={NOTE: ABOUT}))

    def logged(self, experiment_id: str, version: str) -> LoggedModel | None:
        """The finished logged model of a version id."""
        ready = [model for model in self._tagged(experiment_id, version) if str(model.status) == "READY"]
        return min(ready, key=lambda model: model.creation_timestamp, default=None)

    def _tagged(self, experiment_id: str, version: str) -> list[LoggedModel]:
        return list(self.client.search_logged_models([experiment_id], filter_string=f"tags.`{VERSION}` = '{version}'"))

    def ensure_logged(self, experiment_id: str, version: str, manifest_digest: str, policy: Policy) -> LoggedModel:
        """The logged model of a policy with its checkpoint files, and the run that carries its metrics."""
        found = self.logged(experiment_id, version)
        if found is not None:
            return found
        for half_made in self._tagged(experiment_id, version):
            self.client.delete_logged_model(half_made.model_id)
            if half_made.source_run_id:
                self.client.delete_run(half_made.source_run_id)
        tags = {
            VERSION: version,
            "ratchet.policy": policy.digest,
            "ratchet.weights": policy.weights_digest,
            "ratchet.manifest": manifest_digest,
            "ratchet.method": policy.method,
        }
        run = self.client.create_run(experiment_id, run_name=policy.name, tags=tags)
        model = self.client.create_logged_model(
            experiment_id, name=policy.name, source_run_id=run.info.run_id, tags=tags, model_type="policy"
        )
        self.client.log_model_artifacts(model.model_id, str(self.store.folder(policy.checkpoint)), "checkpoint")
        self.client.set_terminated(run.info.run_id)
        return self.client.finalize_logged_model(model.model_id, "READY")

    def record(self, experiment_id: str, tenant: str, experiment: str, card: PolicyCard) -> None:
        """Log figures, parameters, curves and report of one policy; what is there already is not logged again."""
        from mlflow.entities import Metric, Param, RunTag

        version = version_id(tenant, experiment, card.manifest_digest, card.policy.digest)
        model = self.ensure_logged(experiment_id, version, card.manifest_digest, card.policy)
        run_id = str(model.source_run_id)
        report = card.report.read_bytes() if card.report else b""
        regression = card.policy.training.get("regression")
        figures = [plain(dict(card.metrics)), dict(card.params), plain(dict(card.curves)), regression]
        content = digest([*figures, report.hex(), card.description])
        run = self.client.get_run(run_id)
        if run.data.tags.get("ratchet.card") == content:
            return
        now = int(time.time() * 1000)
        metrics = [
            Metric(name, value, now, 0, model_id=model.model_id)
            for name, value in card.metrics.items()
            if not isinstance(value, NotComputable)
        ]
        # Curves belong to the run alone: the page of a logged model lists every point of them as a figure of its own.
        metrics += [Metric(name, value, now, step) for name, curve in card.curves.items() for step, value in curve]
        words = [
            RunTag(f"ratchet.not_computable.{name}", value.reason)
            for name, value in card.metrics.items()
            if isinstance(value, NotComputable)
        ]
        if card.description:
            words.append(RunTag(NOTE, card.description))
        params = [Param(key, value) for key, value in card.params.items() if key not in run.data.params]
        for start in range(0, max(len(metrics), 1), 500):
            self.client.log_batch(run_id, metrics=metrics[start : start + 500])
        self.client.log_batch(run_id, params=params, tags=words)
        if words:
            self.client.set_logged_model_tags(model.model_id, {tag.key: tag.value for tag in words})
        if report:
            self._upload(model.model_id, run_id, "report.html", report)
        if regression is not None:
            self._upload(model.model_id, run_id, "regression.json", canonical_json(regression).encode())
        self.client.set_tag(run_id, "ratchet.card", content)

    def leave_out(self, experiment_id: str, manifest_digest: str, candidate: str, why: str) -> None:
        """Show a candidate that was not made as a failed run with the reason, once."""
        mine = f"tags.`{LEFT_OUT}` = '{candidate}' AND tags.`ratchet.manifest` = '{manifest_digest}'"
        if not self.client.search_runs([experiment_id], filter_string=mine):
            tags = {LEFT_OUT: candidate, "ratchet.manifest": manifest_digest, NOTE: why}
            run = self.client.create_run(experiment_id, run_name=candidate, tags=tags)
            self.client.set_terminated(run.info.run_id, "FAILED")

    def evidence(self, model: LoggedModel, data: bytes) -> None:
        """Put the evidence bundle beside the model."""
        self._upload(model.model_id, str(model.source_run_id), "evidence.json", data)

    def _upload(self, model_id: str, run_id: str, name: str, data: bytes) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / name
            path.write_bytes(data)
            self.client.log_model_artifact(model_id, str(path))
            self.client.log_artifact(run_id, str(path))

    def versions(self, name: str) -> Iterator[ModelVersion]:
        """Every version of a registered model, oldest first."""
        found: list[Any] = []
        token = None
        while True:
            page = self.client.search_model_versions(f"name = '{name}'", page_token=token)
            found += page
            token = page.token
            if not token:
                return iter(sorted(found, key=lambda version: int(version.version)))

    def describe(self, name: str, experiment_id: str, version: str, description: str) -> None:
        """Give a version id's version of a registered model its description, with links to report and review queue."""
        for item in self.versions(name):
            report = f"#/experiments/{experiment_id}/runs/{item.run_id}/artifacts/report.html"
            queue = f"#/experiments/{experiment_id}/review-queue"
            text = f"{description}{LINKS}({report})\n\n[Open the review queue]({queue})"
            if item.tags.get(VERSION) == version and item.description != text:
                self.client.update_model_version(name, str(item.version), description=text)

    def register(self, name: str, model: LoggedModel, tags: Mapping[str, str], description: str) -> str:
        """Make a version of a registered model from a logged model; returns its number."""
        # MLflow 3.17 looks a version's source up at the global tracking URI when it talks to a database itself.
        with contextlib.nullcontext() if self.uri.startswith("http") else as_global_uri(self.uri):
            made = self.client.create_model_version(
                name,
                f"models:/{model.model_id}",
                run_id=model.source_run_id,
                tags=dict(tags),
                description=description,
                model_id=model.model_id,
            )
        # MLflow's own tag shows the version on the page of the logged model; only its fluent interface sets it.
        registered = json.dumps([{"name": name, "version": str(made.version)}])
        tags_of_model = {REGISTERED: str(made.version), "mlflow.modelVersions": registered}
        self.client.set_logged_model_tags(model.model_id, tags_of_model)
        return str(made.version)


@contextlib.contextmanager
def as_global_uri(uri: str) -> Iterator[None]:
    """Talk to `uri` with those parts of MLflow that know the global tracking URI alone; then it is what it was."""
    import mlflow

    before, variable = mlflow.get_tracking_uri(), os.environ.get("MLFLOW_TRACKING_URI")
    mlflow.set_tracking_uri(uri)
    try:
        yield
    finally:
        mlflow.set_tracking_uri(before)
        # Setting it sets the variable too, by which the registry of a home is found.
        os.environ.pop("MLFLOW_TRACKING_URI", None)
        if variable is not None:
            os.environ["MLFLOW_TRACKING_URI"] = variable
