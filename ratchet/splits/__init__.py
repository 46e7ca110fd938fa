"""Splits: which tasks a policy learns from, is chosen on and is judged by, and the proof that they share nothing.

`lock` makes the immutable split lock, `verify` and `select` hold tasks against it, `check` compares everything that
training reads with the locked tasks, and `ContaminationCertificate.require` is the door that every trainer passes.
"""

from ratchet.splits.certificates import (
    open_certificate,
    open_waivers,
    save_certificate,
    save_waiver,
    waive,
    waived,
)
from ratchet.splits.checking import check, corpus_digest
from ratchet.splits.documents import document_of
from ratchet.splits.evidence import (
    ContaminationCertificate,
    Document,
    Finding,
    LayerReport,
    SplitLock,
    SplitName,
    Waiver,
    Withdrawal,
)
from ratchet.splits.locking import lock, open_lock, save_lock, select, verify
from ratchet.splits.near_duplicates import NearDuplicates, near_duplicates
from ratchet.splits.superseding import open_current_lock, save_successor, supersede

__all__ = [
    "ContaminationCertificate",
    "Document",
    "Finding",
    "LayerReport",
    "NearDuplicates",
    "SplitLock",
    "SplitName",
    "Waiver",
    "Withdrawal",
    "check",
    "corpus_digest",
    "document_of",
    "lock",
    "near_duplicates",
    "open_certificate",
    "open_current_lock",
    "open_lock",
    "open_waivers",
    "save_certificate",
    "save_lock",
    "save_successor",
    "save_waiver",
    "select",
    "supersede",
    "verify",
    "waive",
    "waived",
]
