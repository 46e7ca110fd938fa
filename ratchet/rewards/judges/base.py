"""The judge itself, and how many items are judged: in batches, concurrently up to a limit, each content once.

A judge that raises, hangs beyond its own deadline or the caller's, or answers outside the rubric gives an invalid
judgement with the reason, never a category; of a batch that fails, every item is tried alone, unless it did not answer
at all. What was judged is remembered by the digest of judge and content; invalid judgements are not.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from pydantic import Field

from ratchet.contracts.canonical import digest
from ratchet.contracts.model import Contract, revalidated
from ratchet.contracts.score import Invalid, NotComputable, Quantity, Scored
from ratchet.deadline import Overdue, described, within
from ratchet.rewards.judges.rubric import Item, Rubric

CONCURRENCY = 8
CALL_S = 600.0
"""Seconds after which a call is left behind; a judge in order gives up on its own before."""
_FREE = {"calls": 0, "cost_usd": 0.0, "prompt_tokens": 0, "completion_tokens": 0}
"""What a remembered judgement costs."""


class Judgement(Contract):
    """What a judge said about one item. Exactly one of `category` and `invalid` is set."""

    category: str | None = Field(default=None, description="The category given.")
    reason: str = Field(default="", description="Why, in the judge's words.")
    invalid: str | None = Field(default=None, description="Why there is no category.")
    prompt_tokens: int = Field(default=0, ge=0, description="Tokens read.")
    completion_tokens: int = Field(default=0, ge=0, description="Tokens written.")
    cost_usd: Quantity = Field(default=0.0, description="What the calls cost.")
    calls: int = Field(default=1, ge=0, description="Calls made, retries included; 0 where it was remembered.")


class Judge(Protocol):
    """Grades items by one rubric. Safe to call from several threads."""

    rubric: Rubric
    batch: int
    """How many items one call takes."""

    @property
    def digest(self) -> str:
        """Identity: rubric, model, prompt and decoding. Another digest needs another calibration."""

    def judge(self, items: Sequence[Item]) -> list[Judgement]:
        """Grade at most `batch` items, in order. What it raises becomes invalid judgements; see `judge_all`."""


class Memory:
    """Judgements by digest of judge and content, in a SQLite file that several processes may share."""

    def __init__(self, path: Path) -> None:
        """Open or make the file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._connection = sqlite3.connect(path, timeout=60.0, check_same_thread=False, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA secure_delete = ON")
        self._connection.execute(
            "CREATE TABLE IF NOT EXISTS judgements (key TEXT PRIMARY KEY, judgement TEXT NOT NULL)"
        )
        self._lock = threading.Lock()

    def read(self, key: str) -> Judgement | None:
        """Return what is remembered under a key."""
        with self._lock:
            row = self._connection.execute("SELECT judgement FROM judgements WHERE key = ?", (key,)).fetchone()
        return Judgement.model_validate_json(row[0]) if row else None

    def write(self, key: str, judgement: Judgement) -> None:
        """Remember a judgement; the first one stays."""
        with self._lock:
            self._connection.execute(
                "INSERT OR IGNORE INTO judgements VALUES (?, ?)", (key, judgement.model_dump_json())
            )

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


def judge_all(
    judge: Judge,
    items: Sequence[Item],
    *,
    memory: Memory | None = None,
    concurrency: int = CONCURRENCY,
    timeout_s: float = CALL_S,
    progress: Callable[[], object] | None = None,
) -> list[Judgement]:
    """Judge items, in order; equal contents are judged once.

    Args:
        judge: the judge.
        items: what to grade.
        memory: what was judged before, by this or another process.
        concurrency: calls at one time.
        timeout_s: seconds after which a call is left behind.
        progress: called once for every distinct content, from several threads.
    """
    wanted = {item.content_digest: item for item in items}
    made: dict[str, Judgement] = {}
    for content in wanted if memory else ():
        known = memory.read(digest([judge.digest, content])) if memory else None
        if known is not None:
            made[content] = known.model_copy(update=_FREE)
            if progress:
                progress()
    open_ones = [content for content in wanted if content not in made]
    batches = [open_ones[at : at + judge.batch] for at in range(0, len(open_ones), judge.batch)]

    def one(batch: list[str]) -> list[Judgement]:
        found = _captured(judge, [wanted[content] for content in batch], timeout_s)
        for content, judgement in zip(batch, found, strict=True):
            if memory and judgement.invalid is None:
                memory.write(digest([judge.digest, content]), judgement)
            if progress:
                progress()
        return found

    with ThreadPoolExecutor(max(1, concurrency)) as pool:
        for batch, found in zip(batches, pool.map(one, batches), strict=True):
            made.update(zip(batch, found, strict=True))
    return [made[item.content_digest] for item in items]


def score_of(judgement: Judgement, rubric: Rubric) -> Scored | Invalid:
    """Turn a judgement into a score by the rubric."""
    if judgement.category is None:
        return Invalid(reason=f"judge {rubric.name}: {judgement.invalid}")
    return Scored(
        value=rubric.value(judgement.category),
        evidence={"rubric": rubric.name, "category": judgement.category, "reason": judgement.reason},
    )


def _captured(judge: Judge, items: Sequence[Item], timeout_s: float) -> list[Judgement]:
    try:
        found = within(timeout_s, lambda: judge.judge(items))
        if len(found) != len(items):
            raise ValueError(f"{len(found)} judgements for {len(items)} items")
        return [_inside(judge.rubric, revalidated(Judgement, judgement)) for judgement in found]
    except Exception as error:  # the one capture point: a failing judge is data, not a crash
        # One that does not answer would cost the deadline again for every item.
        if len(items) > 1 and not isinstance(error, Overdue):
            return [one for item in items for one in _captured(judge, [item], timeout_s)]
        unknown = NotComputable(reason="the call failed before its usage was known")
        return [Judgement(invalid=described(error), cost_usd=unknown) for _ in items]


def _inside(rubric: Rubric, judgement: Judgement) -> Judgement:
    if judgement.invalid is None and judgement.category not in rubric.categories:
        outside = f"it answered {str(judgement.category)[:40]!r}, which is no category of the rubric"
        return judgement.model_copy(update={"category": None, "invalid": outside})
    return judgement
