"""A run whose manifest says `engine: vllm`, on a real server: rollouts, held-out rows, the gate's qualification.

Slow: the server takes minutes until it answers. It needs the environment that `make serve-env` makes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from loop_world import SMALL, judge, prepare, small_manifest
from release_world import a_decision
from test_qualifying import register
from vllm_world import adapter, forward

from ratchet.contracts.manifest import MethodSection
from ratchet.contracts.policy import Policy
from ratchet.loop import judging, learning
from ratchet.loop.context import Run, open_run
from ratchet.loop.data import landing
from ratchet.loop.learning import open_policy
from ratchet.loop.qualifying import PROBES, qualify_version
from ratchet.release.ledger import Ledger
from ratchet.release.records import Version
from ratchet.release.states import State
from ratchet.rollouts.vllm_server import VllmServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

TOKEN = "A_VLLM_TOKEN"


@pytest.fixture(scope="module")
def run(vllm_server: VllmServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """A run on the shared server, with one trained candidate."""
    engine = {"name": "vllm", "url": vllm_server.url, "token_env": TOKEN}
    manifest = small_manifest(methods=SMALL["methods"][:1], **{"evaluation.engine": engine})
    with (
        pytest.MonkeyPatch.context() as patch,
        open_run(tmp_path_factory.mktemp("vllm-loop"), manifest) as opened,
    ):
        patch.setenv(TOKEN, str(vllm_server.token))
        prepare(opened)
        learning.train_method(opened, "sft")
        yield opened


def test_rollouts_that_a_method_learns_from_carry_the_servers_ids_and_their_log_probs(run: Run) -> None:
    parent = open_policy(run, "baseline")
    section = MethodSection.model_validate(
        {"name": "dpo", "method": "dpo", "start": "base", "data": {"rollouts_per_task": 2, "tasks": 6}}
    )
    agent = learning.scored_rollouts(run, section, parent)
    lines = landing(run, f"{agent}.atif.jsonl").read_text().splitlines()
    assert len(lines) == 12
    turns = [step["metrics"] for line in lines for step in json.loads(line)["steps"] if "metrics" in step]
    assert len(turns) > 12
    off = 0.0
    for turn in turns:
        prompt, said = turn["prompt_token_ids"], turn["completion_token_ids"]
        meant = forward(run.store.folder(parent.checkpoint), prompt + said, len(prompt))
        off = max(off, *(abs(a - b) for a, b in zip(turn["logprobs"], meant, strict=True)))
    print("largest difference:", off)
    assert off <= 1e-4


def test_held_out_rows_are_sampled_by_the_server_once_and_judged(run: Run) -> None:
    first = judge(run)
    plan = judging.evaluation_plan(run)
    assert plan.engine == "vllm"
    for policy in judging.policies(run):
        rows = judging.row_store(run, policy, plan).complete()
        assert len(rows) == len(plan.tasks) * len(plan.seeds)
        assert all(math.isfinite(row.latency_s) and row.tokens_out > 0 for row in rows)
    assert all(stage.reused for stage in judge(run))
    assert [stage.name for stage in first] == [stage.name for stage in judge(run)]


def test_a_version_with_weights_of_its_own_qualifies_on_the_server_and_opens_canary(run: Run) -> None:
    """Not the trained one: the gate may have rejected it before, and that is final."""
    qualifies(run, register(run, noise=0.02, name="changed"))


def test_an_adapter_qualifies_under_its_own_name_without_being_merged(
    run: Run, vllm_server: VllmServer, tmp_path: Path
) -> None:
    place = run.name("policies", "lora", "checkpoint")
    digest = run.store.publish_folder(adapter(tmp_path / "adapter", 3), place)
    harness = open_policy(run, "baseline").harness
    policy = Policy(name="lora", method="sft", checkpoint=place, weights_digest=digest, harness=harness)
    qualifies(run, Ledger.of(run.home).register(run.manifest, policy, by="Ada"))
    said = requests.get(
        f"{vllm_server.url}/v1/models", headers={"Authorization": f"Bearer {vllm_server.token}"}, timeout=60
    ).json()
    assert digest in {one["id"] for one in said["data"]}


def qualifies(run: Run, version: Version) -> None:
    """The version passes on the server, is told from the baseline, and may be approved up to canary."""
    record, ledger = qualify_version(run, version, by="rule:gate"), Ledger.of(run.home)
    print(f"largest difference: {record.largest_difference} over {record.tokens} tokens")
    assert record.passed, record.reasons
    assert record.engine == "vllm"
    assert record.served_digest == version.policy.weights_digest
    assert len(record.probes) == record.differing == PROBES
    ledger.apply(version, a_decision(run.manifest, version.policy, open_policy(run, "baseline")))
    ledger.approve(version, by="Olga", reason="good", upto="canary")
    assert ledger.state(version) is State.CANARY
    # Canary holds one version at a time, and the next test has one too.
    ledger.reject(version, by="Olga", reason="the test is over")


def test_an_export_that_answers_like_the_version_before_does_not_pass_on_the_server(run: Run) -> None:
    record = qualify_version(run, register(run, noise=0.0, name="same"), by="rule:gate")
    assert (record.engine, record.differing) == ("vllm", 0)
    assert "no probe tells it from the version before" in record.reasons[0]
