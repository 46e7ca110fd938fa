"""Training kept apart from the held-out tasks: each door it could try, in the very process that the loop starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from loop_world import MANIFEST, small_manifest

from ratchet.errors import HeldoutError, SplitError
from ratchet.loop import apart, judging, learning
from ratchet.loop.apart import train_apart
from ratchet.loop.context import Run, reopen_run
from ratchet.methods.confinement import supported
from ratchet.store.heldout import KEY

landlocked = pytest.mark.skipif(not supported(), reason="this kernel has no Landlock, and training is refused on it")


def attack(run: Run, entry: str, monkeypatch: pytest.MonkeyPatch, **more: Any) -> Any:
    """Run a function of `heldout_attacks` as a training of the run."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    work = run.home / "work" / run.manifest.run_id
    arguments = {"home": str(run.home), "run_id": run.manifest.run_id, **more}
    return train_apart(
        run, f"heldout_attacks:{entry}", arguments, work / "attack.process", output=work / "attack", hard_wall_s=300
    )


def asked(run: Run) -> dict[str, Any]:
    """What an attacker may know: the lock, a task that it guessed, digests, and where everything is."""
    what = judging.evaluation_plan(run)
    baseline = judging.open_policy(run, "baseline")
    return {
        "task": run.heldout_tasks()[0].model_dump(mode="json"),
        "plan": what.model_dump(mode="json"),
        "policy": baseline.digest,
        "harness": baseline.harness.digest,
        "key": str(run.home / KEY),
        "memory": str(run.home / "heldout"),
    }


@landlocked
def test_no_door_leads_training_to_the_held_out_tasks(done: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with reopen_run(done, MANIFEST.run_id) as run:
        secret = run.store.path(run.name("tasks.jsonl"))  # type: ignore[attr-defined]
        found, kept = attack(run, "attempt", monkeypatch, **asked(run), folder=str(secret.parent))
    assert kept == "store and kernel"
    assert found.pop("rollouts") == "None, None"
    for place in ("key", "folder", "memory"):
        assert found.pop(place).startswith("PermissionError"), place
    assert {door: said for door, said in found.items() if not said.startswith("HeldoutError")} == {}
    assert "this process may not read" in found["another store"]
    assert "opened for training" in found["store"]


@landlocked
def test_a_real_training_says_what_kept_it_apart(ready: Path) -> None:
    with reopen_run(ready, MANIFEST.run_id) as run:
        learning.train_method(run, "sft")
        assert learning.open_policy(run, "sft").training["kept_apart"] == "store and kernel"


def test_where_the_kernel_cannot_confine_training_is_refused_unless_the_manifest_allows_it(
    ready: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apart, "supported", lambda: False)
    seen: list[Any] = []

    def keep(*_: Any, confinement: Any, **__: Any) -> str:
        seen.append(confinement)
        return "trained"

    monkeypatch.setattr(apart, "run_in_subprocess", keep)
    with reopen_run(ready, MANIFEST.run_id) as run:
        arguments: dict[str, Any] = {"output": run.home / "work" / "x", "hard_wall_s": 1.0}
        assert train_apart(run, "a:b", {}, run.home / "work" / "p", **arguments) == ("trained", "store and kernel")
        allowing = small_manifest(**{"evaluation.unconfined_training": "allow"})
        run.manifest = run.manifest.model_copy(update={"evaluation": allowing.evaluation})
        made, kept = train_apart(run, "a:b", {}, run.home / "work" / "p", **arguments)
    assert seen[0] is not None
    assert seen[1] is None
    assert kept == "the store alone: this kernel has no Landlock"
    assert made == "trained"


def test_the_open_tasks_are_the_lock_s_and_no_others(ready: Path) -> None:
    with reopen_run(ready, MANIFEST.run_id) as run:
        run.keep_open_tasks()
        lock, name = run.lock, run.name("open_tasks", f"{run.lock.digest}.jsonl")
        lines = run.store.read(name).decode().splitlines(keepends=True)
        heldout = [task for task in run.heldout_tasks() if any(task.prompt in line for line in lines)]
        assert heldout == []
        whole = run.store.read(run.name("tasks.jsonl")).decode().splitlines(keepends=True)
    training = ready / "nobody-asks-the-sandbox"
    with reopen_run(ready, MANIFEST.run_id, training=training) as mine:
        assert len(mine.training_tasks()) == len(lock.train)
        assert len(mine.validation_tasks()) == len(lock.validation)
        with pytest.raises(HeldoutError, match="opened for training"):
            mine.heldout_tasks()
    for forged, rule in ((whole, "added task"), (lines[1:], "missing"), ([*lines, lines[0]], "twice")):
        with reopen_run(ready, MANIFEST.run_id) as run:
            run.store.delete(name)
            run.store.create(name, "".join(forged).encode())
        with (
            reopen_run(ready, MANIFEST.run_id, training=training) as mine,
            pytest.raises(SplitError, match=rule),
        ):
            mine.training_tasks()
