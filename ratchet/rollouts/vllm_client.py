"""HTTP to a vLLM server: one request, one turn, checked against what was asked for; control calls; who is away.

A server that does not answer, or answers 5xx to a completion, is `Away`: it is the caller that brings it back and asks
again. Every other answer that was not asked for is an `EngineError`.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, NamedTuple

from ratchet.contracts.policy import Decoding
from ratchet.errors import EngineError
from ratchet.rollouts.engine import Turn
from ratchet.rollouts.vllm_server import Server

if TYPE_CHECKING:
    import requests

TIMEOUT_S = 300.0
"""Seconds that one request may take."""


class Away(Exception):
    """The server does not answer, or lost what was put into it."""


class Ask(NamedTuple):
    """One row's next turn."""

    prompt: list[int]
    seed: int
    end: int
    """Id that ends the turn; below 0: nothing does but its length."""
    decoding: Decoding


class Client:
    """A client of one server; requests of several threads may run at once."""

    def __init__(self, server: Server, concurrency: int) -> None:
        """Use a server that runs, with at most `concurrency` requests at once."""
        self.server = server
        self._pool = ThreadPoolExecutor(concurrency, thread_name_prefix="vllm")
        self._local = threading.local()
        self._context: int | None = None

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()

    def turns(self, model: str, asks: Sequence[Ask]) -> list[Turn]:
        """Ask everything at once; no request is left behind when one fails.

        Raises:
            Away: the server is away.
            EngineError: it refuses a request, or its answer is of another model or for another prompt.
        """
        if self._context is None:
            self._context = int(self.models()[0]["max_model_len"])
        futures: list[Future[Turn]] = [self._pool.submit(self._turn, model, ask, self._context) for ask in asks]
        wait(futures)
        return [future.result() for future in futures]

    def models(self) -> list[dict[str, Any]]:
        """What the server serves: its base weights first, then adapters."""
        found: list[dict[str, Any]] = self.call("GET", "/v1/models")["data"]
        return found

    def _turn(self, model: str, ask: Ask, context: int) -> Turn:
        """Sample one turn. A row whose context is full says nothing, as one that ran into its limit."""
        room = context - len(ask.prompt)
        if room <= 0:
            return Turn([], [], "length")
        body = {
            "model": model,
            "prompt": ask.prompt,
            "max_tokens": min(ask.decoding.max_tokens_per_turn, room),
            "temperature": ask.decoding.temperature,
            "top_p": ask.decoding.top_p,
            "seed": ask.seed,
            # The end of a turn is the tokenizer's, whatever the checkpoint's generation settings list besides.
            "ignore_eos": True,
            "stop_token_ids": [ask.end] if ask.end >= 0 else [],
            "logprobs": 0,
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
            "add_special_tokens": False,
        }
        answer = self.call("POST", "/v1/completions", body)
        (choice,) = answer["choices"]
        ids, logprobs = choice["token_ids"], choice["logprobs"]["token_logprobs"]
        if answer["model"] != model or choice["prompt_token_ids"] != ask.prompt or len(ids) != len(logprobs):
            raise EngineError(
                f"an answer of {self.server.url}",
                seen=f"model {answer['model']!r}, {len(choice['prompt_token_ids'])} prompt ids, {len(ids)} ids with "
                f"{len(logprobs)} log-probabilities",
                rule=f"it must be of model {model!r} for the {len(ask.prompt)} ids that were sent",
                remedy="use a vLLM server of the version that `make serve-env` installs",
            )
        return Turn(ids, logprobs, "stop" if ids and ids[-1] == ask.end else "length")

    def weights(self) -> str | None:
        """The version whose weights the server holds, by its own word."""
        version = self.call("GET", "/weight_info")["weight_version"]
        return None if version is None else str(version)

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """One request; returns what it answered, as JSON where it is that."""
        import requests

        url = self.server.url + path
        try:
            response = self._session().request(method, url, json=body, timeout=TIMEOUT_S)
        except requests.RequestException as error:
            raise Away(f"{path.split('?')[0]}: {type(error).__name__}") from None
        if response.status_code >= 500 and path == "/v1/completions":
            raise Away(f"{path.split('?')[0]}: HTTP {response.status_code}: {response.text[:200]}")
        if response.status_code != 200:
            raise EngineError(
                f"a request to {url}",
                seen=f"HTTP {response.status_code}: {response.text[:300]}",
                rule="the server must accept it",
                remedy="use a vLLM server as `ratchet.rollouts.vllm_server` starts it: of that version, with the "
                "development endpoints and runtime adapters",
            )
        kind = response.headers.get("content-type", "")
        return response.json() if kind.startswith("application/json") and response.content else response.text

    def _session(self) -> requests.Session:
        """One pool of connections per thread: a session of requests is not made for several."""
        import requests

        if not hasattr(self._local, "session"):
            self._local.session = requests.Session()
            self._local.session.trust_env = False
            if self.server.token:
                self._local.session.headers["Authorization"] = f"Bearer {self.server.token}"
        found: requests.Session = self._local.session
        return found
