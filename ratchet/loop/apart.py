"""Training kept apart from the held-out tasks: the environment that training code is given, and the confined process.

Three things keep a training process from the tasks that decide: its store refuses them by name and has not the key that
they are sealed with; its environment knows none of them; and the kernel keeps it from the key, from their place on the
disk and from what was remembered of executions (`ratchet.methods.confinement`). Its programs are executed by the
process that started it, since a confined one can start no sandbox.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ratchet.contracts.environment import Environment, Task
from ratchet.errors import HeldoutError
from ratchet.intake.keys import MASTER
from ratchet.methods.confinement import Confinement, supported
from ratchet.methods.trainer import run_in_subprocess
from ratchet.progress import say
from ratchet.sandbox import served
from ratchet.splits import SplitLock
from ratchet.splits.evidence import SplitName
from ratchet.store.heldout import KEY, PREFIX
from ratchet.store.home import CACHE

if TYPE_CHECKING:
    from ratchet.loop.context import Run

OPEN: tuple[SplitName, ...] = ("train", "validation")
"""Splits whose tasks training may know."""
LIBRARY_CACHES = ("XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE", "TORCH_HOME", "TRITON_CACHE_DIR", "CUDA_CACHE_PATH")
"""Environment variables that name folders in which libraries of training keep what they have fetched or compiled."""
USUAL_CACHES = (".cache", ".triton", ".nv")
"""Such folders in the user's own."""


class _Apart:
    """An environment without its held-out tasks; for all else it is the environment."""

    def __init__(self, environment: Environment, lock: SplitLock) -> None:
        self._environment = environment
        self._heldout = {part for entry in lock.heldout for part in entry}

    def tasks(self) -> Iterable[Task]:
        """Refused: among all tasks are the held-out ones."""
        raise HeldoutError(
            "tasks of the environment",
            rule="training code may not make the catalogue, which holds the held-out tasks",
            remedy="use the training and validation tasks of the run",
        )

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._environment, name)
        return self._asking(found) if callable(found) else found

    def _asking(self, ask: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(ask)
        def asked(*arguments: Any, **named: Any) -> Any:
            for one in (*arguments, *named.values()):
                if isinstance(one, Task) and (one.task_id in self._heldout or one.digest in self._heldout):
                    raise HeldoutError(
                        f"task {one.task_id!r}",
                        rule="it is held out, and training code may not open, verify or probe it",
                        remedy="use the training and validation tasks of the run",
                    )
            return ask(*arguments, **named)

        return asked


def kept_apart(environment: Environment, lock: SplitLock) -> Environment:
    """Return the environment as training code is given it.

    What is asked of it with a task that the lock holds out, and the whole catalogue, raises HeldoutError.
    """
    return cast(Environment, _Apart(environment, lock))


def confinement(run: Run, output: Path) -> Confinement:
    """What a training process of the run must not read, and where it may write besides its own folder."""
    hidden = [run.home / KEY.parent, run.home / PREFIX]
    if not run.store.place.startswith("s3://"):
        hidden.append(Path(run.store.place) / PREFIX)
    if MASTER in os.environ:
        hidden.append(Path(os.environ[MASTER]))
    # Not `output` alone: a method may make it anew.
    writable = [output.parent, run.home / CACHE.parent]
    for folder in writable:
        folder.mkdir(parents=True, exist_ok=True)
    named = [Path(os.environ[name]) for name in LIBRARY_CACHES if os.environ.get(name)]
    caches = [folder.resolve() for folder in (*named, *(Path.home() / name for name in USUAL_CACHES))]
    # A home that lies in such a folder is kept apart all the same; the library then does without its cache.
    writable += [path for path in caches if not any(path in one.parents for one in hidden)]
    return Confinement([str(path) for path in hidden], [str(path) for path in writable])


def train_apart(
    run: Run,
    entry: str,
    arguments: dict[str, Any],
    folder: Path,
    *,
    output: Path,
    hard_wall_s: float,
    accelerate: Path | None = None,
) -> tuple[Any, str]:
    """Train in a process that is kept from the held-out tasks.

    Args:
        run: the experiment.
        entry: as for `run_in_subprocess`; to its arguments `sandbox` is added, for `reopen_run`.
        arguments: likewise.
        folder: likewise.
        output: folder that the process writes its checkpoints to.
        hard_wall_s: as for `run_in_subprocess`.
        accelerate: likewise.

    Returns:
        What the function returned, and what kept it from the held-out tasks, in words.

    Raises:
        HeldoutError: the kernel cannot confine the process, and the manifest does not allow to train without.
        RatchetError: as `run_in_subprocess`.
    """
    run.keep_open_tasks()
    allowed = run.manifest.evaluation.unconfined_training == "allow"
    confined = None if allowed and not supported() else confinement(run, output)
    kept = "store and kernel" if confined else "the store alone: this kernel has no Landlock"
    if confined is None:
        say(f"  training is kept from the held-out tasks by {kept}")
    with tempfile.TemporaryDirectory(prefix="ratchet-training-") as name:
        scratch = Path(name)
        with served(lambda: run.sandbox, scratch / "sandbox") as place:
            made = run_in_subprocess(
                entry,
                arguments | {"sandbox": str(place)},
                folder,
                hard_wall_s=hard_wall_s,
                confinement=confined,
                scratch=scratch,
                accelerate=accelerate,
            )
    return made, kept
