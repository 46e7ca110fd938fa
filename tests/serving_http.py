"""A server of `ratchet.serving` in this process, on a free loopback port, reached over HTTP as a client reaches it."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

import requests
import uvicorn
from serving_world import until

from ratchet.serving.server import Service


class Client:
    """Calls of one server."""

    def __init__(self, url: str, token: str | None = None) -> None:
        """Talk to `url`, with a token where one is given."""
        self.url, self.session = url, requests.Session()
        if token:
            self.session.headers["Authorization"] = f"Bearer {token}"

    def get(self, path: str) -> Any:
        """The JSON at a path."""
        return self.session.get(f"{self.url}{path}", timeout=60).json()

    def post(self, path: str, body: dict[str, Any]) -> requests.Response:
        """What a path answers to a body."""
        return self.session.post(f"{self.url}{path}", json=body, timeout=60)

    def chat(self, model: str = "production", text: str = "mend it", **more: Any) -> Any:
        """A chat completion; fails unless it is answered."""
        body = {"model": model, "messages": [{"role": "user", "content": text}], **more}
        answer = self.post("/v1/chat/completions", body)
        assert answer.status_code == 200, answer.text
        return answer.json()


@contextlib.contextmanager
def running(service: Service, token: str | None = None) -> Iterator[Client]:
    """Serve until the end of the block; threads and sockets are gone after it."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(service.app(), log_level="warning", timeout_graceful_shutdown=5))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    client = Client(f"http://127.0.0.1:{listener.getsockname()[1]}", token)
    try:
        until(lambda: server.started)
        yield client
    finally:
        client.session.close()
        server.should_exit = True
        thread.join(timeout=30)
        listener.close()
        assert not thread.is_alive()
