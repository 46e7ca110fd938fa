"""A vLLM server as the child of a stage: started from the manifest's environment, brought back, and gone afterwards.

The environment's interpreter is real, and so are the process, its token and its end; what it runs under vLLM's name
answers as the starter policy.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from loop_world import ROOT, small_manifest

from ratchet.contracts.policy import Decoding
from ratchet.errors import EngineError
from ratchet.loop.context import Run, open_run
from ratchet.loop.engines import sampled
from ratchet.loop.learning import baseline_policy, open_policy
from ratchet.rollouts.vllm_engine import VllmPolicy
from ratchet.rollouts.vllm_server import VllmServer

PROGRAM = """
import os, sys
from vllm_liar import Liar
Liar(port=int(sys.argv[sys.argv.index("--port") + 1]), token=os.environ["VLLM_API_KEY"]).thread.join()
"""
HOT = Decoding(temperature=1.0, max_tokens_per_turn=3)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """A run with its baseline, whose manifest names an environment of this test's."""
    venv, package = tmp_path / "venv", tmp_path / "modules" / "vllm" / "entrypoints" / "openai"
    (venv / "bin").mkdir(parents=True)
    (venv / ".made-from").touch()
    python = venv / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    package.mkdir(parents=True)
    (package / "api_server.py").write_text(PROGRAM)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (tmp_path / "modules", ROOT / "tests", ROOT))))
    manifest = small_manifest(**{"evaluation.engine": {"name": "vllm", "venv": str(venv)}})
    with open_run(tmp_path / "home", manifest) as opened:
        baseline_policy(opened)
        yield opened


def test_the_server_is_the_stages_own_and_leaves_nothing_behind(run: Run) -> None:
    with sampled(run, [open_policy(run, "baseline")]) as ((model, rendering),):
        assert isinstance(model, VllmPolicy)
        server = model.engine.server
        assert isinstance(server, VllmServer)
        calm = model.session(rendering.end, HOT, ["x"]).turn({0: [5]})
        assert requests.post(f"{server.url}/v1/completions", json={}, timeout=10).status_code == 401
        assert server.child is not None
        before = server.child.pid
        os.kill(before, signal.SIGKILL)
        assert model.session(rendering.end, HOT, ["x"]).turn({0: [5]}) == calm
        assert server.child.pid != before
        assert server.child.poll() is None
        assert list((run.home / "work").glob("served-*/*"))
    assert server.child.poll() is not None
    assert not list((run.home / "work").glob("served-*"))
    assert (run.home / "logs" / "vllm.log").exists()


def test_a_server_that_a_thread_of_an_episode_brought_back_outlives_that_thread(run: Run) -> None:
    with sampled(run, [open_policy(run, "baseline")]) as ((model, rendering),):
        assert isinstance(model, VllmPolicy)
        server = model.engine.server
        assert isinstance(server, VllmServer)
        assert server.child is not None
        os.kill(server.child.pid, signal.SIGKILL)
        asking = threading.Thread(target=lambda: model.session(rendering.end, HOT, ["x"]).turn({0: [5]}))
        asking.start()
        asking.join(60)
        brought_back = server.child
        with pytest.raises(subprocess.TimeoutExpired):
            brought_back.wait(3)
        model.session(rendering.end, HOT, ["x"]).turn({0: [5]})
        assert server.child is brought_back


def test_a_server_that_does_not_start_says_why(run: Run, tmp_path: Path) -> None:
    program = tmp_path / "modules" / "vllm" / "entrypoints" / "openai" / "api_server.py"
    program.write_text("raise SystemExit('no memory for the cache')")
    with (
        pytest.raises(EngineError, match="no memory for the cache"),
        sampled(run, [open_policy(run, "baseline")]),
    ):
        pass


def test_without_the_environment_it_says_how_to_make_it(run: Run, tmp_path: Path) -> None:
    (tmp_path / "venv" / ".made-from").unlink()
    with pytest.raises(EngineError, match="make serve-env"), sampled(run, [open_policy(run, "baseline")]):
        pass
