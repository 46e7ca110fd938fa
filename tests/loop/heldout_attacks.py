"""Training code that tries to read what is held out, as the loop starts it; run in the training process."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ratchet.contracts.environment import Deliverable, Task
from ratchet.errors import RatchetError
from ratchet.evaluation.rows import RowStore
from ratchet.loop import judging
from ratchet.loop.context import Run, reopen_run
from ratchet.policies.checkpoint import load, verified
from ratchet.policies.rendering import Rendering
from ratchet.rollouts.episodes import run_batch
from ratchet.rollouts.judged import judge_all
from ratchet.store import open_store


def attempt(arguments: dict[str, Any]) -> dict[str, str]:
    """Try every door; returns by door what was got, or the error."""
    home, run_id = Path(arguments["home"]), arguments["run_id"]
    task = Task.model_validate(arguments["task"])
    nothing = Deliverable(submitted=True, files={})
    with reopen_run(home, run_id, training=Path(arguments["sandbox"])) as run:
        mine, catalogue = run.environment, run.name("tasks.jsonl")
        doors: dict[str, Callable[[], Any]] = {
            "tasks of the run": lambda: run.tasks(),
            "held-out tasks of the run": lambda: run.heldout_tasks(),
            "plan": lambda: judging.evaluation_plan(run),
            "scorecards": lambda: run.store.read(run.name("scorecards", "baseline.json")),
            "store": lambda: run.store.read(catalogue),
            "rows": lambda: run.store.names("heldout/evaluation"),
            "another store": lambda: open_store(home).read(catalogue),
            "another run": lambda: reopen_run(home, run_id).heldout_tasks(),
            "rows of another store": lambda: _rows(open_store(home), arguments),
            "catalogue of the environment": lambda: list(mine.tasks()),
            "episode": lambda: mine.open(task, 0),
            "hidden tests": lambda: mine.verify(task, nothing),
            "probes": lambda: mine.probes(task=task),
            "another method": lambda: mine.true_fix(task),  # type: ignore[attr-defined]
            "renamed task": lambda: mine.open(task.model_copy(update={"prompt": task.prompt + " "}), 0),
        }
        for name in ("key", "folder", "memory", "own key"):
            if name in arguments:
                doors[name] = lambda place=Path(arguments[name]): [
                    path.read_bytes() for path in ([place] if place.is_file() else place.rglob("*")) if path.is_file()
                ]
        found = {}
        for name, door in doors.items():
            try:
                found[name] = f"got {door()!r}"[:200]
            except (RatchetError, OSError) as error:
                found[name] = f"{type(error).__name__}: {error}"
        found["rollouts"] = _rolled_out(run)
    return found


def bucket(arguments: dict[str, Any]) -> list[str]:
    """Everything held out that lies in the bucket, read past the store with what the process has: as hexadecimal."""
    with reopen_run(Path(arguments["home"]), arguments["run_id"], training=Path(arguments["sandbox"])) as run:
        store: Any = run.store
        objects, keys = store._objects, list(store._keys(f"{store.prefix}heldout/"))
        return [objects.get(key)[0].hex() for key in keys]


def _rows(store: Any, arguments: dict[str, Any]) -> list[Any]:
    plan = judging.EvaluationPlan.model_validate(arguments["plan"])
    return RowStore(store, plan, arguments["policy"], arguments["harness"]).read()


def _rolled_out(run: Run) -> str:
    """What training is for: episodes of training and validation tasks, played and verified in the sandbox."""
    policy = judging.open_policy(run, "baseline")
    model, tokenizer = load(verified(run.store, policy.checkpoint, policy.weights_digest))
    requests = [(run.training_tasks()[0], 0), (run.validation_tasks()[0], 0)]
    with ThreadPoolExecutor(2) as pool:
        batch = run_batch(model, Rendering(tokenizer), run.environment, policy.harness, requests, salt="x", pool=pool)
        judged = judge_all(run.environment, batch, run.manifest.reward, pool)
    return ", ".join(str(one.invalid) for one in judged)
