"""Faults while training data is made: the datasets are those of a run in which the failed episodes do not exist."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from faults import ALWAYS, Fault, Faulty
from judge_endpoint import JudgeServer
from loop_world import MANIFEST, small_manifest

from ratchet.contracts.environment import Task
from ratchet.contracts.manifest import MethodSection
from ratchet.contracts.trajectory import Trajectory
from ratchet.errors import TooManyInvalid
from ratchet.intake import trajectories
from ratchet.loop import data, intake, learning
from ratchet.loop.context import Run, Stage, open_run, reopen_run
from ratchet.loop.playing import kept
from ratchet.loop.trainer import _origin, pairs, tokens
from ratchet.policies.checkpoint import STARTER, load_tokenizer
from ratchet.policies.rendering import Rendering

EPISODES = 30
LOGS: dict[str, Any] = {"logs": [{"agent": "expert", "episodes": EPISODES, "format": "atif"}]}
PATIENT = small_manifest(**LOGS, max_invalid_share=0.5, invalid_retries=1)
STRICT = small_manifest(**LOGS)
DPO = MethodSection(name="dpo", method="dpo", start="base", data={"rollouts_per_task": 2, "tasks": 6})
PLACES = ("reset", "tool", "sandbox", "deliverable", "verifier")
KINDS = ("raise", "kill", "garbage", "nan", "raise")


@cache
def rendering() -> Rendering:
    return Rendering(load_tokenizer(STARTER))


def fresh(prepared: Path, home: Path, manifest: Any, faults: Mapping[Any, Fault] | None = None) -> Run:
    """A run with the tasks and the lock of the prepared one, and nothing else, on an environment with faults."""
    old = reopen_run(prepared, MANIFEST.run_id)
    if not home.exists():
        for memory in ("cache", "heldout"):
            if (prepared / memory).exists():
                shutil.copytree(prepared / memory, home / memory)
        with open_run(home, manifest) as run:
            for name in ("tasks.jsonl", *(f"splits/{one}" for one in old.store.children(old.name("splits")))):
                run.store.create(run.name(name), old.store.read(old.name(name)))
    run = open_run(home, manifest)
    run.__dict__["environment"] = Faulty(run.environment, faults or {})
    return run


def struck(run: Run) -> list[Task]:
    """Five training tasks that every agent plays."""
    return sorted(run.training_tasks(), key=lambda task: task.task_id)[:5]


def logged(run: Run, agent: str, **over: Any) -> list[Trajectory]:
    """What a method would learn from."""
    intake.ingest_landing(run.home, run.manifest.tenant, run.now())
    settings: dict[str, Any] = {"accepted_only": False, "purpose": "train_sft", **over}
    dataset = data.demonstrations(run, [agent], **settings)
    return sorted(trajectories(run.store, dataset), key=_origin)


def learned(found: list[Trajectory], lost: set[str | None] | None = None) -> list[Any]:
    """The tokens that are learned from; log-probabilities are not, and their last digits depend on the batch."""
    return [
        (one.ratchet.task_id, one.ratchet.seed, sample.input_ids, sample.sampled_mask)
        for one in found
        for sample in [tokens(one, rendering())]
        if one.ratchet.task_id not in (lost or ())
    ]


@pytest.fixture(scope="module")
def clean(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Trajectory]:
    """The logs of the scripted agent where nothing fails."""
    with fresh(prepared, tmp_path_factory.mktemp("clean") / "home", PATIENT) as run:
        stage = data.landing_logs(run)
        assert stage.figures["invalid"] == 0
        return logged(run, "expert")


def reasons(stage: Stage) -> str:
    return str(stage.rows[0]["reasons"])


def test_failed_episodes_are_counted_with_reasons_and_in_no_dataset(
    prepared: Path, clean: list[Trajectory], tmp_path: Path
) -> None:
    with fresh(prepared, tmp_path / "home", PATIENT) as run:
        faults = {
            task.task_id: Fault(place, kind, ALWAYS)
            for task, place, kind in zip(struck(run), PLACES, KINDS, strict=True)
        }
        run.environment.faults = faults  # type: ignore[attr-defined]
        stage = data.landing_logs(run)
        found = logged(run, "expert")
        hit = {str(one.ratchet.task_id) for one in clean} & set(faults)
        # An episode in which nothing is executed meets no fault of the sandbox.
        lost = hit - {one.ratchet.task_id for one in found}
        assert len(lost) >= 4
        assert learned(found) == learned(clean, lost)
        accepted = [one for one in clean if getattr(one.ratchet.score, "value", 0) == 1.0]
        assert learned(logged(run, "expert", accepted_only=True)) == learned(accepted, lost)
        invalid = sum(one.ratchet.task_id in lost for one in clean)
        assert (stage.rows[0]["invalid"], stage.figures["invalid"]) == (invalid, invalid)
        assert f"{invalid} invalid" in stage.summary
        for told in ("reset: OSError", "tool: Ended: it raised SystemExit", "deliverable: ValueError", "verifier: OSE"):
            assert told in reasons(stage)
        again = data.landing_logs(run)
        assert (again.reused, again.rows) == (True, stage.rows)


def test_what_a_retry_mends_is_there_once_and_the_dataset_is_the_clean_one(
    prepared: Path, clean: list[Trajectory], tmp_path: Path
) -> None:
    with fresh(prepared, tmp_path / "home", PATIENT) as run:
        broken = struck(run)
        run.environment.faults = {  # type: ignore[attr-defined]
            broken[0].task_id: Fault("reset", "raise", times=1),
            broken[1].task_id: Fault("verifier", "nan", times=1),
        }
        stage = data.landing_logs(run)
        assert learned(logged(run, "expert")) == learned(clean)
        assert (stage.rows[0]["invalid"], stage.rows[0]["mended"]) == (0, 2)
        assert "reset: OSError" in reasons(stage)


def test_no_judge_is_asked_while_data_is_made_so_that_its_faults_change_none(
    prepared: Path, clean: list[Trajectory], tmp_path: Path
) -> None:
    """First logs and pairs are accepted by the tests, though the manifest's acceptance asks a judge too."""
    with JudgeServer(lambda shown: ("no category", "")) as server:
        endpoint = {"url": server.url, "model": "dead", "retries": 0}
        over = {
            "reward.judge": {"rubric": "edit_quality", "kind": "endpoint", "weight": 0.5, "endpoint": endpoint},
            "reward.acceptance": ["hidden_tests", "edit_quality"],
        }
        with fresh(prepared, tmp_path / "home", small_manifest(**LOGS, **over)) as run:
            stage = data.landing_logs(run)
            assert learned(logged(run, "expert")) == learned(clean)
            scores = [one.ratchet.score for one in logged(run, "expert")]
            assert [one.kind for one in scores] == [one.ratchet.score.kind for one in clean]
            assert stage.figures["invalid"] == 0
            learning.baseline_policy(run)
            sampled = learning.scored_rollouts(run, DPO, learning.open_policy(run, "baseline"))
            assert logged(run, sampled)
        assert server.seen == []


def test_too_many_stop_the_stage_and_the_next_call_plays_only_what_is_missing(
    prepared: Path, clean: list[Trajectory], tmp_path: Path
) -> None:
    with fresh(prepared, tmp_path / "home", STRICT) as run:
        lost = struck(run)[0].task_id
        run.environment.faults = {lost: Fault("reset", "raise", ALWAYS)}  # type: ignore[attr-defined]
        with pytest.raises(TooManyInvalid, match=r"episodes of expert.*of 30 invalid.*reset: OSError: reset died"):
            data.landing_logs(run)
        place = kept(run, "expert")
        finished = place.read()
        played = sum(one.ratchet.task_id == lost for one in clean)
        assert len(finished) == EPISODES - played
        with place.path.open("ab") as file:
            file.write(b'{"cut off by the end of the pro')
    with fresh(prepared, tmp_path / "home", STRICT) as run:
        data.landing_logs(run)
        assert sum(run.environment.opened.values()) == played  # type: ignore[attr-defined]
        assert not place.path.exists()
        assert learned(logged(run, "expert")) == learned(clean)


def test_pairs_are_those_of_a_run_without_the_failed_episodes(
    prepared: Path, clean: list[Trajectory], tmp_path: Path
) -> None:
    """Episodes of the start policy, most of them rejected, beside those of an expert on the same tasks."""
    made: dict[str, list[Trajectory]] = {}
    lost: list[tuple[str | None, int | None]] = []
    ways = (("reset", "raise"), ("tool", "kill"), ("deliverable", "garbage"), ("reset", "nan"))
    for name in ("clean", "faulty"):
        with fresh(prepared, tmp_path / name, PATIENT) as run:
            learning.baseline_policy(run)
            if name == "faulty":
                lost = sorted((one.ratchet.task_id, one.ratchet.seed) for one in made["clean"])[:4]
                faults = {key: Fault(*way, ALWAYS) for key, way in zip(lost, ways, strict=True)}
                run.environment.faults = faults  # type: ignore[attr-defined]
            agent = learning.scored_rollouts(run, DPO, learning.open_policy(run, "baseline"))
            made[name] = logged(run, agent, purpose="train_preference")
            told = learning.told_of(run, agent)
    assert (told["invalid"], told["mended"]) == (4, 0)
    left = [one for one in made["clean"] if (one.ratchet.task_id, one.ratchet.seed) not in lost]
    assert len(left) == 8
    assert learned(made["faulty"]) == learned(left)
    found = pairs([*made["faulty"], *clean], rendering())
    assert found == pairs([*left, *clean], rendering())
    assert found != pairs([*made["clean"], *clean], rendering()) != []
