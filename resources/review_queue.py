"""The disagreements of judge and experts as a review queue in MLflow, and the experts' answers back as labels.

A work is a trace: what was asked and the rubric as its inputs, the work as its output, and on it two assessments, the
judge's grade and the expert's, each with its reason. The queue asks one question, the rubric, with its categories; an
expert answers it, gives a reason, and marks the item as complete. The trace carries the grant that the work came in
under, so that an erasure takes it away with the work (`resources.purging`).

MLflow is imported inside functions: that costs about 2 s.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ratchet.contracts.canonical import digest
from ratchet.loop import judge as judges
from ratchet.loop.context import Run
from ratchet.loop.judge_queue import Disagreement, add_labels, disagreements
from ratchet.rewards.calibration.labels import Label
from resources import mlflow_queues
from resources.mlflow_models import model_name
from resources.mlflow_queues import answers, talking_to
from resources.purging import GRANT
from resources.registry import Registry

if TYPE_CHECKING:
    from mlflow.entities import Trace
    from mlflow.genai.review_queues import ReviewQueue

ITEM, RUN = "ratchet.item", "ratchet.experiment"
"""Tags of a trace: the work by its id, and the experiment whose agents made it."""


class Shown(NamedTuple):
    """The queue as it stands in MLflow."""

    link: str
    waiting: int
    answered: int


class Taken(NamedTuple):
    """What came back."""

    added: int
    """Labels that are new."""
    refused: tuple[str, ...]
    """Answers that are no label, in words."""


def show(run: Run) -> Shown | None:
    """Bring the queue in MLflow up to the disagreements as they are now; None where the reward has no judge.

    An item that waits though judge and experts differ on it no longer is taken out, and its trace with it. What was
    answered stays.
    """
    if run.manifest.reward.judge is None:
        return None
    open_ones = {row.item_id: row for row in disagreements(run)}
    with _tracking(run, make=bool(open_ones)) as tracking:
        queue = _queue(run, tracking, make=bool(open_ones)) if tracking else None
        if tracking is None or queue is None:
            return Shown("no queue: judge and experts differ on nothing", 0, 0)
        _drop(run, tracking, queue, open_ones.keys())
        known = {trace.info.tags[ITEM] for trace in _traces(run, tracking).values()}
        _add(run, tracking, queue, [row for name, row in open_ones.items() if name not in known])
        status = _status(queue.queue_id)
    waiting = sum(state == "pending" for state in status.values())
    page = f"#/experiments/{tracking.experiment_id}/review-queue"
    uri = Registry.of(run.home).models.uri
    link = f"{uri.rstrip('/')}/{page}" if uri.startswith("http") else f"{page} of the MLflow that `ratchet ui` serves"
    return Shown(link, waiting, len(status) - waiting)


def take_in(run: Run) -> Taken:
    """Add the answers of every completed item as labels. The same answers again add nothing.

    Answers outside the rubric are refused one by one; the others come in.
    """
    if run.manifest.reward.judge is None:
        return Taken(0, ())
    rubric = judges.rubric_of(run)
    labels: list[Label] = []
    refused: list[str] = []
    done: list[str] = []
    traces: dict[str, Trace] = {}
    with _tracking(run, make=False) as tracking:
        queue = _queue(run, tracking, make=False) if tracking else None
        if tracking and queue:
            done = [one for one, state in _status(queue.queue_id).items() if state == "complete"]
            traces = _traces(run, tracking) if done else {}
    for trace_id in done:
        if trace_id not in traces:
            continue
        item = traces[trace_id].info.tags[ITEM]
        for answer in answers(traces[trace_id], rubric.name):
            if answer.value not in rubric.categories:
                refused.append(f"{str(answer.value)[:40]!r} by {answer.source.source_id} on {item[:12]}")
                continue
            labels.append(
                Label(
                    item_id=item,
                    rubric=rubric.name,
                    rubric_version=rubric.version,
                    category=answer.value,
                    rater=answer.source.source_id,
                    at=datetime.fromtimestamp(answer.last_update_time_ms / 1000, UTC),
                    split=judges.split_of(item),
                    reason=answer.rationale or "",
                )
            )
    # Asked each minute: the works are read only where there is something new.
    known = {digest(label) for label in judges.labels_of(run).all()} if labels else set()
    fresh = [label for label in labels if digest(label) not in known]
    return Taken(add_labels(run, fresh) if fresh else 0, tuple(refused))


class _Tracking(NamedTuple):
    """Where the queue is."""

    client: Any
    experiment_id: str


@contextmanager
def _tracking(run: Run, *, make: bool) -> Iterator[_Tracking | None]:
    """The run's MLflow experiment, with MLflow's own functions set to its server; None where there is none to make."""
    models, name = Registry.of(run.home).models, model_name(run.manifest.tenant, run.manifest.experiment)
    database = Path(models.uri.removeprefix("sqlite:///"))
    if not make and models.uri.startswith("sqlite:///") and not database.exists():
        yield None
        return
    with talking_to(models.uri):
        known = models.client.get_experiment_by_name(name)
        if known is None and not make:
            yield None
            return
        yield _Tracking(models.client, models.experiment(name))


def _queue(run: Run, tracking: _Tracking, *, make: bool) -> ReviewQueue | None:
    """The run's queue, with its one question; made where it is missing, if asked to."""
    from mlflow.genai.label_schemas import InputCategorical

    rubric, experiment_id = judges.rubric_of(run), tracking.experiment_id
    name = f"{run.manifest.run_id} {rubric.name}/{rubric.version}"
    known = mlflow_queues.find(experiment_id, name)
    if known is not None or not make:
        return known
    kind = InputCategorical(options=list(rubric.categories))
    asked = mlflow_queues.question(experiment_id, rubric.name, kind, f"{rubric.question} {rubric.policy}", comment=True)
    return mlflow_queues.make(experiment_id, name, [asked])


def _status(queue_id: str) -> dict[str, str]:
    """The items of a queue by trace id, with their status."""
    return {trace_id: str(item.status) for trace_id, item in mlflow_queues.items(queue_id).items()}


def _traces(run: Run, tracking: _Tracking) -> dict[str, Trace]:
    """The traces of the run's works, by id."""
    wanted = f"tags.`{RUN}` = '{run.manifest.run_id}'"
    return mlflow_queues.traces(tracking.client, tracking.experiment_id, wanted, ITEM)


def _drop(run: Run, tracking: _Tracking, queue: ReviewQueue, open_ones: Collection[str]) -> None:
    """Take out what waits for no reason any more, what was erased, and what an earlier call left half made."""
    from mlflow.genai import review_queues

    traces, status = _traces(run, tracking), _status(queue.queue_id)
    waiting = {one for one, state in status.items() if state == "pending"}
    stale = {one for one in waiting & traces.keys() if traces[one].info.tags[ITEM] not in open_ones}
    removed = sorted(stale | (status.keys() - traces.keys()))
    if removed:
        review_queues.remove_items_from_review_queue(queue.queue_id, item_ids=removed)
    gone = sorted(stale | (traces.keys() - status.keys()))
    if gone:
        tracking.client.delete_traces(tracking.experiment_id, trace_ids=gone)


def _add(run: Run, tracking: _Tracking, queue: ReviewQueue, rows: Sequence[Disagreement]) -> None:
    """Put works into the queue, each a trace with what judge and expert said of it."""
    import mlflow
    from mlflow.entities import AssessmentSource
    from mlflow.genai import review_queues

    if not rows:
        return
    rubric, grants = judges.rubric_of(run), judges.corpus(run).grants
    asked = {"question": rubric.question, "policy": rubric.policy}
    made: dict[str, Disagreement] = {}
    for row in rows:
        tags = {ITEM: row.item_id, RUN: run.manifest.run_id, "ratchet.labels": row.labels_are}
        # A work of several grants goes with any of them: without the tag, every erasure takes it.
        if len(grants[row.item_id]) == 1:
            tags[GRANT] = next(iter(grants[row.item_id]))
        span = mlflow.start_span_no_context(
            f"{rubric.name} {row.item_id[:12]}", inputs=asked, tags=tags, experiment_id=tracking.experiment_id
        )
        span.end(outputs={"work": row.work})
        made[str(span.trace_id)] = row
    mlflow.flush_trace_async_logging()
    for trace_id, row in made.items():
        kind = "CODE" if row.labels_are == "simulated" else "HUMAN"
        for who, category, reason, source in (
            ("judge", row.judge_category, row.judge_reason, AssessmentSource("LLM_JUDGE", "judge")),
            ("expert", row.expert_category, row.expert_reason, AssessmentSource(kind, row.experts)),
        ):
            mlflow.log_feedback(
                trace_id=trace_id,
                name=f"{rubric.name} by the {who}",
                value=category,
                rationale=reason or None,
                source=source,
            )
    review_queues.add_items_to_review_queue(queue.queue_id, item_ids=[*made])
