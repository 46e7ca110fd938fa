"""A reviewer's answer as it stands in MLflow, and the answers given as tags of a version.

An answer that cannot be acted on is told why, in the tag where its outcome would be, and stays to be completed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal, NamedTuple

from ratchet.release.records import Version
from ratchet.release.states import State
from resources.mlflow_models import VERSION

if TYPE_CHECKING:
    from mlflow.entities.model_registry import ModelVersion

REVIEW, REVIEW_BY, REVIEW_REASON = "ratchet.review", "ratchet.review.by", "ratchet.review.reason"
OUTCOME = "ratchet.review.outcome"
ANSWERS: dict[str, Literal["approve", "reject"]] = {
    "approve": "approve",
    "approved": "approve",
    "reject": "reject",
    "rejected": "reject",
}
QUOTED = 300
"""Characters of a reason that an outcome repeats: MLflow takes tags of a few thousand only."""


class Review(NamedTuple):
    """An answer that a person gave in MLflow."""

    version: Version
    number: str
    answer: Literal["approve", "reject"]
    by: str
    reason: str
    item: str = ""
    """The queue's item, a trace; empty where the answer is tags."""
    stamp: str = ""
    """What tells this answer to the item from a later one."""

    @property
    def key(self) -> str:
        """What tells this answer from every other one."""
        return "|".join((self.version.id, self.answer, self.by, self.reason, self.item, self.stamp))

    def told(self, outcome: str) -> str:
        """The answer with what became of it."""
        return told(self.answer, self.by, self.reason, outcome)


class Unfit(NamedTuple):
    """An answer that nobody can act on as it stands."""

    number: str
    """Number of the version in MLflow; empty where there is none."""
    said: str
    """The answer, and what it lacks."""
    item: str = ""
    stamp: str = ""


class Answers(NamedTuple):
    """What was answered and not yet settled."""

    fit: list[Review]
    unfit: list[Unfit]


def told(answer: str, by: str, reason: str, outcome: str) -> str:
    """One sentence of who answered what, why, and what became of it."""
    short = [text if len(text) <= QUOTED else f"{text[:QUOTED]}..." for text in (answer, by, reason)]
    return f"{short[0] or 'no answer'} by {short[1] or 'nobody'} ({short[2] or 'no reason'}): {outcome}"


def lacking(answer: str, by: str, reason: str, version: Version | None, where: tuple[str, str, str]) -> str | None:
    """Why an answer cannot be acted on, if so.

    Args:
        answer: as it was given.
        by: who gave it.
        reason: why.
        version: what it is about, as the ledger has it.
        where: what answer, name and reason are called where the person gives them.
    """
    if version is None:
        return "not acted on: the release ledger holds no such version"
    if answer.casefold() not in ANSWERS:
        return f"not acted on: `{where[0]}` says approve or reject"
    if not by:
        eyes = ", and the manifest asks for four eyes" if version.release.four_eyes else ""
        return f"not acted on: `{where[1]}` must name who answers{eyes}"
    return None if reason else f"not acted on: `{where[2]}` must say why"


def tagged(items: Iterable[ModelVersion], known: dict[str, tuple[Version, State]], *, asks_for_login: bool) -> Answers:
    """The answers that were given as tags. One whose lack was told already is left out until it changes.

    Args:
        items: the versions in MLflow.
        known: the versions of the line by id, as the ledger has them.
        asks_for_login: whether MLflow knows who its users are. It does not record who set a tag, so that a tag then
            approves nothing for which four eyes are asked.
    """
    fit, unfit = [], []
    for item in items:
        given = [item.tags.get(key, "").strip() for key in (REVIEW, REVIEW_BY, REVIEW_REASON)]
        if not given[0]:
            continue
        answer, by, reason = given
        version, _ = known.get(item.tags.get(VERSION, ""), (None, None))
        lack = lacking(answer, by, reason, version, (REVIEW, REVIEW_BY, REVIEW_REASON))
        word = ANSWERS.get(answer.casefold())
        if not lack and version and version.release.four_eyes and asks_for_login and word == "approve":
            lack = "refused: the manifest asks for four eyes, and a tag does not record who set it; answer in the queue"
        if lack:
            said = told(answer, by, reason, lack)
            if item.tags.get(OUTCOME) != said:
                unfit.append(Unfit(str(item.version), said))
        elif version and word:
            fit.append(Review(version, str(item.version), word, by, reason))
    return Answers(fit, unfit)
