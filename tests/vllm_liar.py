"""An HTTP server with vLLM's endpoints that answers by a local model, and lies, fails or ends where a test says so.

A real server cannot be made to answer as another version; this one can.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from ratchet.contracts.policy import Decoding
from ratchet.policies.checkpoint import STARTER, load
from ratchet.rollouts.engine import Session


class Liar:
    """The server; what it does wrong is in its attributes."""

    def __init__(self, context: int = 512, port: int = 0, token: str = "secret") -> None:
        """Answer as the starter policy."""
        self.model, self.tokenizer = load(STARTER)
        self.context = context
        self.weights: str | None = None
        self.adapters: list[str] = []
        self.calls: Counter[str] = Counter()
        self.bodies: list[dict[str, Any]] = []
        self.answered: list[tuple[str | None, dict[str, Any]]] = []
        """Per completion: the weights that stood meanwhile, None where they changed, and what was asked."""
        self.slow_s = self.question_s = 0.0
        self.answered_as: str | None = None
        self.prompt_cut = 0
        self.off = 0.0
        self.failures = 0
        self.stolen = 0
        self.revived = 0
        self.forgets = True
        self.token: str | None = token
        liar = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *parts: object) -> None:
                """Be quiet."""

            def do_GET(self) -> None:
                self._answer(*liar.answer(self.path.split("?")[0], {}))

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
                path = self.path.split("?")[0]
                if path.startswith("/v1") and self.headers.get("authorization") != f"Bearer {token}":
                    self._answer(401, {"error": "Unauthorized"})
                else:
                    self._answer(*liar.answer(path, body))

            def _answer(self, status: int, body: Any) -> None:
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        self.http = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.05})
        self.thread.start()

    def close(self) -> None:
        """Stop."""
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()

    def revive(self) -> None:
        """Come back, as a restarted server does without any weights of a version."""
        self.revived += 1
        if self.forgets:
            self.weights, self.adapters = None, []

    def answer(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        """Status and body of one answer."""
        self.calls[path] += 1
        if path == "/v1/models":
            names = ["policy", *self.adapters]
            return 200, {"data": [{"id": name, "max_model_len": self.context} for name in names]}
        if path == "/v1/load_lora_adapter":
            if body["lora_name"] in self.adapters:
                return 400, {"error": "already loaded"}
            self.adapters.append(body["lora_name"])
        if path == "/weight_info":
            time.sleep(self.question_s)
            return 200, {"weight_version": self.weights}
        if path == "/update_weight_version":
            self.weights = body["new_version"]
        if path != "/v1/completions":
            return 200, {}
        self.bodies.append(body)
        stood = self.weights
        time.sleep(self.slow_s)
        probing = body["temperature"] == 0
        if self.failures and not probing:
            self.failures -= 1
            return 500, {"error": "the engine is dead"}
        if self.stolen and not probing:
            self.stolen -= 1
            self.weights = "another client's"
        decoding = Decoding(temperature=body["temperature"], max_tokens_per_turn=body["max_tokens"])
        end = (*body["stop_token_ids"], -1)[0]
        turn = Session(self.model, end, decoding, [str(body["seed"])]).turn({0: body["prompt"]})[0]
        self.answered.append((stood if stood == self.weights else None, body))
        choice = {
            "token_ids": turn.ids,
            "prompt_token_ids": body["prompt"][self.prompt_cut :],
            "logprobs": {"token_logprobs": [value + self.off for value in turn.logprobs]},
        }
        return 200, {"model": self.answered_as or body["model"], "choices": [choice]}
