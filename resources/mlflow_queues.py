"""MLflow's review queues, as far as Ratchet uses them: a queue with its questions, its items, and the traces they are.

Open-source MLflow 3.14 or newer. A queue belongs to an experiment and an item of it is a trace. Who completed an item
MLflow records by itself where it asks for a login; else the browser says `default`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from resources.mlflow_models import as_global_uri

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Trace
    from mlflow.genai.review_queues import ReviewQueue, ReviewQueueItem

PAGE = 100
NOBODY = "default"
"""Who completes items on a server without login."""
LONGEST = 1000
"""Characters of an instruction that MLflow takes."""


@contextmanager
def talking_to(uri: str) -> Iterator[None]:
    """Set MLflow's own functions, through which alone it offers queues, to `uri`."""
    with warnings.catch_warnings(), as_global_uri(uri):
        # MLflow warns that review queues may change, and of a type hint of its own when it first traces.
        warnings.simplefilter("ignore")
        yield


def question(experiment_id: str, name: str, kind: Any, instruction: str, *, comment: bool = False) -> str:
    """Id of an experiment's question of that name; made where it is missing.

    Args:
        experiment_id: of the MLflow experiment.
        name: what the reviewer reads above it, and the name of the answer.
        kind: an input of `mlflow.genai.label_schemas`.
        instruction: said below the name; cut to what MLflow takes.
        comment: whether a reason may be written beside the answer.
    """
    from mlflow.exceptions import MlflowException
    from mlflow.genai import label_schemas

    try:
        return str(label_schemas.get_label_schema(name, experiment_id=experiment_id).schema_id)
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
    made = label_schemas.create_label_schema(
        name,
        type="feedback",
        input=kind,
        instruction=instruction[:LONGEST],
        enable_comment=comment,
        experiment_id=experiment_id,
    )
    return str(made.schema_id)


def find(experiment_id: str, name: str) -> ReviewQueue | None:
    """An experiment's queue of that name."""
    from mlflow.exceptions import MlflowException
    from mlflow.genai import review_queues

    try:
        return review_queues.get_review_queue(name=name, experiment_id=experiment_id)
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
    return None


def make(experiment_id: str, name: str, questions: Sequence[str]) -> ReviewQueue:
    """A new queue that asks these questions, by their ids, of whoever opens it."""
    from mlflow.genai import review_queues

    return review_queues.create_review_queue(
        name, queue_type="custom", schema_ids=list(questions), experiment_id=experiment_id
    )


def items(queue_id: str) -> dict[str, ReviewQueueItem]:
    """The items of a queue by trace id."""
    from mlflow.genai import review_queues

    found: dict[str, ReviewQueueItem] = {}
    token = None
    while True:
        page = review_queues.list_review_queue_items(queue_id, max_results=PAGE, page_token=token)
        found |= {str(item.item_id): item for item in page}
        token = page.token
        if not token:
            return found


def traces(client: MlflowClient, experiment_id: str, wanted: str, tag: str) -> dict[str, Trace]:
    """The traces of an experiment that a filter finds and that carry a tag, by id."""
    found: dict[str, Trace] = {}
    token = None
    while True:
        page = client.search_traces(
            locations=[experiment_id], filter_string=wanted, page_token=token, include_spans=False
        )
        found |= {str(trace.info.trace_id): trace for trace in page if tag in trace.info.tags}
        token = page.token
        if not token:
            return found


def answers(trace: Trace, name: str) -> list[Any]:
    """What people answered to a question, without what a later answer has replaced; oldest first."""
    found = [
        one
        for one in trace.info.assessments
        if one.name == name and one.source.source_type == "HUMAN" and one.valid is not False
    ]
    return sorted(found, key=lambda one: int(one.last_update_time_ms))
