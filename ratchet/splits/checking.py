"""Checking: what training could read against the validation and held-out tasks, layer by layer.

Every document is read once and kept only where something is found. It is compared through indexes over the protected
tasks, so its cost is what it shares with them; nothing is sampled and no pair that shares anything is skipped. Tasks of
the splits are compared in the same way: train with validation and held-out, validation with held-out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ratchet.contracts.canonical import digest
from ratchet.contracts.environment import Task
from ratchet.splits.evidence import (
    ContaminationCertificate,
    Document,
    Finding,
    LayerName,
    LayerReport,
    SplitLock,
    SplitName,
)
from ratchet.splits.excerpts import around_grams, around_phrase, shortened
from ratchet.splits.features import CONTAINMENT, JACCARD, Common, Features, near, of_document, of_task
from ratchet.splits.identifiers import Mentions
from ratchet.splits.locking import verify
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


def corpus_digest(documents: Iterable[Document]) -> str:
    """Digest of a corpus: of the sorted digests of its documents, so that their order does not matter."""
    return digest(sorted(document.digest for document in documents))


def check(lock: SplitLock, tasks: Iterable[Task], corpus: Iterable[Document]) -> ContaminationCertificate:
    """Compare training's documents and tasks with the protected tasks.

    Args:
        lock: the lock in force.
        tasks: every task of the environment; they are verified against the lock first.
        corpus: everything that training may read besides the tasks: trajectories, the starter's corpus. Read once.

    Returns:
        The certificate; `passed` says whether nothing is shared.

    Raises:
        SplitError: the tasks are not those of the lock.
    """
    known = verify(lock, tasks)
    common, aliases = Common(lock.boilerplate), dict(lock.aliases)

    def features(names: Sequence[str]) -> list[Features]:
        return [of_task(known[name], keys=lock.rule.group_by, aliases=aliases, common=common) for name in names]

    ids = {name: [task_id for task_id, _ in lock.split(name)] for name in ("heldout", "validation", "train")}
    heldout, validation, train = (features(ids[name]) for name in ("heldout", "validation", "train"))
    order: tuple[SplitName, SplitName] = ("heldout", "validation")
    splits = [name for name in order for _ in lock.split(name)]
    protected = _Protected([known[one] for one in ids["heldout"] + ids["validation"]], heldout + validation, common)
    counts = _Counts()
    for name, own, limit in (
        *((task_id, one, len(splits)) for task_id, one in zip(ids["train"], train, strict=True)),
        *((task_id, one, len(heldout)) for task_id, one in zip(ids["validation"], validation, strict=True)),
    ):
        split = "train" if limit == len(splits) else "validation"
        document = Document(name=name, source=f"split {split}", text=known[name].prompt, role="task")
        counts.add(document, own, protected, splits, limit)
    seen: list[str] = []
    for document in corpus:
        seen.append(document.digest)
        counts.add(document, of_document(document, common), protected, splits, len(splits))
    return ContaminationCertificate.issue(
        lock_digest=lock.digest,
        corpus_digest=digest(sorted(seen)),
        documents=len(seen),
        protected=len(splits),
        layers=tuple(counts.report(layer) for layer in RULES),
        findings=tuple(counts.findings),
    )


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
        hit = near(shared, self.shingles.sizes[numbers])
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


class _Counts:
    """Findings and what was compared, over all documents."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
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

    def report(self, layer: LayerName) -> LayerReport:
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
