"""What MLflow holds of the experiments that an erasure is about, and how it is emptied.

Removed are the traces, and every artifact but the checkpoint and the evidence bundle, which hold digests and weights.
Figures, parameters and descriptions stay: they are computed, and quote nothing. The next projection logs the report
anew. A SQLite file is rewritten afterwards, so that no free page keeps a deleted row.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ratchet.loop.context import reopen_run
from ratchet.loop.places import Item, Scope, vacuum
from resources.mlflow_models import model_name
from resources.registry import Registry

if TYPE_CHECKING:
    from mlflow.store.artifact.artifact_repo import ArtifactRepository

KEPT = ("checkpoint", "evidence.json")
"""Artifacts that hold no content of logs."""
GRANT = "ratchet.grant"
"""Tag of a trace that says which grant it falls under; a trace without it may fall under any."""


class _Artifacts(NamedTuple):
    """One artifact to remove: of a run, a logged model or a trace."""

    owner: str
    repository: ArtifactRepository
    path: str | None
    size: int


class TrackingPurge:
    """The hook of `ratchet.loop.erasing` for the tracking store of a home."""

    def listed(self, scope: Scope) -> list[Item]:
        """What it would remove: artifacts and traces."""
        registry = self._registry(scope)
        if registry is None:
            return []
        why = "may quote what was learned from"
        found = [
            Item("MLflow artifact", f"{one.owner}/{one.path or ''}", one.size, why)
            for one in self._artifacts(registry, scope)
        ]
        traces = [trace for _, trace in self._traces(registry, scope)]
        return found + [Item("MLflow trace", str(trace.info.trace_id), 0, why) for trace in traces]

    def purge(self, scope: Scope) -> None:
        """Remove artifacts and traces, and rewrite the database where it is a file of this machine."""
        registry = self._registry(scope)
        if registry is None:
            return
        client = registry.models.client
        for one in list(self._artifacts(registry, scope)):
            one.repository.delete_artifacts(one.path)
            run_id = one.owner.removeprefix("run ")
            if run_id != one.owner and client.get_run(run_id).info.lifecycle_stage == "active":
                # With another tag the next projection logs the card of the policy, with its report, anew.
                client.set_tag(run_id, "ratchet.card", "erased")
        by_experiment: dict[str, list[Any]] = {}
        for experiment_id, trace in self._traces(registry, scope):
            by_experiment.setdefault(experiment_id, []).append(trace)
        for experiment_id, traces in by_experiment.items():
            for trace in traces:
                place = trace.info.tags.get("mlflow.artifactLocation")
                if place:
                    _repository(registry, place).delete_artifacts(None)
            client.delete_traces(experiment_id, trace_ids=[str(trace.info.trace_id) for trace in traces])
        database = _database(registry, scope.home)
        if database.exists():
            vacuum(database)

    @staticmethod
    def _registry(scope: Scope) -> Registry | None:
        """The registry of the home; None where nothing was ever shown in one."""
        registry = Registry.of(scope.home)
        shown = registry.models.uri.startswith("http") or _database(registry, scope.home).exists()
        return registry if shown and scope.experiments else None

    def _experiments(self, registry: Registry, scope: Scope) -> dict[str, set[str]]:
        """Ids of the experiments of this home that are concerned, by the id of their MLflow experiment."""
        found: dict[str, set[str]] = {}
        for run_id in scope.experiments:
            with reopen_run(scope.home, run_id) as run:
                name = model_name(run.manifest.tenant, run.manifest.experiment)
            known = registry.models.client.get_experiment_by_name(name)
            if known is not None:
                found.setdefault(str(known.experiment_id), set()).add(run_id)
        return found

    def _artifacts(self, registry: Registry, scope: Scope) -> Iterator[_Artifacts]:
        from mlflow.entities import ViewType

        client = registry.models.client
        for experiment_id, run_ids in self._experiments(registry, scope).items():
            runs: dict[str, Any] = {}
            token = None
            while True:
                page = client.search_runs([experiment_id], run_view_type=ViewType.ALL, page_token=token)
                runs |= {run.info.run_id: run for run in page if run.data.params.get("experiment") in {*run_ids, None}}
                token = page.token
                if not token:
                    break
            for run_id, run in runs.items():
                yield from _listed(f"run {run_id}", _repository(registry, run.info.artifact_uri))
            for model in _models(client, experiment_id):
                if model.source_run_id in runs:
                    yield from _listed(f"model {model.model_id}", _repository(registry, model.artifact_location))

    def _traces(self, registry: Registry, scope: Scope) -> Iterator[tuple[str, Any]]:
        """Traces of the experiments, but those that say they fall under another grant."""
        client = registry.models.client
        for experiment_id in self._experiments(registry, scope):
            token = None
            while True:
                page = client.search_traces(locations=[experiment_id], page_token=token, include_spans=False)
                for trace in page:
                    if trace.info.tags.get(GRANT, scope.grant_id) == scope.grant_id:
                        yield experiment_id, trace
                token = page.token
                if not token:
                    break


def _models(client: Any, experiment_id: str) -> Iterator[Any]:
    token = None
    while True:
        page = client.search_logged_models([experiment_id], page_token=token)
        yield from page
        token = page.token
        if not token:
            return


def _listed(owner: str, repository: ArtifactRepository) -> Iterator[_Artifacts]:
    for entry in repository.list_artifacts(None):
        if entry.path not in KEPT:
            yield _Artifacts(owner, repository, entry.path, int(entry.file_size or 0))


def _repository(registry: Registry, uri: str) -> ArtifactRepository:
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

    return get_artifact_repository(uri, tracking_uri=registry.models.uri)


def _database(registry: Registry, home: Path) -> Path:
    """The SQLite file behind the tracking store: its own, or the one that `ratchet ui` serves from the home."""
    uri = registry.models.uri
    return Path(uri.removeprefix("sqlite:///")) if uri.startswith("sqlite:///") else home / "mlflow.db"
