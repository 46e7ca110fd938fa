"""The evidence of this stage: the split lock and the contamination certificate, and what they consist of.

Both are made only here, carry the digests of their inputs and are verified when they are read back.
"""

from __future__ import annotations

from typing import Literal

from pydantic import AwareDatetime, Field

from ratchet.contracts.canonical import digest
from ratchet.contracts.evidence import Evidence
from ratchet.contracts.manifest import Splits
from ratchet.contracts.model import Contract
from ratchet.errors import ContaminationError

SplitName = Literal["train", "validation", "heldout"]
LayerName = Literal["identifiers", "exact", "near", "ast"]
SPLITS: tuple[SplitName, ...] = ("train", "validation", "heldout")
Entries = tuple[tuple[str, str], ...]


class Boilerplate(Contract):
    """What so many groups of tasks share that it says nothing about any of them; never compared."""

    shingles: tuple[str, ...] = Field(description="Word 5-grams, as 16 hex digits each, sorted.")
    digests: tuple[str, ...] = Field(description="Digests of texts and functions, sorted.")
    phrases: tuple[tuple[str, ...], ...] = Field(description="Phrases of identifiers not looked for in text, sorted.")
    keys: tuple[tuple[str, ...], ...] = Field(description="Identifiers of payloads that do not identify, sorted.")


class Withdrawal(Contract):
    """A task that may be used no more, and who says so."""

    task_id: str = Field(description="The task.")
    digest: str = Field(description="Its digest, as the lock that is superseded pinned it.")
    split: SplitName | None = Field(description="The split that lost it, or None for a task of the surplus.")
    by: str = Field(min_length=1, description="Who withdrew it.")
    reason: str = Field(min_length=1, description="Why.")


class SplitLock(Evidence, owner="ratchet.splits"):
    """The immutable assignment of tasks to train, validation and held-out."""

    manifest_digest: str = Field(description="Manifest that the lock was made for.")
    rule: Splits = Field(description="Sizes and keys that were asked for.")
    seed: int = Field(description="Seed of the assignment.")
    at: AwareDatetime = Field(description="When it was locked.")
    train: Entries = Field(description="(task id, task digest), sorted.")
    validation: Entries = Field(description="(task id, task digest), sorted.")
    heldout: Entries = Field(description="(task id, task digest), sorted.")
    left_out: Entries = Field(description="(task id, task digest) of the surplus, sorted.")
    root: str = Field(description="Digest of the three splits and the surplus.")
    groups: dict[str, int] = Field(description="Number of groups with a task in each split, and `unused`.")
    segments: dict[str, dict[str, int]] = Field(description="Tasks per segment, per split.")
    largest_group: int = Field(description="Tasks in the largest group.")
    aliases: tuple[tuple[str, str], ...] = Field(description="(other name of a repo, its name), sorted.")
    boilerplate: Boilerplate = Field(description="What is never compared, fixed here so that every check agrees.")
    version: int = Field(default=1, ge=1, description="1, and one more for every lock that it supersedes.")
    supersedes: str | None = Field(default=None, description="Digest of the lock before this one.")
    withdrawn: tuple[Withdrawal, ...] = Field(default=(), description="Tasks withdrawn so far; they count for nothing.")
    comparable: bool = Field(default=True, description="False where figures do not compare with those before.")

    def split(self, name: SplitName) -> Entries:
        """The (task id, task digest) of one split."""
        entries: Entries = getattr(self, name)
        return entries


class Document(Contract):
    """Something that training may read: one trajectory, one text of the starter's corpus."""

    name: str = Field(min_length=1, description="What a person finds it by.")
    source: str = Field(description="Dataset, file or split that it comes from.")
    text: str = Field(description="Everything a model could read in it.")
    code: tuple[str, ...] = Field(default=(), description="Its code, piece by piece, unescaped.")
    identifiers: tuple[str, ...] = Field(default=(), description="Repos, issues, tasks, commits, URLs it belongs to.")
    role: Literal["train", "starter", "task"] = Field(default="train", description="Where training would read it.")

    @property
    def digest(self) -> str:
        """SHA-256 of the whole document."""
        return digest(self)


class Finding(Contract):
    """Something that a protected task and a document share."""

    finding_id: str = Field(description="Identity: layer, rule, task and content of the document.")
    layer: LayerName = Field(description="Layer that found it.")
    rule: str = Field(description="The rule that was broken, with the figure.")
    task_id: str = Field(description="Validation or held-out task.")
    split: SplitName = Field(description="Split of that task.")
    document: str = Field(description="Name of the document, or id of the task in the other split.")
    source: str = Field(description="Source of the document.")
    task_text: str = Field(description="The task's side, shortened around what is shared.")
    document_text: str = Field(description="The document's side, shortened around what is shared.")


class LayerReport(Contract):
    """What one layer did."""

    layer: LayerName = Field(description="The layer.")
    rule: str = Field(description="Its rule in words.")
    compared: int = Field(description="Items of documents that were compared: names, texts, n-gram sets, functions.")
    unread: int = Field(
        default=0, description="Items that this layer could not read, such as code that does not parse."
    )
    signals: int = Field(default=0, description="Pairs that only share a 13-gram: shown, not a finding.")
    findings: int = Field(description="Findings of this layer, those beyond the kept ones included.")


class Waiver(Contract):
    """A person's decision that a finding is no leak."""

    finding_id: str = Field(description="The finding.")
    by: str = Field(min_length=1, description="Who decided.")
    reason: str = Field(min_length=1, description="Why it is no leak.")
    at: AwareDatetime = Field(description="When.")


class ContaminationCertificate(Evidence, owner="ratchet.splits"):
    """What training and the locked tasks share, layer by layer."""

    lock_digest: str = Field(description="Digest of the split lock.")
    corpus_digest: str = Field(description="Digest of all documents, see `corpus_digest`.")
    documents: int = Field(description="Documents that were checked, tasks not counted.")
    protected: int = Field(description="Validation and held-out tasks they were checked against.")
    layers: tuple[LayerReport, ...] = Field(description="One report per layer.")
    findings: tuple[Finding, ...] = Field(description="The first findings of every layer, with both texts.")
    waivers: tuple[Waiver, ...] = Field(default=(), description="Findings that a person has waived.")

    @property
    def open_findings(self) -> int:
        """Findings that nobody has waived, those beyond the kept ones included."""
        return sum(layer.findings for layer in self.layers) - len({waiver.finding_id for waiver in self.waivers})

    @property
    def passed(self) -> bool:
        """Whether nothing is shared that was not waived."""
        return self.open_findings == 0

    def require(self, lock_digest: str, corpus_digest: str) -> None:
        """Refuse to open training unless this certificate passed, for this lock and for this corpus.

        Args:
            lock_digest: digest of the lock in force.
            corpus_digest: `corpus_digest` of the documents that are about to be trained on.

        Raises:
            ContaminationError: the certificate belongs to another lock, or to another corpus, or did not pass; then the
                message names the first open finding and their number.
        """
        if self.lock_digest != lock_digest:
            raise ContaminationError(
                "contamination certificate",
                seen=self.lock_digest,
                rule=f"it must be for the split lock {lock_digest}",
                remedy="check the corpus against the lock in force",
            )
        if self.corpus_digest != corpus_digest:
            raise ContaminationError(
                "contamination certificate",
                seen=self.corpus_digest,
                rule=f"it must be for the corpus {corpus_digest}, which is about to be trained on",
                remedy="check the corpus as it is now",
            )
        if not self.passed:
            waived = {waiver.finding_id for waiver in self.waivers}
            first = next((one for one in self.findings if one.finding_id not in waived), None)
            where = (
                f"{first.layer} finding {first.finding_id}: {first.split} task {first.task_id!r} and "
                f"{first.document!r} of {first.source!r}, {first.rule}"
                if first
                else "all findings that the certificate keeps are waived, but there were more"
            )
            raise ContaminationError(
                "contamination certificate",
                seen=self.open_findings,
                rule=f"open findings must be 0; the first is: {where}",
                remedy="take the document out of training, or have a person waive the finding with a reason",
            )
