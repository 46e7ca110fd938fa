"""Comparing documents with the protected tasks of a lock, layer by layer, through indexes over these tasks.

A comparer is built once per process from the lock and its validation and held-out tasks. What it finds in some
documents is a `Counts`, and counts of consecutive documents add up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ratchet.contracts.canonical import digest
from ratchet.contracts.environment import Task
from ratchet.splits.evidence import Document, Finding, LayerName, LayerReport, SplitLock, SplitName
from ratchet.splits.excerpts import around_grams, around_phrase, shortened
from ratchet.splits.features import CONTAINMENT, JACCARD, Common, Features, near, of_document, of_task
from ratchet.splits.identifiers import Mentions
from ratchet.splits.text import Index

KEPT_FINDINGS = 100
RULES: dict[LayerName, str] = {
    "identifiers": "no repo, issue, commit, URL or task id of a protected task, mentions in text included",
    "exact": "no prompt, patch or source that is equal but for case, whitespace and Unicode form",
    "near": f"word 5-grams: Jaccard below {JACCARD} and less than {CONTAINMENT:.0%} of the protected prompt contained",
    "ast": "no function that is equal but for names, constants to fold, docstrings and annotations",
}


class _Match(NamedTuple):
    """Something shared: which protected task, by which rule, and both sides around it."""

    layer: LayerName
    number: int
    rule: str
    task_text: str
    document_text: str


class Comparer:
    """Compares documents, and tasks of other splits, with the protected tasks of a lock."""

    def __init__(self, lock: SplitLock, known: Mapping[str, Task]) -> None:
        """Index the validation and held-out tasks.

        Args:
            lock: the lock in force.
            known: its tasks by id; those of train are needed for `splits` alone.
        """
        self._lock, self._known = lock, known
        self._common, self._aliases = Common(lock.boilerplate), dict(lock.aliases)
        self._heldout, self._validation = self._features("heldout"), self._features("validation")
        order: tuple[SplitName, SplitName] = ("heldout", "validation")
        self.protected: list[SplitName] = [name for name in order for _ in lock.split(name)]
        tasks = [known[task_id] for name in order for task_id, _ in lock.split(name)]
        self._against = _Protected(tasks, self._heldout + self._validation, self._common)

    def documents(self, documents: Iterable[Document]) -> Counts:
        """Compare documents with all protected tasks."""
        counts = Counts()
        for document in documents:
            counts.digests.append(document.digest)
            own = of_document(document, self._common)
            counts.add(document, own, self._against, self.protected, len(self.protected))
        return counts

    def splits(self) -> Counts:
        """Compare the tasks of train with all protected tasks, those of validation with held-out ones."""
        counts = Counts()
        compared: tuple[tuple[SplitName, list[Features], int], ...] = (
            ("train", self._features("train"), len(self.protected)),
            ("validation", self._validation, len(self._heldout)),
        )
        for name, features, limit in compared:
            for (task_id, _), own in zip(self._lock.split(name), features, strict=True):
                text = self._known[task_id].prompt
                document = Document(name=task_id, source=f"split {name}", text=text, role="task")
                counts.add(document, own, self._against, self.protected, limit)
        return counts

    def _features(self, name: SplitName) -> list[Features]:
        keys = self._lock.rule.group_by
        return [
            of_task(self._known[task_id], keys=keys, aliases=self._aliases, common=self._common)
            for task_id, _ in self._lock.split(name)
        ]


class _Protected:
    """Indexes over the tasks that training must not know, held-out first."""

    def __init__(self, tasks: Sequence[Task], features: Sequence[Features], common: Common) -> None:
        self.tasks, self.features, self.common = tasks, features, common
        self.names = Mentions([one.names for one in features], common.phrases, common.keys)
        self.shingles = Index([one.shingles for one in features])
        self.long_grams = Index([one.long_grams for one in features])
        self.texts: dict[str, list[int]] = {}
        self.functions: dict[str, list[int]] = {}
        for number, one in enumerate(features):
            for key in one.texts:
                self.texts.setdefault(key, []).append(number)
            for key in one.functions:
                self.functions.setdefault(key, []).append(number)

    def identifiers(self, document: Document, own: Features) -> list[_Match]:
        found = [
            _Match("identifiers", number, f"the identifier {' '.join(key)!r} is the same", document.name, document.name)
            for key in own.names.keys
            for number in self.names.owners(key)
        ]
        for text, hashed in own.hashed:
            for phrase in self.names.found(text, hashed):
                shown = around_phrase(text, phrase)
                for number in self.names.owners(phrase):
                    task = self.tasks[number]
                    name = f"{task.task_id} (repo {task.repo}, issue {task.issue_id})"
                    found.append(_Match("identifiers", number, f"the text mentions {' '.join(phrase)!r}", name, shown))
        return found

    def exact(self, own: Features) -> list[_Match]:
        return [
            _Match("exact", number, "the texts are equal after normalisation", *map(shortened, (mine, text)))
            for key, text in own.texts.items()
            for number in self.texts.get(key, ())
            if (mine := self.features[number].texts[key]) is not None
        ]

    def near(self, own: Features, limit: int) -> tuple[list[_Match], int]:
        """The pairs that share too much, and the number of those that only share a 13-gram."""
        numbers, shared = self.shingles.shared(own.shingles)
        hit = near(shared, self.shingles.sizes[numbers]) & (numbers < limit)
        longs = dict(zip(*(part.tolist() for part in self.long_grams.shared(own.long_grams)), strict=True))
        found = []
        for number, common in zip(numbers[hit].tolist(), shared[hit].tolist(), strict=True):
            theirs = self.features[number]
            size = len(theirs.shingles)
            rule = (
                f"Jaccard {common / (size + len(own.shingles) - common):.2f}, {common / size:.0%} of the prompt's "
                f"{size} word 5-grams contained, {longs.pop(number, 0)} shared 13-grams"
            )
            found.append(_Match("near", number, rule, *around_grams(theirs, own)))
        return found, sum(number < limit for number in longs)

    def ast(self, own: Features) -> list[_Match]:
        return [
            _Match(
                "ast",
                number,
                f"the functions {theirs.name!r} and {mine.name!r} have the same canonical syntax tree",
                shortened(theirs.source),
                shortened(mine.source),
            )
            for key, mine in own.functions.items()
            for number in self.functions.get(key, ())
            if (theirs := self.features[number].functions[key]) is not None
        ]


class Counts:
    """Findings and what was compared, over all documents."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.digests: list[str] = []
        self._found: Counter[LayerName] = Counter()
        self._compared: Counter[LayerName] = Counter()
        self._unread = 0
        self._signals = 0

    def add(
        self, document: Document, own: Features, protected: _Protected, splits: Sequence[SplitName], limit: int
    ) -> None:
        """Compare one document with the first `limit` protected tasks."""
        near_matches, signals = protected.near(own, limit)
        matches = [*protected.identifiers(document, own), *protected.exact(own), *near_matches, *protected.ast(own)]
        self._signals += signals
        self._unread += own.unread
        self._compared["identifiers"] += len(own.names.keys) + len(own.hashed)
        self._compared["exact"] += len(own.texts)
        self._compared["near"] += 1
        self._compared["ast"] += len(own.functions)
        known: set[tuple[LayerName, int]] = set()
        for match in sorted(matches, key=lambda one: (one.layer, one.number, one.rule)):
            # One finding per layer, task and document: the first rule that was broken stands for all.
            if match.number >= limit or (match.layer, match.number) in known:
                continue
            known.add((match.layer, match.number))
            self._found[match.layer] += 1
            if self._found[match.layer] <= KEPT_FINDINGS:
                self.findings.append(_finding(document, match, protected.tasks[match.number], splits[match.number]))

    def merge(self, later: Counts) -> None:
        """Add what was found in the documents after these."""
        kept = Counter(one.layer for one in self.findings)
        for one in later.findings:
            kept[one.layer] += 1
            if kept[one.layer] <= KEPT_FINDINGS:
                self.findings.append(one)
        self.digests += later.digests
        self._found += later._found
        self._compared += later._compared
        self._unread += later._unread
        self._signals += later._signals

    def report(self, layer: LayerName) -> LayerReport:
        """What one layer did."""
        return LayerReport(
            layer=layer,
            rule=RULES[layer],
            compared=self._compared[layer],
            unread=self._unread if layer == "ast" else 0,
            signals=self._signals if layer == "near" else 0,
            findings=self._found[layer],
        )


def _finding(document: Document, match: _Match, task: Task, split: SplitName) -> Finding:
    identity = [match.layer, match.rule, task.task_id, task.digest, document.digest]
    return Finding(
        finding_id=digest(identity)[:16],
        layer=match.layer,
        rule=match.rule,
        task_id=task.task_id,
        split=split,
        document=document.name,
        source=document.source,
        task_text=match.task_text,
        document_text=match.document_text,
    )
