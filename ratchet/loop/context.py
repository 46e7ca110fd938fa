"""A run: one experiment (a manifest) under one home folder, with what its stages share.

Everything of a run is under `experiments/<name>-<manifest digest>/` in the home's store, but for what training must not
read: the catalogue of all tasks, scorecards and audits of held-out episodes are under `heldout/` before that name. What
tenants own (trajectories, rights) and the release ledger are shared by all runs of a home.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cached_property
from importlib.metadata import entry_points
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from ratchet.contracts.canonical import canonical_json, digest
from ratchet.contracts.environment import Environment, Task
from ratchet.contracts.manifest import Manifest
from ratchet.errors import HeldoutError, IntegrityError, ManifestError
from ratchet.loop.apart import OPEN, kept_apart
from ratchet.rights import Ledger, record_grants
from ratchet.sandbox import Limits, MemoSandbox, Sandbox, ServedSandbox, open_sandbox
from ratchet.splits import SplitLock, open_current_lock, select, verify
from ratchet.splits.evidence import SPLITS, SplitName
from ratchet.store import open_store
from ratchet.store.heldout import PREFIX

SANDBOX_LIMITS = Limits(cpu_s=0.3, wall_s=10.0)
HELDOUT = ("tasks.jsonl", "scorecards", "policy_audits")
"""What of a run is held out: whole tasks, and what became of them."""


class Stage(NamedTuple):
    """What a stage did, for people: the evidence itself stays in the store."""

    name: str
    reused: bool
    summary: str
    figures: dict[str, float | int | str | None]
    rows: list[dict[str, Any]]
    digest: str


class Run:
    """An open experiment. A context manager: it closes the sandbox."""

    def __init__(self, home: Path, manifest: Manifest, training: Path | None = None) -> None:
        """Use `open_run` or `reopen_run` instead."""
        self.home, self.manifest = home, manifest
        self.training = training
        self.store = open_store(home, training=training is not None)
        self.rights = Ledger.at_home(home)

    def name(self, *parts: str) -> str:
        """Name of an object of this run in the store."""
        name = "/".join(("experiments", self.manifest.run_id, *parts))
        return f"{PREFIX}/{name}" if parts and parts[0].split("/")[0] in HELDOUT else name

    @staticmethod
    def now() -> datetime:
        """The one clock: now, in UTC."""
        return datetime.now(UTC)

    @cached_property
    def sandbox(self) -> MemoSandbox:
        """The sandbox, opened at first use; repeated executions are remembered, by all processes of the home.

        For training it is that of the process which started this one, and the memory is there.
        """
        if self.training is not None:
            return MemoSandbox(ServedSandbox(self.training))
        return MemoSandbox(open_sandbox(limits=SANDBOX_LIMITS), file=self.home / PREFIX / "executions.db")

    @cached_property
    def environment(self) -> Environment:
        """The experiment's environment, by entry point; for training one that knows no held-out task."""
        found = self.environment_on(self.sandbox)
        return found if self.training is None else kept_apart(found, self.lock)

    def environment_on(self, sandbox: Sandbox) -> Environment:
        """The experiment's environment on another sandbox, e.g. one that remembers nothing.

        Raises:
            ManifestError: no installed package registers it.
        """
        section = self.manifest.environment
        found = {point.name: point for point in entry_points(group="ratchet.environments")}
        if section.name not in found:
            raise ManifestError(
                "environment.name",
                seen=section.name,
                rule=f"it must be one of {sorted(found)}",
                remedy="correct the name",
            )
        environment: Environment = found[section.name].load()(section, sandbox, seed=self.manifest.seed)
        return environment

    def tasks(self) -> tuple[Task, ...]:
        """Every task of the catalogue, as stored. Raises HeldoutError where the run was opened for training."""
        return self._read("tasks.jsonl")

    def keep_open_tasks(self) -> None:
        """Store what training may know of the catalogue, training and validation tasks, once per lock."""
        tasks = [task for split in OPEN for task in select(self.lock, self._locked[1], split)]
        lines = "".join(canonical_json(task) + "\n" for task in tasks)
        self.store.create_same(self.name("open_tasks", f"{self.lock.digest}.jsonl"), lines.encode())

    def _read(self, name: str) -> tuple[Task, ...]:
        lines = self.store.read(self.name(name)).decode().splitlines()
        return tuple(Task.model_validate_json(line) for line in lines)

    @cached_property
    def _locked(self) -> tuple[SplitLock, tuple[Task, ...]]:
        lock = open_current_lock(self.store, self.name("splits"))
        tasks = self.tasks() if self.training is None else self._read(f"open_tasks/{lock.digest}.jsonl")
        verify(lock, tasks, self._among)
        return lock, tasks

    @property
    def _among(self) -> tuple[SplitName, ...]:
        return SPLITS if self.training is None else OPEN

    @property
    def lock(self) -> SplitLock:
        """The split lock, verified against the tasks as they are stored now."""
        return self._locked[0]

    def training_tasks(self) -> tuple[Task, ...]:
        """Tasks to train on."""
        return select(self.lock, self._locked[1], "train", self._among)

    def validation_tasks(self) -> tuple[Task, ...]:
        """Tasks to choose checkpoints on."""
        return select(self.lock, self._locked[1], "validation", self._among)

    def heldout_tasks(self) -> tuple[Task, ...]:
        """Tasks to decide on. Only the evaluation calls this, and has logged that it does.

        Raises:
            HeldoutError: the run was opened for training.
        """
        if self.training is not None:
            raise HeldoutError(
                f"held-out tasks of {self.manifest.run_id}",
                rule="a run that was opened for training has none",
                remedy="train on training_tasks() and choose on validation_tasks()",
            )
        return select(self.lock, self._locked[1], "heldout")

    def once(self, name: str, make: Callable[[], bytes]) -> tuple[bytes, bool]:
        """Return the object `name` of this run, made by `make` where it is missing, and whether it was there."""
        full = self.name(name)
        if self.store.exists(full):
            return self.store.read(full), True
        self.store.create(full, make())
        return self.store.read(full), False

    def once_json(self, name: str, make: Callable[[], Any]) -> tuple[Any, bool]:
        """Like `once`, for plain JSON."""
        data, reused = self.once(name, lambda: canonical_json(make()).encode())
        return json.loads(data), reused

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if "sandbox" in self.__dict__:
            self.sandbox.close()
            del self.__dict__["sandbox"]
            self.__dict__.pop("environment", None)


def open_run(home: Path, manifest: Manifest) -> Run:
    """Open an experiment under a home folder: keep its manifest, and record its grants where they are new.

    A grant that the ledger already knows is left as it stands, so a withdrawal stays.
    """
    run = Run(home.resolve(), manifest)
    run.store.create_same(run.name("manifest.json"), canonical_json(manifest).encode())
    record_grants(run.rights, manifest, run.now())
    return run


def reopen_run(home: Path, run_id: str, training: Path | None = None) -> Run:
    """Open an experiment by its id, as a partition or a child process knows it.

    Args:
        home: the home folder.
        run_id: id of the experiment.
        training: for training code: socket of the sandbox that executes for it. Held-out data is then refused.

    Raises:
        IntegrityError: the stored manifest is not the one that the id names.
    """
    store = open_store(home)
    name = f"experiments/{run_id}/manifest.json"
    manifest = Manifest.model_validate_json(store.read(name))
    if manifest.run_id != run_id:
        raise IntegrityError(
            name,
            seen=manifest.run_id,
            rule=f"its digest must give {run_id}",
            remedy="restore the manifest; where another release of Ratchet opened the experiment, whose manifest has "
            "other fields, go on with that release, or in a new home",
        )
    return Run(home.resolve(), manifest, training)


def runs(home: Path) -> list[str]:
    """Ids of the experiments of a home, in the order they were opened."""
    store = open_store(home)
    opened = ((store.written(f"experiments/{name}/manifest.json"), name) for name in store.children("experiments"))
    return [name for _, name in sorted((at, name) for at, name in opened if at is not None)]


def stage(
    name: str, reused: bool, summary: str, content: Any, rows: list[dict[str, Any]] | None = None, **figures: Any
) -> Stage:
    """Build a `Stage`; `content` is what its digest is taken of, unless it is a digest already."""
    return Stage(name, reused, summary, figures, rows or [], content if isinstance(content, str) else digest(content))
