"""A finished loop: complete rows, a decision that follows from evidence, and nothing that is done twice."""

import json
from pathlib import Path

from loop_world import MANIFEST, whole

from ratchet.evaluation.rows import RowStore
from ratchet.loop import deciding, intake, judging, learning
from ratchet.loop.context import open_run, reopen_run, runs
from ratchet.policies.checkpoint import verified


def contents(home: Path) -> dict[str, bytes]:
    """Every file of a home but the caches."""
    return {
        str(path.relative_to(home)): path.read_bytes()
        for path in sorted(home.rglob("*"))
        if path.is_file() and "cache" not in path.parts and not path.name.startswith(".")
    }


def test_a_second_run_does_no_finished_work_twice_and_says_so(done: Path) -> None:
    before = contents(done)
    with open_run(done, MANIFEST) as run:
        first, second = whole(run), whole(run)
        assert {stage.name: stage.reused for stage in first} == {stage.name: True for stage in first}
        assert [stage.digest for stage in first] == [stage.digest for stage in second]
        assert run.sandbox.misses == 0, "a finished loop executes nothing"
    after = contents(done)
    assert set(after) == set(before)
    assert [name for name in before if before[name] != after[name] and not name.startswith("release")] == []


def test_every_task_and_seed_of_every_policy_has_its_row(finished: Path) -> None:
    with reopen_run(finished, MANIFEST.run_id) as run:
        wanted = [(task.task_id, seed) for task in run.heldout_tasks() for seed in MANIFEST.evaluation.seeds]
        assert len(wanted) == 32
        for policy in judging.policies(run):
            rows = judging.row_store(run, policy).complete()
            assert sorted((row.task_id, row.seed) for row in rows) == sorted(wanted)


def test_the_three_splits_share_no_problem(finished: Path) -> None:
    with reopen_run(finished, MANIFEST.run_id) as run:
        repos = [
            {task.repo for task in part} for part in (run.training_tasks(), run.validation_tasks(), run.heldout_tasks())
        ]
    assert [len(run.lock.train), len(run.lock.validation), len(run.lock.heldout)] == [24, 8, 16]
    assert not repos[0] & repos[1]
    assert not repos[0] & repos[2]
    assert not repos[1] & repos[2]


def test_policies_are_trained_from_one_another_and_are_what_their_files_are(finished: Path) -> None:
    with reopen_run(finished, MANIFEST.run_id) as run:
        baseline, sft, grpo = judging.policies(run)
        assert (sft.parent, grpo.parent) == (baseline.digest, sft.digest)
        assert len({policy.digest for policy in (baseline, sft, grpo)}) == 3
        assert {policy.harness.digest for policy in (baseline, sft, grpo)} == {learning.harness_of(run).digest}
        for policy in (baseline, sft, grpo):
            assert verified(run.store, policy.checkpoint, policy.weights_digest)
        assert [row["step"] for row in grpo.training["curve"] if row["validation_acceptance"] is not None]


def test_the_report_is_plain_json_with_everything_that_is_promised(finished: Path) -> None:
    with reopen_run(finished, MANIFEST.run_id) as run:
        body = json.loads(json.dumps(deciding.report_of(run), allow_nan=False))
        page = deciding.report_html(run)
        digests = [policy.digest for policy in judging.policies(run)]
    assert {"experiment", "manifest_digest", "split_lock", "policies", "decision", "lineage"} <= set(body)
    assert body["manifest_digest"] == MANIFEST.digest
    assert [policy["digest"] for policy in body["policies"]] == digests
    assert [policy["name"] for policy in body["policies"]] == ["baseline", "sft", "grpo"]
    for policy in body["policies"]:
        assert policy["n_tasks"] == 16
        assert {"acceptance", "violations", "exploit_rate", "latency_s", "invalid_share", "cost"} <= set(policy)
    assert body["decision"]["candidate"] in ("sft", "grpo")
    assert body["decision"]["rules"]
    assert body["lineage"]["grants"]
    assert "<html" in page


def test_the_candidate_is_chosen_on_validation(finished: Path) -> None:
    with reopen_run(finished, MANIFEST.run_id) as run:
        candidate = deciding.chosen(run)
        best = max(policy.training["validation"] for policy in judging.policies(run)[1:])
        assert candidate.training["validation"] == best
        assert deciding.open_decision(run).candidate_digest == candidate.digest


def test_a_policy_that_may_not_be_released_is_not_chosen(finished: Path) -> None:
    with reopen_run(finished, MANIFEST.run_id) as run:
        first = deciding.chosen(run).name
        sections = [section.model_copy(update={"candidate": section.name != first}) for section in MANIFEST.methods]
        run.manifest = MANIFEST.model_copy(update={"methods": tuple(sections)})
        # The folders are those of the manifest that made them.
        run.name = lambda *parts: "/".join(("experiments", MANIFEST.run_id, *parts))  # type: ignore[method-assign]
        assert deciding.chosen(run).name != first


def test_what_the_loop_wrote_itself_is_no_growth(finished: Path) -> None:
    from ratchet.loop.retraining import growth, newest, tenants

    assert tenants(finished) == [MANIFEST.tenant]
    assert growth(finished, MANIFEST.tenant, None) is None
    assert newest(finished, MANIFEST.tenant) == MANIFEST
    assert newest(finished, "nobody") is None
    assert runs(finished) == [MANIFEST.run_id]


def test_rights_are_shown_as_they_stand(finished: Path) -> None:
    with reopen_run(finished, MANIFEST.run_id) as run:
        shown = intake.rights_state(finished, MANIFEST.tenant, run.now())
    assert [row["state"] for row in shown.rows] == ["active"]


def test_rows_of_another_reward_are_another_evaluation(finished: Path) -> None:
    with reopen_run(finished, MANIFEST.run_id) as run:
        policy = judging.policies(run)[0]
        plan = judging.evaluation_plan(run).model_copy(update={"reward_digest": "0" * 64})
        assert RowStore(run.store, plan, policy.digest, policy.harness.digest).read() == []
