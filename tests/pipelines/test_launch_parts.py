"""The parts of a launch: one at a time, errors without wrappers, and what a killed launch leaves behind."""

import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.instance.ref import InstanceRef
from dagster._core.storage.tags import PARTITION_NAME_TAG

from pipelines.instance import PROCESS, end_dead_runs, open_instance, process_tag
from pipelines.launch import exclusive, execute, main, unwrapped
from pipelines.narrator import Narrator
from ratchet import progress
from ratchet.errors import ConflictError, ContaminationError, RatchetError

KEYS = dg.DynamicPartitionsDefinition(name="keys")
REFUSED = ContaminationError("the data", rule="it must share nothing", remedy="take it out")


@dg.asset(partitions_def=KEYS)
def first() -> dg.MaterializeResult:
    return dg.MaterializeResult(metadata={"summary": "12 things", "reused": True})


@dg.asset_check(asset=first, blocking=True)
def holds(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=context.partition_key != "leaky", description="3 things are shared")


@dg.asset(partitions_def=KEYS, deps=[first])
def second(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
    if context.partition_key == "refused":
        raise REFUSED
    if context.partition_key == "broken":
        raise KeyError("score")
    return dg.MaterializeResult(metadata={"summary": "made"})


JOB = dg.Definitions(
    assets=[first, second],
    asset_checks=[holds],
    jobs=[dg.define_asset_job("small", executor_def=dg.in_process_executor)],
).resolve_job_def("small")


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    overrides = {"telemetry": {"enabled": False}}
    with dg.DagsterInstance.from_ref(InstanceRef.from_dir(str(tmp_path), overrides=overrides)) as made:
        made.add_dynamic_partitions("keys", ["good", "leaky", "refused", "broken"])
        yield made


@pytest.fixture
def lines() -> Iterator[list[str]]:
    said: list[str] = []
    before = progress.set_sink(said.append)
    yield said
    progress.set_sink(before)


def narrated(
    instance: dg.DagsterInstance, key: str, worked: Callable[[str, float, str], None] = lambda *what: None
) -> Narrator:
    narrator = Narrator(["first", "second"], worked)
    execute(JOB, key, instance, narrator)
    return narrator


def test_a_line_is_said_as_each_asset_starts_and_ends(instance: dg.DagsterInstance, lines: list[str]) -> None:
    narrated(instance, "good").close()
    assert lines[:3] == ["[1/2] first ...", "[1/2] first: 12 things (reused)", "[2/2] second ..."]
    assert lines[3].startswith("[2/2] second: made (")
    assert lines[4] == "1 checks, 0 did not pass"


def test_how_long_a_stage_worked_is_told_unless_it_found_its_work_done(
    instance: dg.DagsterInstance, lines: list[str]
) -> None:
    told: list[tuple[str, float, str]] = []
    narrated(instance, "good", lambda *what: told.append(what))
    ((stage, seconds, ended),) = told
    assert (stage, ended) == ("second", "done")
    assert f"second: made ({seconds:.1f} s)" in lines[-1] or seconds >= 0.05
    with pytest.raises(ContaminationError):
        narrated(instance, "refused", lambda *what: told.append(what))
    assert [(stage, ended) for stage, _, ended in told[1:]] == [("second", "failed")]


def test_a_failed_blocking_check_ends_the_launch_with_its_reason(
    instance: dg.DagsterInstance, lines: list[str]
) -> None:
    with pytest.raises(RatchetError, match="holds of first: 3 things are shared"):
        narrated(instance, "leaky")
    assert not any("second" in line for line in lines)


def test_what_a_stage_refuses_comes_out_without_wrappers(instance: dg.DagsterInstance, lines: list[str]) -> None:
    with pytest.raises(ContaminationError) as caught:
        narrated(instance, "refused")
    assert caught.value is REFUSED
    assert lines[-1] == "[2/2] second: FAILED"


@pytest.mark.usefixtures("lines")
def test_a_bug_is_named_as_one_and_keeps_its_traceback(
    instance: dg.DagsterInstance, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(RatchetError, match="unexpected error"):
        narrated(instance, "broken")
    assert "KeyError: 'score'" in capfd.readouterr().err


def test_a_domain_error_is_found_behind_its_wrappers() -> None:
    outer = RuntimeError("wrapped")
    outer.__cause__ = ValueError("again")
    outer.__cause__.__context__ = REFUSED
    assert unwrapped(outer) is REFUSED
    assert unwrapped(ValueError("other")) is None


def test_a_bad_manifest_is_one_line_and_exit_status_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("experiment: 7\n")
    assert main(["--home", str(tmp_path / "home"), "--manifest", str(path)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {path}: ")
    assert not (tmp_path / "home").exists()


def test_a_second_launch_on_a_home_is_refused_and_told_who_is_there(tmp_path: Path) -> None:
    with exclusive(tmp_path), pytest.raises(ConflictError, match=r"in use by process [0-9]+"), exclusive(tmp_path):
        pass
    with exclusive(tmp_path):
        pass


def test_runs_of_dead_processes_are_ended_and_those_of_living_ones_left(instance: dg.DagsterInstance) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    tags = {"dead": process_tag(child.pid), "alive": process_tag(), "elsewhere": "another-host:1:5", "foreign": ""}
    child.communicate(b"\n")
    runs = {}
    for name, tag in tags.items():
        run = dg.DagsterRun(
            "small", str(uuid.uuid4()), status=dg.DagsterRunStatus.STARTED, tags={PARTITION_NAME_TAG: "good"}
        )
        runs[name] = instance.add_run(run.with_tags({**run.tags, **({PROCESS: tag} if tag else {})})).run_id
    assert end_dead_runs(instance) == 1
    after = {name: instance.get_run_by_id(run_id) for name, run_id in runs.items()}
    assert {name: run.status.value for name, run in after.items() if run} == {
        "dead": "FAILURE",
        "alive": "STARTED",
        "elsewhere": "STARTED",
        "foreign": "STARTED",
    }
    assert end_dead_runs(instance) == 0


def test_a_dagster_home_without_settings_gets_ours_and_keeps_its_own_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))
    with open_instance() as made:
        assert not made.telemetry_enabled
        assert made.root_directory == str(tmp_path / "dagster")
