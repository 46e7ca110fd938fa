"""The spool: every live outcome on this disk first, then in the store, once, in the order in which it came.

An outcome is on disk before the task is answered. A flush takes what the store does not have, notes the number of the
part that it is about to write, and creates it; after a crash or while the store is down the same part is tried again
under the same number, and another writer's part there moves it on. So none is lost and none is written twice.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

from ratchet.contracts.canonical import canonical_json
from ratchet.release.live import LiveOutcome, newest_part, part_bytes, part_name
from ratchet.store import Store

BATCH = 500
"""Outcomes of one part at most."""


class Spool:
    """The outcomes of one line that this server saw, in `<home>/serving/<tenant>.<experiment>/outcomes.db`."""

    def __init__(self, home: Path, store: Store, tenant: str, experiment: str) -> None:
        """Open the spool; what an earlier server left in it is flushed by this one."""
        self.store, self.tenant, self.experiment = store, tenant, experiment
        folder = home / "serving" / f"{tenant}.{experiment}"
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._flushing = threading.Lock()
        self._db = sqlite3.connect(folder / "outcomes.db", timeout=60.0, isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS outcomes (id INTEGER PRIMARY KEY, key TEXT UNIQUE NOT NULL, "
            "body TEXT NOT NULL, part INTEGER, kept INTEGER NOT NULL DEFAULT 0)"
        )

    def add(self, outcome: LiveOutcome) -> bool:
        """Keep an outcome on disk; returns False where the task has one of this version already, which then stays."""
        with self._lock:
            done = self._db.execute(
                "INSERT OR IGNORE INTO outcomes (key, body) VALUES (?, ?)", (outcome.key, canonical_json(outcome))
            )
            return done.rowcount == 1

    def find(self, key: str) -> LiveOutcome | None:
        """The outcome of a task under a version (`LiveOutcome.key`), as it was recorded."""
        with self._lock:
            row = self._db.execute("SELECT body FROM outcomes WHERE key = ?", (key,)).fetchone()
        return LiveOutcome.model_validate_json(row[0]) if row else None

    @property
    def backlog(self) -> int:
        """Outcomes that the store does not have yet."""
        with self._lock:
            found: int = self._db.execute("SELECT count(*) FROM outcomes WHERE kept = 0").fetchone()[0]
            return found

    def flush(self) -> int:
        """Bring what is waiting into the store; returns how many outcomes it has now that it had not.

        Raises what the store raises while it is down; nothing is lost, and the next flush goes on.
        """
        with self._flushing:
            return sum(self._flush_parts())

    def _flush_parts(self) -> Iterator[int]:
        while rows := self._next():
            data = part_bytes([LiveOutcome.model_validate_json(body) for _, body, _ in rows])
            number = rows[0][2] or newest_part(self.store, self.tenant, self.experiment) + 1
            while True:
                self._mark("part = ?", rows, number)
                name = part_name(self.tenant, self.experiment, number)
                if self.store.create(name, data) or self.store.read(name) == data:
                    break
                number += 1
            self._mark("kept = ?", rows, 1)
            yield len(rows)

    def _next(self) -> list[tuple[int, str, int | None]]:
        """The rows of the part that was begun, else of a new one."""
        with self._lock:
            begun = self._db.execute(
                "SELECT id, body, part FROM outcomes WHERE kept = 0 AND part IS NOT NULL ORDER BY part, id"
            ).fetchall()
            if begun:
                return [row for row in begun if row[2] == begun[0][2]]
            return self._db.execute(
                "SELECT id, body, part FROM outcomes WHERE kept = 0 ORDER BY id LIMIT ?", (BATCH,)
            ).fetchall()

    def _mark(self, what: str, rows: list[tuple[int, str, int | None]], value: int) -> None:
        with self._lock, self._transaction():
            self._db.executemany(f"UPDATE outcomes SET {what} WHERE id = ?", [(value, row[0]) for row in rows])

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()
