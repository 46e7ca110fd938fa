"""Where the content of a grant can lie outside the trajectory store, and how each such place is emptied.

Kept, because they hold no content of logs: datasets and training records (digests and grant ids), split locks and tasks
(the environment's own), policies with their curves, evaluation rows, scorecards, audits, decisions, evidence and the
two ledgers. Weights are no content either, and nobody claims that they have unlearned: their policies are marked.

    landing files, marks of landed files     the logs as they came; their digests
    contamination certificates               quote what was found; those without a finding quote nothing and stay
    report.json, reports/*.html              made anew from scorecards, then with the rights as they are
    work/<experiment>/                       logs of training processes, intermediate state
    heldout/executions.db                    outputs of programs, among them those of the logs; only a memory
    cache/judgements.db, heldout/judgements.db
                                             what judges said about work in the logs, and why; only a memory
    logs/                                    what the servers of `ratchet ui` printed
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ratchet.contracts.canonical import digest_bytes
from ratchet.intake.keys import folder_of
from ratchet.loop.context import Run, reopen_run, runs
from ratchet.loop.learning import open_policy, policy_names
from ratchet.rights import reopen
from ratchet.splits import open_certificate
from ratchet.store import Store, open_store
from ratchet.store.heldout import PREFIX

OWN = ("landing file", "landing mark")
"""Kinds that are the grant's own; the others are made anew, or are shared with other grants."""
REFILLED = ("cache", "server log")
"""Kinds that other work may fill again at any time."""


class Scope(NamedTuple):
    """What an erasure is about: enough for every place to find what it holds of it."""

    home: Path
    tenant: str
    grant_id: str
    since: float
    """When the grant was first recorded, in seconds since 1970: nothing older can hold its data."""
    experiments: tuple[str, ...]
    """Experiments of the tenant in which a dataset holds records of the grant."""


class Item(NamedTuple):
    """One thing that an erasure removes."""

    kind: str
    name: str
    size: int
    """Bytes; of a database those of the whole file."""
    why: str
    digest: str | None = None
    """SHA-256 of its content, where that is known."""


def touched(home: Path, tenant: str, grant_id: str) -> tuple[str, ...]:
    """Experiments of a tenant in which a dataset holds records of a grant, trained on or not."""
    found = []
    for run_id in runs(home):
        with reopen_run(home, run_id) as run:
            names = run.store.names(run.name("datasets")) if run.manifest.tenant == tenant else []
            if any(grant_id in reopen(run.store.read(name), name).grant_ids for name in names):
                found.append(run_id)
    return tuple(found)


def listed(scope: Scope) -> Iterator[Item]:
    """Yield everything outside the trajectory store that holds, or can hold, content of the grant."""
    store = open_store(scope.home)
    for path in sorted(_landing(scope).rglob("*")):
        if path.is_file():
            yield _file(scope, path, "landing file", "a log as it came")
    for name in store.names(_marks(scope)):
        yield Item("landing mark", name, len(store.read(name)), "says that a log was taken in")
    for name in _certificates(scope, store):
        data = store.read(name)
        yield Item("contamination certificate", name, len(data), "quotes what was found", digest_bytes(data))
    for run_id in scope.experiments:
        name = f"experiments/{run_id}/report.json"
        if store.exists(name):
            data = store.read(name)
            yield Item("report", name, len(data), "made before the right ended; is made anew", digest_bytes(data))
        page = scope.home / "reports" / f"{run_id}.html"
        if page.exists():
            yield _file(scope, page, "report", "made before the right ended; is made anew")
        work = scope.home / "work" / run_id
        if work.exists():
            size = sum(path.stat().st_size for path in work.rglob("*") if path.is_file())
            yield Item("training work", _name(scope, work), size, "logs and intermediate state of training processes")
    for cache, held, why in _caches(scope):
        if cache.exists() and _rows(cache, held):
            yield Item("cache", _name(scope, cache), cache.stat().st_size, why)
    for path in sorted((scope.home / "logs").glob("*")):
        if path.is_file() and path.stat().st_size:
            yield _file(scope, path, "server log", "may quote what was shown")


def emptied(scope: Scope) -> None:
    """Remove everything that `listed` yields. May be repeated after a crash."""
    store = open_store(scope.home)
    for name in _certificates(scope, store):
        store.delete(name)
    for run_id in scope.experiments:
        store.delete(f"experiments/{run_id}/report.json")
        (scope.home / "reports" / f"{run_id}.html").unlink(missing_ok=True)
        shutil.rmtree(scope.home / "work" / run_id, ignore_errors=True)
    for cache, held, _ in _caches(scope):
        if cache.exists():
            _forget(cache, held)
    for path in (scope.home / "logs").glob("*"):
        # Not removed: a server may be writing to it, and would go on in a file that nobody finds.
        with path.open("r+b") as file:
            file.truncate(0)
    if _landing(scope).exists():
        shutil.rmtree(_landing(scope))
    store.delete_all(_marks(scope))


def vacuum(database: Path) -> None:
    """Rewrite a SQLite file so that no free page and no journal keeps a deleted row."""
    with contextlib.closing(sqlite3.connect(database, timeout=60.0, isolation_level=None)) as connection:
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _landing(scope: Scope) -> Path:
    """Landing folder of the grant: the one that bears its id, where that is the name of a folder at all."""
    base = (scope.home / "landing" / scope.tenant).resolve()
    folder = base / scope.grant_id
    return folder if folder.resolve().parent == base else base / folder_of(scope.grant_id)


def _marks(scope: Scope) -> str:
    return f"{scope.tenant}/landed/{_landing(scope).name}"


def _caches(scope: Scope) -> Iterator[tuple[Path, str, str]]:
    """File, table and content of every memory that a home's processes share."""
    yield scope.home / PREFIX / "executions.db", "executions", "may hold outputs of programs in the logs"
    for folder in ("cache", PREFIX):
        yield scope.home / folder / "judgements.db", "judgements", "may hold what a judge said about work in the logs"


def _certificates(scope: Scope, store: Store) -> Iterator[str]:
    """Certificates of the tenant that quote a finding, unless one rests on a dataset without the grant."""
    for run_id in runs(scope.home):
        with reopen_run(scope.home, run_id) as run:
            if run.manifest.tenant == scope.tenant:
                apart = _apart(run, scope.grant_id)
                for name in store.names(run.name("certificates")):
                    if name not in apart and open_certificate(store, name).findings:
                        yield name


def _apart(run: Run, grant_id: str) -> set[str]:
    """Certificates that a policy was trained under, without any record of the grant."""
    found = set()
    for name in policy_names(run):
        if run.store.exists(run.name("policies", name, "policy.json")):
            facts = open_policy(run, name).training
            place = run.name("datasets", f"{facts.get('dataset')}.json")
            if "dataset" in facts and grant_id not in reopen(run.store.read(place), place).grant_ids:
                found.add(facts["certificate"])
    return found


def _rows(cache: Path, held: str) -> int:
    with contextlib.closing(sqlite3.connect(cache, timeout=60.0)) as connection:
        found: int = connection.execute(f"SELECT count(*) FROM {held}").fetchone()[0]
        return found


def _forget(cache: Path, held: str) -> None:
    with contextlib.closing(sqlite3.connect(cache, timeout=60.0, isolation_level=None)) as connection:
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute(f"DELETE FROM {held}")
    vacuum(cache)


def _file(scope: Scope, path: Path, kind: str, why: str) -> Item:
    data = path.read_bytes()
    return Item(kind, _name(scope, path), len(data), why, digest_bytes(data))


def _name(scope: Scope, path: Path) -> str:
    return str(path.relative_to(scope.home))
