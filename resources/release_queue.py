"""The review queue of releases in MLflow: an item per version that waits for a person, and the answers to it.

An item is a trace that MLflow shows as a short talk: the question, then the version's description with its figures,
what else keeps it out of canary, and links to report, figures, evidence and the version. It is answered once; where
the version waits on, because the answer was refused or incomplete, a new item says so first. An item whose text is no
longer true is made anew. Whoever opens a reviewed item again and answers otherwise is heard, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ratchet.contracts.canonical import digest
from ratchet.release.decision import Decision
from ratchet.release.ledger import Ledger
from ratchet.release.records import Version
from ratchet.release.review import closed_doors, waiting
from resources import mlflow_queues
from resources.answers import ANSWERS, OUTCOME, Answers, Review, Unfit, lacking, told
from resources.mlflow_models import EVIDENCE, LINKS, VERSION, Models, model_name

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Trace
    from mlflow.entities.model_registry import ModelVersion
    from mlflow.genai.review_queues import ReviewQueue, ReviewQueueItem

QUEUE = "release of versions"
QUESTION, REVIEWER = "release", "reviewer"
"""What is asked; the name only where MLflow itself does not know it."""
ITEM, DECISION, TEXT, SETTLED = "ratchet.release", "ratchet.decision", "ratchet.text", "ratchet.review.settled"
"""Tags of a trace: the version by its id, the decision and the text it shows, and the answer that was settled."""


class _Text(NamedTuple):
    """What an item says."""

    version: Version
    decision: Decision
    asked: str
    answer: str

    @property
    def tags(self) -> dict[str, str]:
        """Of the trace that says it."""
        return {
            ITEM: self.version.id,
            DECISION: self.decision.digest,
            TEXT: digest({"asked": self.asked, "answer": self.answer}),
        }


class ReleaseQueue:
    """The queue of one tenant's experiment."""

    def __init__(self, models: Models, ledger: Ledger, tenant: str, experiment: str) -> None:
        """Work on the experiment `<tenant>.<experiment>` of the tracking server that `models` talks to."""
        self.models, self.ledger, self.client = models, ledger, models.client
        self.tenant, self.experiment, self.name = tenant, experiment, model_name(tenant, experiment)

    def show(self) -> None:
        """Bring the queue up to what waits now. The versions must be in MLflow already."""
        from mlflow.genai import review_queues

        asked = list(waiting(self.ledger, self.tenant, self.experiment))
        experiment_id = self.models.experiment(self.name)
        with mlflow_queues.talking_to(self.models.uri):
            queue = mlflow_queues.find(experiment_id, QUEUE)
            login = self.models.reached() == "login"
            if queue is None and asked:
                queue = self._make(experiment_id, asks_for_name=not login)
            if queue is None:
                return
            if login:
                self._assign(queue, {version.release.owner for version, _ in asked})
            wanted = {text.version.id: text for text in self._texts(asked, experiment_id)}
            items, traces = mlflow_queues.items(queue.queue_id), self._traces(experiment_id)
            there, stale = self._sorted(items, traces, wanted)
            removed = sorted(stale | (items.keys() - traces.keys()))
            if removed:
                review_queues.remove_items_from_review_queue(queue.queue_id, item_ids=removed)
            gone = sorted(stale | (traces.keys() - items.keys()))
            if gone:
                self.client.delete_traces(experiment_id, trace_ids=gone)
            for identity in wanted.keys() - there:
                self._add(queue, experiment_id, wanted[identity])

    def answers(self) -> Answers:
        """Completed items whose answer was not settled yet."""
        found = Answers([], [])
        known = self.client.get_experiment_by_name(self.name)
        with mlflow_queues.talking_to(self.models.uri):
            queue = mlflow_queues.find(str(known.experiment_id), QUEUE) if known else None
            if known is None or queue is None:
                return found
            traces = self._traces(str(known.experiment_id))
            for trace_id, item in mlflow_queues.items(queue.queue_id).items():
                trace = traces.get(trace_id)
                if trace is not None and str(item.status) == "complete":
                    self._read(trace, item, found)
        return found

    def _make(self, experiment_id: str, *, asks_for_name: bool) -> ReviewQueue:
        from mlflow.genai.label_schemas import InputCategorical, InputText

        may = InputCategorical(options=["approve", "reject"])
        questions = [
            mlflow_queues.question(
                experiment_id,
                QUESTION,
                may,
                "May this version answer live tasks? The rationale is your reason, and is needed.",
                comment=True,
            )
        ]
        if asks_for_name:
            who = InputText(max_length=200)
            questions.append(
                mlflow_queues.question(experiment_id, REVIEWER, who, "Your name: this server asks for no login")
            )
        return mlflow_queues.make(experiment_id, QUEUE, questions)

    @staticmethod
    def _assign(queue: ReviewQueue, owners: set[str]) -> None:
        """Let the owners open the queue: with a login MLflow shows it to its reviewers and to administrators alone."""
        from mlflow.genai import review_queues

        missing = sorted({owner.strip().casefold() for owner in owners} - {name.casefold() for name in queue.users})
        if missing:
            review_queues.update_review_queue(queue.queue_id, users=[*queue.users, *missing])

    def _texts(self, asked: list[tuple[Version, Decision]], experiment_id: str) -> list[_Text]:
        shown = {item.tags.get(VERSION): item for item in self.models.versions(self.name)} if asked else {}
        return [self._text(*one, shown[one[0].id], experiment_id) for one in asked if one[0].id in shown]

    def _text(self, version: Version, decision: Decision, item: ModelVersion, experiment_id: str) -> _Text:
        reasons = "".join(f"\n- {_line(reason)}" for reason in decision.reasons) or "\n- every rule passed"
        asked = f"May {version.label} answer live tasks? The gate says **{decision.state}**:{reasons}"
        doors = closed_doors(self.ledger, version)
        beside = "".join(f"\n- {_line(door)}" for door in doors) or "\n- nothing: it is qualified for serving"
        run, number = f"#/experiments/{experiment_id}/runs/{item.run_id}", item.version
        links = [f"[all figures]({run})", f"[the version](#/models/{self.name}/versions/{number})"]
        files = {entry.path for entry in self.client.list_artifacts(item.run_id)} if item.run_id else set()
        if "report.html" in files:
            links.insert(0, f"[release report]({run}/artifacts/report.html)")
        if EVIDENCE in item.tags and "evidence.json" in files:
            links.append(f"[evidence]({run}/artifacts/evidence.json)")
        before = item.tags.get(OUTCOME)
        parts = [f"**Last answer:** {_line(before)}"] if before else []
        parts += [
            str(item.description or "").partition(LINKS)[0],
            f"What keeps it out of canary beside your answer:{beside}",
            " · ".join(links),
        ]
        return _Text(version, decision, asked, "\n\n".join(parts))

    def _traces(self, experiment_id: str) -> dict[str, Trace]:
        return mlflow_queues.traces(self.client, experiment_id, f"tags.`{ITEM}` LIKE '%'", ITEM)

    @staticmethod
    def _sorted(
        items: dict[str, ReviewQueueItem], traces: dict[str, Trace], wanted: dict[str, _Text]
    ) -> tuple[set[str], set[str]]:
        """The versions that have an item still to be answered or settled, and the items that are to go."""
        there: set[str] = set()
        stale: set[str] = set()
        for trace_id in items.keys() & traces.keys():
            tags, state = traces[trace_id].info.tags, str(items[trace_id].status)
            text = wanted.get(tags[ITEM])
            if SETTLED in tags:
                continue
            true = text is not None and tags.get(DECISION) == text.decision.digest and tags[ITEM] not in there
            if state == "pending" and text is not None:
                true &= tags.get(TEXT) == text.tags[TEXT]
            if state == "complete" or true:
                there.add(tags[ITEM])
            else:
                stale.add(trace_id)
        return there, stale

    def _add(self, queue: ReviewQueue, experiment_id: str, text: _Text) -> None:
        import mlflow
        from mlflow.genai import review_queues

        span = mlflow.start_span_no_context(
            f"release of {text.version.label}",
            inputs={"messages": [{"role": "user", "content": text.asked}]},
            tags=text.tags,
            experiment_id=experiment_id,
        )
        span.end(outputs={"choices": [{"message": {"role": "assistant", "content": text.answer}}]})
        mlflow.flush_trace_async_logging()
        review_queues.add_items_to_review_queue(queue.queue_id, item_ids=[str(span.trace_id)])

    def _read(self, trace: Trace, item: ReviewQueueItem, found: Answers) -> None:
        """Read the answer of whoever completed an item: what others wrote on it does not count."""
        who = str(item.completed_by or "").strip()
        said = _last(trace, QUESTION, who)
        stamp = f"{item.completed_time_ms}/{said.assessment_id}/{said.last_update_time_ms}" if said else "none"
        if trace.info.tags.get(SETTLED) == stamp:
            return
        if who.casefold() in ("", mlflow_queues.NOBODY):
            named = _last(trace, REVIEWER, who)
            who = str(named.value or "").strip() if named else ""
        answer, reason = (str(said.value or ""), str(said.rationale or "").strip()) if said else ("", "")
        identity, trace_id = trace.info.tags[ITEM], str(trace.info.trace_id)
        version, _ = self.ledger.versions(self.tenant, self.experiment).get(identity, (None, None))
        lack = lacking(answer, who, reason, version, (QUESTION, REVIEWER, "rationale"))
        number = next(
            (str(one.version) for one in self.models.versions(self.name) if one.tags.get(VERSION) == identity), ""
        )
        if lack or version is None:
            found.unfit.append(Unfit(number, told(answer, who, reason, str(lack)), trace_id, stamp))
        else:
            word = ANSWERS[answer.casefold()]
            found.fit.append(Review(version, number, word, who, reason, trace_id, stamp))


def settle_item(client: MlflowClient, item: str, stamp: str, said: str) -> None:
    """Write what became of an answer to an item, by its trace id, and that this very answer is done with."""
    client.set_trace_tag(item, OUTCOME, said)
    client.set_trace_tag(item, SETTLED, stamp)


def _last(trace: Trace, name: str, who: str) -> Any | None:
    """The last answer of one person to a question."""
    mine = [one for one in mlflow_queues.answers(trace, name) if one.source.source_id.casefold() == who.casefold()]
    return mine[-1] if mine else None


def _line(text: str) -> str:
    return " ".join(text.split())
