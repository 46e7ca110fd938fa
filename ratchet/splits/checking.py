"""Checking: what training could read against the validation and held-out tasks, layer by layer.

Every document is read once and kept only where something is found. It is compared through indexes over the protected
tasks, so its cost is what it shares with them; nothing is sampled and no pair that shares anything is skipped. Tasks of
the splits are compared in the same way: train with validation and held-out, validation with held-out. A large corpus is
streamed through a process per processor; the certificate is the same.
"""

from __future__ import annotations

import multiprocessing
import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import chain, islice

from ratchet.contracts.canonical import digest
from ratchet.contracts.environment import Task
from ratchet.errors import ContaminationError
from ratchet.splits.comparing import RULES, Comparer, Counts
from ratchet.splits.evidence import ContaminationCertificate, Document, SplitLock
from ratchet.splits.locking import verify

LARGE = 5_000
"""Documents above which processes are worth their start."""
_CHUNK = 250


def corpus_digest(documents: Iterable[Document]) -> str:
    """Digest of a corpus: of the sorted digests of its documents, so that their order does not matter."""
    return digest(sorted(document.digest for document in documents))


def check(
    lock: SplitLock, tasks: Iterable[Task], corpus: Iterable[Document], *, workers: int | None = None
) -> ContaminationCertificate:
    """Compare training's documents and tasks with the protected tasks.

    Args:
        lock: the lock in force.
        tasks: every task of the environment; they are verified against the lock first.
        corpus: everything that training may read besides the tasks: trajectories, the starter's corpus. Read once.
        workers: processes for a corpus of more than `LARGE` documents; as many as there are processors where it is
            left out.

    Returns:
        The certificate; `passed` says whether nothing is shared.

    Raises:
        SplitError: the tasks are not those of the lock.
        ContaminationError: a process died.
    """
    known = verify(lock, tasks)
    comparer = Comparer(lock, known)
    counts = comparer.splits()
    documents = iter(corpus)
    first = list(islice(documents, LARGE + 1))
    processes = workers or len(os.sched_getaffinity(0))
    if len(first) <= LARGE or processes == 1:
        counts.merge(comparer.documents(chain(first, documents)))
    else:
        protected = {name: known[name] for name, _ in (*lock.heldout, *lock.validation)}
        for part in _in_processes(lock, protected, chain(first, documents), processes):
            counts.merge(part)
    return ContaminationCertificate.issue(
        lock_digest=lock.digest,
        corpus_digest=digest(sorted(counts.digests)),
        documents=len(counts.digests),
        protected=len(comparer.protected),
        layers=tuple(counts.report(layer) for layer in RULES),
        findings=tuple(counts.findings),
    )


def _in_processes(
    lock: SplitLock, protected: dict[str, Task], documents: Iterable[Document], processes: int
) -> Iterator[Counts]:
    """The counts of consecutive parts, in order, a few parts under way at a time."""
    start = (lock.to_bytes(), protected)
    waiting: deque[Future[Counts]] = deque()
    # Spawned, not forked: the caller may hold threads and locks.
    context = multiprocessing.get_context("spawn")
    try:
        with ProcessPoolExecutor(processes, mp_context=context, initializer=_begin, initargs=start) as pool:
            for part in _parts(documents):
                waiting.append(pool.submit(_compare, part))
                if len(waiting) > 2 * processes:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
    except BrokenProcessPool:
        raise ContaminationError(
            "contamination check",
            rule="a process of it was killed, as happens where memory is short",
            remedy="run it again with more memory; nothing was certified",
        ) from None


def _parts(documents: Iterable[Document]) -> Iterator[list[Document]]:
    remaining = iter(documents)
    while part := list(islice(remaining, _CHUNK)):
        yield part


_comparer: Comparer


def _begin(lock: bytes, protected: dict[str, Task]) -> None:
    global _comparer
    _comparer = Comparer(SplitLock.reopen(lock, "the lock in force"), protected)


def _compare(documents: list[Document]) -> Counts:
    return _comparer.documents(documents)
