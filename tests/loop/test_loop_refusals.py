"""Planted faults before training: each is refused by name, and nothing is trained."""

from __future__ import annotations

import ast
import builtins
import json
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from loop_world import MANIFEST, small_manifest

from ratchet.contracts.environment import Task
from ratchet.errors import ContaminationError, IntegrityError, RatchetError, RightsError, SplitError
from ratchet.intake import index
from ratchet.loop import apart, data, intake, learning, trainer
from ratchet.loop.context import Run, open_run, reopen_run
from ratchet.rights import Event

GRANT = MANIFEST.grants[0].grant_id


def refused(run: Run, error: type[RatchetError], *parts: str, method: str = "sft") -> None:
    """Training is refused with a message that holds all parts, and leaves no policy."""
    with pytest.raises(error) as caught:
        learning.train_method(run, method)
    assert [part for part in parts if part not in str(caught.value)] == []
    assert not run.store.exists(run.name("policies", method, "policy.json"))
    assert not (run.home / "work").exists() or not list((run.home / "work").rglob("*.safetensors"))


def edit_tasks(run: Run, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
    name = run.name("tasks.jsonl")
    tasks = change([json.loads(line) for line in run.store.read(name).splitlines()])
    run.store.delete(name)
    run.store.create(name, "".join(json.dumps(task) + "\n" for task in tasks).encode())


@pytest.mark.parametrize("split", ["train", "validation", "heldout"])
@pytest.mark.parametrize("field", ["prompt", "segment", "payload"])
def test_an_edited_locked_task_stops_everything_by_its_name(ready: Path, split: str, field: str) -> None:
    with open_run(ready, MANIFEST) as run:
        name = run.lock.split(split)[0][0]

    def edit(tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for task in tasks:
            if task["task_id"] == name:
                task[field] = {**task["payload"], "failing": 9} if field == "payload" else task[field] + " "
        return tasks

    with open_run(ready, MANIFEST) as run:
        edit_tasks(run, edit)
        refused(run, SplitError, f"changed {split} task {name!r}")
        with pytest.raises(SplitError):
            data.split_lock(run)


def test_a_task_that_was_added_or_taken_away_is_named(ready: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(ready, tmp_path / "other"))
    with open_run(ready, MANIFEST) as run:
        edit_tasks(run, lambda tasks: [*tasks, {**tasks[0], "task_id": "planted"}])
        refused(run, SplitError, "added task 'planted'")
    with open_run(other, MANIFEST) as run:
        name = run.lock.heldout[0][0]
    with open_run(other, MANIFEST) as run:
        edit_tasks(run, lambda tasks: [task for task in tasks if task["task_id"] != name])
        refused(run, SplitError, f"missing heldout task {name!r}")


def test_a_changed_lock_opens_nothing(ready: Path) -> None:
    with open_run(ready, MANIFEST) as run:
        path = run.store.path(run.name("splits", "lock.json"))
        body = json.loads(path.read_text())
        body["content"]["train"].append(body["content"]["heldout"].pop())
        path.write_text(json.dumps(body))
        refused(run, IntegrityError, "splits/lock.json")


def plant(run: Run, change: Callable[[dict[str, Any]], None], grant: str = GRANT) -> None:
    """Put an accepted log of a training task into the landing folder once more, changed."""
    source = data.landing(run, "expert.atif.jsonl")
    records = [json.loads(line) for line in source.read_text().splitlines()]
    record = next(one for one in records if one["extra"]["ratchet"]["score"].get("value") == 1.0)
    record["trajectory_id"] = "planted"
    change(record)
    folder = run.home / "landing" / run.manifest.tenant / grant
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "partner.jsonl").write_text(json.dumps(record) + "\n")


def take_in(run: Run) -> None:
    intake.ingest_landing(run.home, run.manifest.tenant, run.now())


def heldout(run: Run) -> Task:
    return run.heldout_tasks()[0]


def clone(task: Task) -> str:
    """The function of a task with every name of its own changed."""
    tree = ast.parse(task.payload["files"]["solution.py"])
    function = next(node for node in tree.body if getattr(node, "name", None) == task.payload["entry_point"])
    own = {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}
    own |= {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    names = {name: f"renamed_{number}" for number, name in enumerate(sorted(own - set(dir(builtins))))}
    for node in ast.walk(function):
        if isinstance(node, ast.Name):
            node.id = names.get(node.id, node.id)
        elif isinstance(node, ast.arg):
            node.arg = names.get(node.arg, node.arg)
    function.name = "quite_another"
    if ast.get_docstring(function):
        del function.body[0]
    return ast.unparse(function)


def test_a_clean_log_from_outside_is_learned_from(ready: Path) -> None:
    with open_run(ready, MANIFEST) as run:
        plant(run, lambda record: record.update(notes="from a partner"))
        take_in(run)
        assert data.contamination_report(run).figures["findings"] == 0
        assert index(run.store, MANIFEST.tenant)["source"].str.contains("partner").sum() == 1


@pytest.mark.parametrize(
    "where",
    [
        "message",
        "deliverable",
        pytest.param("observation", marks=pytest.mark.slow),
        pytest.param("arguments", marks=pytest.mark.slow),
    ],
)
def test_a_leaked_prompt_is_refused_wherever_the_log_holds_it(ready: Path, where: str) -> None:
    with open_run(ready, MANIFEST) as run:
        task = heldout(run)

        def leak(record: dict[str, Any]) -> None:
            call = record["steps"][1]
            if where == "message":
                record["steps"][0]["message"] = f"See also:\n{task.prompt}"
            elif where == "observation":
                call["observation"]["results"][0]["content"] = task.prompt
            elif where == "arguments":
                call["tool_calls"][0]["arguments"] = {"text": task.prompt}
            else:
                record["extra"]["ratchet"]["deliverable"]["files"]["solution.py"] = task.payload["files"]["solution.py"]

        plant(run, leak)
        take_in(run)
        shown = data.contamination_report(run)
        assert (shown.figures["passed"], shown.figures["findings"] > 0) == ("False", True)
        assert task.task_id in {row.get("task") for row in shown.rows}
        refused(run, ContaminationError, "planted")
        assert data.contamination_report(run).reused


def test_a_leaked_clone_with_other_names_is_refused_by_its_syntax(ready: Path) -> None:
    with open_run(ready, MANIFEST) as run:
        task = next(one for one in run.heldout_tasks() if len(clone(one).split("\n")) > 4)

        def leak(record: dict[str, Any]) -> None:
            record["extra"]["ratchet"]["deliverable"]["files"]["solution.py"] = clone(task)

        plant(run, leak)
        take_in(run)
        found = [row for row in data.contamination_report(run).rows if row.get("document") == "planted"]
        assert {row["layer"] for row in found} == {"ast"}
        assert any(row["task"].startswith(task.repo) for row in found)
        refused(run, ContaminationError, "planted")


def test_a_certificate_of_another_corpus_opens_nothing(ready: Path) -> None:
    with open_run(ready, MANIFEST) as run:
        arguments = start_of(run)
        arguments["corpus"] = "0" * 64
        with pytest.raises(ContaminationError):
            trainer.train(arguments)


def start_of(run: Run, method: str = "sft") -> dict[str, Any]:
    """What the training process is started with, as the loop makes it, without starting it."""
    kept: list[dict[str, Any]] = []

    class Stop(BaseException):
        pass

    def keep(entry: str, arguments: dict[str, Any], *_: Any, **__: Any) -> None:
        kept.append(arguments)
        raise Stop

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(apart, "run_in_subprocess", keep)
        with pytest.raises(Stop):
            learning.train_method(run, method)
    return kept[0]


def withdraw(run: Run, kind: str = "withdraw", **fields: Any) -> None:
    run.rights.append(
        Event(kind=kind, grant_id=GRANT, tenant=MANIFEST.tenant, by="data-steward", at=run.now(), **fields)
    )


def test_a_missing_grant_is_refused_when_the_dataset_is_made(ready: Path) -> None:
    shutil.rmtree(ready / "rights")
    with reopen_run(ready, MANIFEST.run_id) as run:
        refused(run, RightsError, f"grant {GRANT!r}", "knows no such grant")


def test_a_grant_that_nobody_recorded_lets_nothing_in(ready: Path) -> None:
    with open_run(ready, MANIFEST) as run:
        plant(run, lambda record: None, grant="unheard-of")
        with pytest.raises(RightsError, match=r"grant 'unheard-of'.*knows no such grant"):
            take_in(run)
        assert "unheard-of" not in set(index(run.store, MANIFEST.tenant)["grant_id"])


def test_an_expired_grant_is_refused_when_the_dataset_is_made(ready: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    later = Run.now() + timedelta(days=MANIFEST.grants[0].retention_days + 1)
    with open_run(ready, MANIFEST) as run:
        monkeypatch.setattr(Run, "now", staticmethod(lambda: later))
        refused(run, RightsError, f"grant {GRANT!r}", "expired")


def test_a_withdrawn_grant_is_refused_and_opening_the_experiment_again_does_not_grant_it_anew(ready: Path) -> None:
    with open_run(ready, MANIFEST) as run:
        withdraw(run)
        refused(run, RightsError, f"grant {GRANT!r}", "withdrawn")
    with open_run(ready, MANIFEST) as run:
        refused(run, RightsError, f"grant {GRANT!r}", "withdrawn")


def test_a_narrowed_grant_is_refused_for_what_it_no_longer_covers(ready: Path) -> None:
    with open_run(ready, MANIFEST) as run:
        withdraw(run, "narrow", purposes=("train_rl",))
        refused(run, RightsError, f"grant {GRANT!r}", "'train_sft'")


def test_a_grant_of_another_tenant_is_refused_at_the_door(ready: Path) -> None:
    with pytest.raises(RightsError, match=rf"grant {GRANT!r}.*another tenant than 'other'"):
        open_run(ready, small_manifest(tenant="other"))
    with open_run(ready, MANIFEST) as run:
        run.rights.append(
            Event(
                kind="grant", grant_id="theirs", tenant="other", purposes=("train_sft",), base_models=("*",),
                retention_until=run.now() + timedelta(days=9), by="them", at=run.now(),
            )
        )  # fmt: skip
        plant(run, lambda record: None, grant="theirs")
        with pytest.raises(RightsError, match=r"grant 'theirs'.*another tenant than 'workshop'"):
            take_in(run)


def test_records_that_claim_another_grant_come_in_under_that_of_their_folder(ready: Path) -> None:
    with open_run(ready, MANIFEST) as run:
        plant(run, lambda record: record["extra"]["ratchet"].update(grant_id="theirs", tenant="other"))
        take_in(run)
        frame = index(run.store, MANIFEST.tenant)
        assert set(frame["grant_id"]) == {GRANT}


@pytest.mark.parametrize("end", ["withdrawn", "expired"])
def test_a_right_that_ends_between_dataset_and_start_stops_the_trainer(
    ready: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    with open_run(ready, MANIFEST) as run:
        arguments = start_of(run)
        if end == "withdrawn":
            withdraw(run)
        else:
            later = Run.now() + timedelta(days=MANIFEST.grants[0].retention_days + 1)
            monkeypatch.setattr(Run, "now", staticmethod(lambda: later))
        with pytest.raises(RightsError, match=rf"grant {GRANT!r}.*{end}"):
            trainer.train(arguments)
        assert not Path(arguments["output"]).exists()


def test_a_right_that_ends_before_the_training_process_starts_is_told_by_the_parent(
    ready: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = apart.run_in_subprocess
    with open_run(ready, MANIFEST) as run:

        def late(*arguments: Any, **limits: Any) -> Any:
            withdraw(run)
            return real(*arguments, **limits)

        monkeypatch.setattr(apart, "run_in_subprocess", late)
        refused(run, RightsError, f"grant {GRANT!r}", "withdrawn")


@pytest.mark.parametrize("which", ["dataset", "certificate"])
def test_evidence_that_was_changed_before_the_start_opens_nothing(ready: Path, which: str) -> None:
    with open_run(ready, MANIFEST) as run:
        arguments = start_of(run)
        path = run.store.path(arguments[which])
        path.write_bytes(path.read_bytes().replace(MANIFEST.tenant.encode(), b"workshoq", 1)[:-2] + b"} ")
        with pytest.raises(IntegrityError, match=arguments[which]):
            trainer.train(arguments)


def test_logs_that_were_changed_in_the_store_are_refused(ready: Path) -> None:
    with open_run(ready, MANIFEST) as run:
        arguments = start_of(run)
        for path in (run.store.root / MANIFEST.tenant / "trajectories").rglob("*.parquet"):
            table = pq.read_table(path)
            documents = [text.replace('"submit"', '"revert"', 1) for text in table["document"].to_pylist()]
            at = table.column_names.index("document")
            pq.write_table(table.set_column(at, "document", pa.array(documents)), path)
        with pytest.raises(IntegrityError):
            trainer.train(arguments)
