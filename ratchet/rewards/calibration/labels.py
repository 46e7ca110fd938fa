"""Labels: what experts, or a stated function, said about items, append-only, with who, when and by which rubric.

Label splits never overlap: an item whose labels tune the judge's prompt or train it can neither calibrate the judge nor
be an anchor. Simulated labels say so in every label, so that whatever is made of them says so too. Batches are content
addressed behind one pointer per rubric; adding the same labels twice adds nothing.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Literal

from pydantic import AwareDatetime, Field, ValidationError

from ratchet.contracts.canonical import canonical_json, digest, digest_bytes
from ratchet.contracts.model import Contract
from ratchet.errors import IntegrityError, RatchetError
from ratchet.rewards.judges.rubric import Rubric
from ratchet.store import Store

LabelSplit = Literal["calibration", "anchor", "tuning"]


class Label(Contract):
    """One rater's category for one item."""

    item_id: str = Field(min_length=1, description="Item that was labelled.")
    rubric: str = Field(min_length=1, description="Rubric by name.")
    rubric_version: str = Field(min_length=1, description="Its version.")
    category: str = Field(min_length=1, description="Category given.")
    rater: str = Field(min_length=1, description="Person, or the name of the labelling function.")
    at: AwareDatetime = Field(description="When.")
    split: LabelSplit = Field(description="What the label may be used for.")
    simulated: bool = Field(default=False, description="Made by a stated function and not by a person.")
    reason: str = Field(default="", description="Why, in the rater's words.")


class Labels:
    """The labels of one tenant and rubric in the store."""

    def __init__(self, store: Store, tenant: str, rubric: Rubric) -> None:
        """Open the labels; nothing is read yet."""
        self.store, self.rubric = store, rubric
        self._base = f"{tenant}/labels/{rubric.name}"

    def all(self) -> list[Label]:
        """Return every label by the rubric's version, in the order of arrival.

        Raises:
            IntegrityError: a batch was changed.
        """
        found = []
        for name in self._batches(self.store.pointer(f"{self._base}/head")):
            data = self.store.read(f"{self._base}/{name}.jsonl")
            if digest_bytes(data) != name:
                raise IntegrityError(
                    f"{self._base}/{name}.jsonl", rule="its content must match its name", remedy="restore the store"
                )
            found += [Label.model_validate_json(line) for line in data.splitlines()]
        return [label for label in found if label.rubric_version == self.rubric.version]

    def head(self) -> str | None:
        """What stands for the labels as they are now; it moves with every addition."""
        return self.store.pointer(f"{self._base}/head")

    def add(self, labels: Iterable[Label]) -> int:
        """Add labels and return how many are new: a rater's later word on the same item replaces the earlier one.

        The same word again is not new, whenever it is brought: a file without times may be taken in twice.

        Raises:
            RatchetError: a category or rubric is wrong, or an item would be in two splits; nothing is added.
        """
        labels, place = list(labels), f"{self._base}/head"

        def add(head: str | None) -> int:
            known = self.all()
            fresh = _unsaid(labels, known)
            if not fresh:
                return 0
            check_labels([*known, *fresh], self.rubric)
            data = "".join(canonical_json(label) + "\n" for label in fresh).encode()
            name = digest_bytes(data)
            self.store.create(f"{self._base}/{name}.jsonl", data)
            index = canonical_json([*self._batches(head), name]).encode()
            listed = digest_bytes(index)
            self.store.create(f"{self._base}/{listed}.json", index)
            self.store.swap(place, head, listed)
            return len(fresh)

        return self.store.settled(place, add, "labels were being added")

    def _batches(self, head: str | None) -> list[str]:
        names: list[str] = json.loads(self.store.read(f"{self._base}/{head}.json")) if head else []
        return names


def _unsaid(labels: Sequence[Label], known: Sequence[Label]) -> list[Label]:
    """Labels that say something which their rater has not said of the item last, and that are not known themselves."""
    seen = {digest(label) for label in known}
    last = {(label.item_id, label.rater): label for label in known}
    fresh = []
    for label in labels:
        said = last.get((label.item_id, label.rater))
        if digest(label) not in seen and (said is None or label != said.model_copy(update={"at": label.at})):
            fresh.append(label)
            last[label.item_id, label.rater] = label
    return fresh


def check_labels(labels: Sequence[Label], rubric: Rubric) -> None:
    """Refuse labels that do not fit the rubric or each other, with every mistake in one message.

    Raises:
        RatchetError: a category or rubric is unknown, or an item is in two splits.
    """
    mistakes: list[str] = []
    splits: dict[str, LabelSplit] = {}
    for label in labels:
        if label.rubric != rubric.name or label.category not in rubric.categories:
            mistakes.append(f"{label.item_id!r}: {label.category!r} by {label.rubric!r} is no category of it")
        if splits.setdefault(label.item_id, label.split) != label.split:
            mistakes.append(f"{label.item_id!r} is in the splits {splits[label.item_id]} and {label.split}")
    if mistakes:
        more = f" (and {len(mistakes) - 3} more)" if len(mistakes) > 3 else ""
        raise RatchetError(
            f"labels for {rubric.name!r}",
            seen="; ".join(dict.fromkeys(mistakes[:3])) + more,
            rule=f"categories are {list(rubric.categories)}, and label splits never share an item",
            remedy="correct the labels; none of them was added",
        )


def latest(labels: Iterable[Label]) -> list[Label]:
    """Keep each rater's last word on each item, in order of arrival."""
    last = {(label.item_id, label.rater): label for label in labels}
    return list(last.values())


COLUMNS = ("item_id", "rubric", "rubric_version", "category", "rater", "at", "split", "simulated", "reason")


def to_csv(labels: Iterable[Label]) -> str:
    """Write labels as CSV with a heading."""
    sink = io.StringIO()
    writer = csv.DictWriter(sink, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(label.model_dump(mode="json") for label in labels)
    return sink.getvalue()


def from_csv(text: str, *, rubric: Rubric, at: datetime) -> list[Label]:
    """Read labels from CSV; rows without a category are open and are passed over.

    Args:
        text: with a heading; `rubric`, `rubric_version`, `at`, `split`, `simulated` and `reason` may be missing.
        rubric: fills in its name and version.
        at: fills in the time.

    Raises:
        RatchetError: naming the first row that is no label.
    """
    found = []
    for number, row in enumerate(csv.DictReader(io.StringIO(text)), start=2):
        filled = {key: value for key, value in row.items() if key in COLUMNS and value}
        if not filled.get("category"):
            continue
        defaults = {
            "rubric": rubric.name,
            "rubric_version": rubric.version,
            "at": at.astimezone(UTC).isoformat(),
            "split": "calibration",
        }
        try:
            found.append(Label.model_validate_json(json.dumps(defaults | filled)))
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            raise RatchetError(
                f"labels, line {number}",
                seen=".".join(map(str, first["loc"])),
                rule=first["msg"],
                remedy=f"use the columns {', '.join(COLUMNS)}; none of the labels was added",
            ) from None
    return found
