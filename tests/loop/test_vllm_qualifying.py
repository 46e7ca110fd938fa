"""Serving qualification on a server with vLLM's endpoints: what is recorded of it, and what keeps canary shut."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from loop_world import make_tasks, small_manifest
from release_world import a_decision
from test_qualifying import register
from vllm_liar import Liar

from ratchet.errors import EngineError, TransitionError
from ratchet.loop.context import Run, open_run
from ratchet.loop.data import split_lock, task_catalogue
from ratchet.loop.learning import baseline_policy, open_policy
from ratchet.loop.qualifying import qualify_version
from ratchet.release.ledger import Ledger

TOKEN = "A_VLLM_TOKEN"


@pytest.fixture(scope="module")
def liar() -> Iterator[Liar]:
    one = Liar()
    yield one
    one.close()


@pytest.fixture(scope="module")
def run(liar: Liar, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """A run whose policies are sampled from a running server, before its first training."""
    engine = {"name": "vllm", "url": liar.url, "token_env": TOKEN}
    manifest = small_manifest(**{"evaluation.engine": engine})
    with (
        pytest.MonkeyPatch.context() as patch,
        open_run(tmp_path_factory.mktemp("vllm-run"), manifest) as opened,
    ):
        patch.setenv(TOKEN, str(liar.token))
        make_tasks(opened)
        for step in (task_catalogue, split_lock, baseline_policy):
            step(opened)
        yield opened


def test_the_record_is_of_the_server_and_of_the_accepted_files(run: Run, liar: Liar) -> None:
    """The server answers as the starter whatever it loads, which is what a candidate with the same weights must say."""
    version = register(run, noise=0.0, name="same")
    asked = len(liar.bodies)
    record = qualify_version(run, version, by="rule:gate")
    assert record.engine == "vllm"
    assert record.served_digest == record.weights_digest == version.policy.weights_digest
    assert record.tokens == sum(sum(probe.sampled) for probe in record.probes) < len(liar.bodies[asked:]) * 3
    assert 0 < record.largest_difference <= 1e-4
    # The weights are the baseline's: no probe can tell the two, and that is what keeps the door shut.
    assert [reason[:8] for reason in record.reasons] == ["no probe"]
    assert not list((run.home / "work").glob("served-*"))


def test_a_server_that_answers_as_other_weights_is_refused_and_canary_stays_shut(run: Run) -> None:
    """The version's weights are others than the starter's, and the server goes on answering as the starter."""
    version = register(run, noise=0.02, name="other")
    with pytest.raises(EngineError, match="nats from what its checkpoint answers"):
        qualify_version(run, version, by="rule:gate")
    ledger = Ledger.of(run.home)
    assert ledger.qualification(version) is None
    ledger.apply(version, a_decision(run.manifest, version.policy, open_policy(run, "baseline")))
    with pytest.raises(TransitionError, match="the serving engine has not tried it yet"):
        ledger.approve(version, by="Olga", reason="good", upto="canary")


def test_without_the_token_that_the_manifest_names_nothing_is_asked(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    version = register(run, noise=0.02, name="third")
    monkeypatch.delenv(TOKEN)
    with pytest.raises(EngineError, match="must hold the token"):
        qualify_version(run, version, by="rule:gate")
