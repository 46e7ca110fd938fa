"""Ingest: whole folders, files and prefixes of logs into the canonical trajectory store, under one grant.

The grant is asked first; without a right nothing is read. Every record is then stored whole, with its anomalies, or
quarantined whole with reason, source, offset and digest. A record that holds a secret is quarantined without its
content, and the original of a source in which one was found is not stored. Ingesting the same again adds nothing.

Much input is judged by worker processes and published in several batches, so that an ingest that was interrupted has
kept what it published. The rerun reads everything again and adds what is missing. What comes in does not depend on the
number of workers.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Literal

from ratchet import progress as reporting
from ratchet.errors import IntakeError
from ratchet.intake import published
from ratchet.intake.batch import BatchWriter
from ratchet.intake.canaries import remembered
from ratchet.intake.crew import Crew, cores
from ratchet.intake.cutting import Cutter
from ratchet.intake.formats import named
from ratchet.intake.handover import FiledPart, Part
from ratchet.intake.judging import Outcome, Rules, Tally
from ratchet.intake.keys import Keys
from ratchet.intake.report import IntakeReport
from ratchet.intake.scratch import Scratch
from ratchet.intake.secrets import check_canaries
from ratchet.intake.sources import Entry, listed
from ratchet.rights import Ledger, Right
from ratchet.store import Store

BATCH_BYTES = 512 << 20
"""How much input is read before what came of it is published."""
SMALL_BYTES = 16 << 20
"""Input up to which this process does the work itself."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def ingest(
    home_store: Store,
    ledger: Ledger,
    sources: Sequence[Path | str],
    *,
    tenant: str,
    grant_id: str,
    at: datetime,
    format: str = "auto",
    progress: Callable[[int], object] | None = None,
    canaries: Sequence[str] = (),
    workers: int | None = None,
    personal: Literal["keep", "quarantine"] = "keep",
    personal_engine: Literal["shapes", "presidio"] = "shapes",
) -> IntakeReport:
    """Read logs into the store.

    Args:
        home_store: the store.
        ledger: the rights ledger; keys and remembered canaries lie in the same home.
        sources: files, folders that are walked in sorted order, and URLs of what fsspec reaches; links and names that
            begin with a dot are passed over.
        tenant: whose data it is.
        grant_id: the grant it comes in under.
        at: now, with a zone.
        format: `auto`, or the name of a registered format.
        progress: called with the number of records since the last call.
        canaries: strings that must never come in, beside those that are remembered for the tenant.
        workers: processes that judge; None for one per core, or none where there is little to do.
        personal: whether records with personal data are kept and flagged, or set aside.
        personal_engine: `presidio` to look for names and places too, where that is installed.

    Raises:
        RightsError: the grant is missing, expired, withdrawn or another tenant's.
        IntakeError: a source does not exist or cannot be read, the format is unknown, or a worker died; of the batch at
            hand nothing was stored.
        IntegrityError: ledger or store were changed by another hand.
    """
    started = time.monotonic()
    published.pointer(tenant)
    if format != "auto":
        named(format)
    home = ledger.path.parent.parent
    _right(ledger, grant_id, tenant, at)
    rules = Rules(
        tenant=tenant,
        grant_id=grant_id,
        canaries=tuple(sorted({*canaries, *remembered(home, tenant)})),
        quarantine_personal=personal == "quarantine",
        personal_engine=personal_engine,
    )
    check_canaries(rules.canaries)
    entries = [entry for source in sources for entry in listed(source)]
    total = sum(entry.size for entry in entries)
    crew_size = workers if workers is not None else cores() if total > SMALL_BYTES else 1
    if crew_size < 1:
        raise IntakeError("workers", seen=crew_size, rule="there must be at least one", remedy="leave it out")

    def right() -> Right:
        # Reading may take long: a withdrawal or the end of the right meanwhile counts.
        return _right(ledger, grant_id, tenant, at + timedelta(seconds=time.monotonic() - started))

    run = _Run(home_store, Keys(home), rules, at, right, progress)
    with ExitStack() as stack:
        run.tick = stack.enter_context(reporting.task(f"intake of {tenant}, kB", total >> 10))
        stack.enter_context(run)
        scratch = stack.enter_context(closing(Scratch(home, tenant, grant_id)))
        run.beside = (stack.enter_context(ThreadPoolExecutor(1)), scratch.folder)
        crew = stack.enter_context(Crew(rules, crew_size, scratch.folder))
        names = crew.named([entry.name for entry in entries])
        for entry, name in zip(entries, names, strict=True):
            run.take(entry, format, name, crew)
        crew.finish()
        run.publish()
    return IntakeReport(
        tenant=tenant,
        grant_id=grant_id,
        sources=len(entries),
        bytes=run.bytes,
        read=run.tally.read,
        stored=run.stored,
        duplicates=run.tally.read - run.tally.reasons.total() - run.stored,
        quarantined=run.tally.reasons.total(),
        reasons=run.tally.reasons,
        anomalies=run.tally.anomalies + Counter({"secret_in_name": run.withheld} if run.withheld else {}),
        dropped=run.tally.dropped,
        secrets_found=run.tally.secrets,
        personal_found=run.tally.flagged,
        personal=run.tally.personal,
        formats=run.formats,
        batches=tuple(run.batches),
        seconds=time.monotonic() - started,
        workers=crew_size,
    )


@dataclass
class _Open:
    """A source of which pieces are under way."""

    path: Path
    cutter: Cutter
    held: ExitStack
    """What keeps its local copy."""
    under_way: int = 0
    ended: bool = False
    clean: bool = True
    stored: int = 0
    sealed: Future[Path] | None = None
    """Its sealed form, in the making."""


@dataclass
class _Run:
    """What one ingest has come to so far. Its writer's scratch goes when the context ends."""

    store: Store
    keys: Keys
    rules: Rules
    at: datetime
    right: Callable[[], Right]
    progress: Callable[[int], object] | None
    tick: reporting.Tick | None = None
    beside: tuple[Executor, Path] | None = None
    """A thread that seals originals, and the folder where it puts them."""
    tally: Tally = field(default_factory=Tally)
    formats: Counter[str] = field(default_factory=Counter)
    batches: list[str] = field(default_factory=list)
    stored: int = 0
    bytes: int = 0
    withheld: int = 0
    _writer: BatchWriter | None = None
    _sources: list[published.Source] = field(default_factory=list)
    _since: int = 0
    _open: list[_Open] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=count)

    def take(self, entry: Entry, format: str, name: str, crew: Crew) -> None:
        """Have a source judged, piece by piece."""
        self.withheld += name != entry.name
        held = ExitStack()
        path = held.enter_context(entry.local())
        source = _Open(path, Cutter(path, name, format), held)
        self._open.append(source)
        for piece in source.cutter.pieces():
            source.under_way += 1
            crew.submit(piece, partial(self._done, source, piece.length))
        source.ended = True
        self._seal(source)
        self._finish(source)

    def publish(self) -> None:
        """Publish what was kept since the last batch."""
        if self._writer is None:
            return
        self.right()
        batch = self._writer.publish(self.at, self._sources)
        self.stored += self._writer.stored
        if batch:
            self.batches.append(batch)
        self._writer.close()
        self._writer, self._sources, self._since = None, [], 0

    def __enter__(self) -> _Run:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()
        for source in self._open:
            source.held.close()

    def _writing(self) -> BatchWriter:
        if self._writer is None:
            self._writer = BatchWriter(self.store, self.keys, tenant=self.rules.tenant, grant_id=self.rules.grant_id)
        return self._writer

    def _done(self, source: _Open, size: int, outcome: Outcome) -> None:
        # Not after the piece before: a source that ended with it is published together with its last records.
        if self._since >= BATCH_BYTES:
            self.publish()
        until = self.right().retention_until
        for part in outcome.parts:
            source.stored += self._writing().add(_retained(part, until))
        source.clean = source.clean and outcome.clean
        source.under_way -= 1
        self.tally.add(outcome.tally)
        self._since += size
        if self.progress:
            self.progress(outcome.tally.read)
        if self.tick:
            self.tick(size >> 10, f"{self.tally.read:,} records")
        self._finish(source)

    def _seal(self, source: _Open) -> None:
        """Seal an original that will be kept, as it seems, while the last of its pieces are judged."""
        whole = source.cutter.whole
        if self.beside and source.under_way and source.clean and source.stored and whole.format:
            thread, folder = self.beside
            key = self.keys.get(self.rules.tenant, self.rules.grant_id)
            place = folder / f"{next(self._numbers)}.sealed"
            source.sealed = thread.submit(key.seal_file, source.path, whole.digest, place)

    def _finish(self, source: _Open) -> None:
        """Once all of a source was judged, keep its original where it may be kept."""
        if not source.ended or source.under_way:
            return
        whole = source.cutter.whole
        raw = None
        if source.clean and source.stored and whole.format:
            sealed = source.sealed.result() if source.sealed else None
            raw = self._writing().raw(source.path, whole.digest, sealed)
        self._writing()
        self._sources.append(published.Source(name=whole.name, digest=whole.digest, format=whole.format, raw=raw))
        self.formats[whole.format or "unrecognised"] += 1
        self.bytes += whole.size
        source.held.close()
        self._open.remove(source)


def _retained(part: Part | FiledPart, until: datetime | None) -> Part | FiledPart:
    """Return a part whose index says when the right to it ends."""
    import numpy as np
    import pyarrow as pa

    at = part.index.schema.get_field_index("retention_until")
    kind = part.index.schema.field(at)
    rows = len(part.index)
    column = pa.nulls(rows, kind.type)
    if until is not None:
        # From its bytes: given a list, pyarrow loads pandas first, to see whether it is one of its own.
        times = np.full(rows, (until - _EPOCH) // timedelta(microseconds=1), dtype=np.int64)
        column = pa.Array.from_buffers(kind.type, rows, [None, pa.py_buffer(times)])
    return replace(part, index=part.index.set_column(at, kind, column))


def _right(ledger: Ledger, grant_id: str, tenant: str, at: datetime) -> Right:
    """Return the grant's right; to be stored, data needs a live grant of its tenant, whatever its purposes."""
    ledger.refresh()
    right = ledger.effective(grant_id, at)
    right.require(purpose=None, tenant=tenant)
    return right
