"""Damage after training: what was changed is refused by name, and what is missing is filled and nothing else."""

from __future__ import annotations

import io
import json
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest
from loop_world import MANIFEST, judge
from rich.console import Console

from ratchet.contracts.canonical import canonical_json
from ratchet.contracts.policy import Policy
from ratchet.errors import EvaluationError, IntegrityError, PermissionsError, RatchetError
from ratchet.evaluation.report import comparison_table, decision_table, policy_table
from ratchet.evaluation.rows import EvaluationRow, RowStore
from ratchet.loop import apart, auditing, deciding, judging, learning, trainer
from ratchet.loop.context import Run, open_run, reopen_run
from ratchet.policies.record import seal


def rewrite_policy(run: Run, name: str, **harness: object) -> Policy:
    """Record another harness for a policy, as a method that oversteps would."""
    body = learning.open_policy(run, name).model_dump(mode="json")
    body["harness"] |= harness
    run.store.path(run.name("policies", name, "policy.json")).write_bytes(seal(Policy.model_validate(body)))
    return learning.open_policy(run, name)


def test_an_edited_record_of_a_policy_opens_nothing(done: Path) -> None:
    with reopen_run(done, MANIFEST.run_id) as run:
        path = run.store.path(run.name("policies", "sft", "policy.json"))
        body = json.loads(path.read_text())
        body["content"]["policy"]["training"]["validation"] = 1.0
        path.write_text(canonical_json(body))
        with pytest.raises(IntegrityError, match="digest must match the content"):
            deciding.chosen(run)


@pytest.mark.parametrize("name", ["sft", "grpo", "baseline"])
@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"tools": [*MANIFEST.environment.tools, "edit_line"]}, "tool 'edit_line'"),
        ({"max_calls": 99}, "99 calls per episode"),
        ({"hosts": ["example.org"]}, "host 'example.org'"),
        ({"decoding": {"max_tokens_per_turn": 64}}, "64 tokens per turn"),
    ],
)
def test_a_harness_that_asks_for_more_is_refused_before_it_runs(
    done: Path, name: str, asked: dict[str, object], named: str
) -> None:
    with reopen_run(done, MANIFEST.run_id) as run:
        policy = rewrite_policy(run, name, **asked)
        with pytest.raises(PermissionsError, match=re.escape(named)) as caught:
            judging.heldout_rows(run)
        assert repr(name) in str(caught.value)
        assert judging.row_store(run, policy).read() == []
        assert run.sandbox.misses == 0


def parts(run: Run, policy: Policy) -> list[Path]:
    return [run.store.path(name) for name in run.store.names(f"{judging.row_store(run, policy).prefix}/parts")]


def replace_rows(run: Run, policy: Policy, rows: Iterable[EvaluationRow]) -> RowStore:
    """Put other rows in the place of a policy's, and leave no trace of those before."""
    store = judging.row_store(run, policy)
    run.store.delete_all(store.prefix)
    run.store.delete(store.index.head)
    store.append(list(rows))
    return store


def outcome(row: EvaluationRow) -> dict[str, object]:
    measured = {"latency_s", "sandbox_s", "verifier_s"}
    return row.model_dump(exclude=measured)


def test_a_part_that_was_never_run_is_run_and_nothing_else_is(done: Path) -> None:
    with reopen_run(done, MANIFEST.run_id) as run:
        baseline, sft, _ = judging.policies(run)
        before = judging.row_store(run, sft).complete()
        untouched = {path: path.read_bytes() for path in parts(run, baseline)}
        store = replace_rows(run, sft, [row for row in before if row.seed == 0])
        kept = {path: path.read_bytes() for path in parts(run, sft)}
        assert {gap.seed for gap in store.missing()} == {1}
        shown = judging.heldout_rows(run)
        assert not shown.reused
        after = store.complete()
        assert [outcome(row) for row in after] == [outcome(row) for row in before]
        assert [row for row in after if row.seed == 0] == [row for row in before if row.seed == 0]
        new = [path for path in parts(run, sft) if path not in kept]
        read = (run.store.read(str(path.relative_to(run.store.root))) for path in new)
        assert sum(len(data.splitlines()) for data in read) == 16
        assert {path: path.read_bytes() for path in (*untouched, *kept)} == untouched | kept
        assert judging.heldout_rows(run).reused


def test_missing_rows_void_the_comparison_until_they_are_run(done: Path) -> None:
    with reopen_run(done, MANIFEST.run_id) as run:
        sft = judging.policies(run)[1]
        rows = judging.row_store(run, sft).complete()
        replace_rows(run, sft, rows[:-1])
        shutil.rmtree(run.store.path(run.name("scorecards")))
        with pytest.raises(EvaluationError, match=rf"31 of 32 rows.*{re.escape(rows[-1].task_id)}"):
            judging.heldout_scorecard(run)


def test_doubled_rows_that_differ_are_refused_and_equal_ones_count_once(done: Path) -> None:
    with reopen_run(done, MANIFEST.run_id) as run:
        sft = judging.policies(run)[1]
        store = judging.row_store(run, sft)
        rows = store.complete()
        store.append(rows[:5])
        assert store.complete() == rows
        flipped = {"accepted": "rejected", "rejected": "accepted"}
        with pytest.raises(
            EvaluationError, match=rf"{re.escape(rows[0].task_id)!r} seed {rows[0].seed}.*two different"
        ):
            store.append([row.model_copy(update={"status": flipped[row.status]}) for row in rows[:1]])
        assert store.complete() == rows


def test_a_valid_outcome_is_not_rolled_again(done: Path) -> None:
    with reopen_run(done, MANIFEST.run_id) as run:
        sft = judging.policies(run)[1]
        store = judging.row_store(run, sft)
        row = store.complete()[0]
        store.append([row.model_copy(update={"status": "accepted", "attempts": row.attempts + 1})])
        with pytest.raises(EvaluationError, match="only an invalid outcome may be superseded"):
            judging.heldout_rows(run)


@pytest.mark.parametrize("harm", ["changed", "gone"])
def test_rows_that_were_changed_or_taken_away_are_named_and_not_run_again(done: Path, harm: str) -> None:
    with reopen_run(done, MANIFEST.run_id) as run:
        sft = judging.policies(run)[1]
        first = judging.row_store(run, sft).complete()[0]
        (path,) = parts(run, sft)
        damage(path) if harm == "changed" else path.unlink()
        with pytest.raises(IntegrityError, match=path.name) as caught:
            judging.heldout_rows(run)
        assert f"task {first.task_id!r} seed {first.seed}" in str(caught.value)
        assert run.sandbox.misses == 0


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("file", ["model.safetensors", "tokenizer.json"])
def test_a_tampered_checkpoint_is_not_evaluated(done: Path, file: str) -> None:
    with reopen_run(done, MANIFEST.run_id) as run:
        sft = judging.policies(run)[1]
        damage(run.store.path(sft.checkpoint) / file)
        replace_rows(run, sft, judging.row_store(run, sft).complete()[:-1])
        with pytest.raises(IntegrityError, match=f"checkpoint {sft.checkpoint}"):
            judging.heldout_rows(run)


def test_a_tampered_checkpoint_is_not_trained_from(done: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with reopen_run(done, MANIFEST.run_id) as run:
        sft = judging.policies(run)[1]
        damage(run.store.path(sft.checkpoint) / "model.safetensors")
        run.store.path(run.name("policies", "grpo", "policy.json")).unlink()
        monkeypatch.setattr(apart, "run_in_subprocess", lambda entry, arguments, *_, **__: trainer.train(arguments))
        with pytest.raises(IntegrityError, match=f"checkpoint {sft.checkpoint}"):
            learning.train_method(run, "grpo")


def test_a_checkpoint_that_was_tampered_with_after_the_judgement_is_not_promoted(done: Path) -> None:
    with reopen_run(done, MANIFEST.run_id) as run:
        candidate = deciding.candidate_version(run).policy
        damage(run.store.path(candidate.checkpoint) / "model.safetensors")
        with pytest.raises(IntegrityError, match=f"checkpoint {candidate.checkpoint}"):
            deciding.registered_versions(run)


@pytest.mark.parametrize(
    ("name", "opens"),
    [
        ("splits/lock.json", lambda run: run.lock),
        ("reward_audit.json", auditing.open_audit),
        ("scorecards/sft.json", judging.scorecards),
        ("policy_audits/sft.json", lambda run: judging.open_policy_audit(run, "sft")),
        ("decision.json", deciding.open_decision),
    ],
)
def test_evidence_that_was_changed_opens_nothing(done: Path, name: str, opens) -> None:
    with reopen_run(done, MANIFEST.run_id) as run:
        assert opens(run)
    with reopen_run(done, MANIFEST.run_id) as run:
        damage(run.store.path(run.name(name)))
        with pytest.raises(RatchetError, match=re.escape(name)):
            opens(run)


@pytest.mark.parametrize("kind", ["datasets", "certificates"])
def test_the_evidence_behind_a_candidate_is_read_again_by_the_gate(done: Path, kind: str) -> None:
    with reopen_run(done, MANIFEST.run_id) as run:
        run.store.path(run.name("decision.json")).unlink()
        for name in run.store.names(run.name(kind)):
            damage(run.store.path(name))
        with pytest.raises(IntegrityError, match=kind):
            deciding.release_decision(run)


def test_a_manifest_that_was_changed_is_not_the_experiment(done: Path) -> None:
    with reopen_run(done, MANIFEST.run_id) as run:
        path = run.store.path(run.name("manifest.json"))
    path.write_text(re.sub(r'"max_calls":\d+', '"max_calls":99', path.read_text()))
    with pytest.raises(IntegrityError, match=r"manifest\.json"):
        reopen_run(done, MANIFEST.run_id)
    with pytest.raises(RatchetError, match=r"manifest\.json"):
        open_run(done, MANIFEST)


def judge_again(run: Run) -> dict[str, object]:
    """Throw away what rests on the rows, and judge them anew."""
    for name in ("scorecards", "policy_audits"):
        shutil.rmtree(run.store.path(run.name(name)))
    for name in ("decision.json", "report.json", "evidence.json"):
        run.store.path(run.name(name)).unlink(missing_ok=True)
    (run.home / "release.db").unlink()
    judge(run)
    return deciding.report_of(run)


@pytest.mark.parametrize("failing", [("sft", "grpo"), ("baseline", "sft", "grpo")], ids=["candidates", "everybody"])
def test_nothing_accepted_is_words_in_json_table_and_page_and_never_a_price(
    done: Path, failing: tuple[str, ...]
) -> None:
    with reopen_run(done, MANIFEST.run_id) as run:
        for policy in judging.policies(run):
            if policy.name in failing:
                rows = judging.row_store(run, policy).complete()
                replace_rows(
                    run, policy, [row.model_copy(update={"status": "rejected", "reward": 0.0}) for row in rows]
                )
        body = judge_again(run)
        page = deciding.report_html(run)
        decision = deciding.open_decision(run)
    found = {policy["name"]: policy for policy in json.loads(json.dumps(body, allow_nan=False))["policies"]}
    for name in failing:
        assert found[name]["accepted_tasks"] == 0
        for figure in ("variable_per_accepted", "loaded", "amortised"):
            cost = found[name]["cost"][figure]
            assert set(cost) == {"not_computable"}, (name, figure, cost)
        assert "0 accepted" in found[name]["cost"]["variable_per_accepted"]["not_computable"]
    console = Console(width=300, record=True, file=io.StringIO())
    for table in (policy_table(body), comparison_table(body), decision_table(body)):
        console.print(table)
    text = console.export_text()
    for shown in (text, page):
        assert "0 accepted" in shown
        assert not re.search(r"(\$|USD|€) ?0\.00\b", shown)
        assert "nan" not in shown.lower().split()
    assert decision.state in ("reject", "review")
    assert decision.reasons
