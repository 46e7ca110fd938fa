"""A sandbox that one process has and another one uses: for a process that must not, or cannot, start a sandbox itself.

A training process is confined by the kernel and could not make the namespaces that a sandbox is made of; so the process
that started it executes its programs. They talk over a Unix socket, one JSON line to ask and one to answer: data alone,
so that the process outside can be made to execute nothing but programs in its sandbox. What the sandbox remembers of
executions stays outside, too: who has not the program cannot ask for its outcome.
"""

from __future__ import annotations

import json
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from pydantic import ValidationError

from ratchet.errors import RatchetError, SandboxError
from ratchet.sandbox.base import Execution, Limits, Program, Sandbox

_POLL_S = 0.05


@contextmanager
def served(sandbox: Callable[[], Sandbox], place: Path) -> Iterator[Path]:
    """Serve a sandbox at a Unix socket while the context is open.

    Args:
        sandbox: gives the sandbox, at the first question; it is not closed here.
        place: path of the socket, in a folder that only those reach who may use it; at most 107 bytes long.
    """

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            for line in self.rfile:
                self.wfile.write(json.dumps(_answer(sandbox, line)).encode() + b"\n")

    with _Server(str(place), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(_POLL_S,), daemon=True)
        thread.start()
        try:
            yield place
        finally:
            server.shutdown()
            thread.join()


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    block_on_close = False


def _answer(sandbox: Callable[[], Sandbox], line: bytes) -> dict[str, Any]:
    try:
        programs = [Program.model_validate(one) for one in json.loads(line)["programs"]]
        found = sandbox()
        executions = found.run_many(programs)
    except RatchetError as error:
        return {
            "error": {"culprit": error.culprit, "seen": repr(error.seen), "rule": error.rule, "remedy": error.remedy}
        }
    except (ValidationError, ValueError, KeyError, TypeError) as error:
        rule = f"it is asked with programs ({type(error).__name__}: {error})"
        return {"error": {"culprit": "served sandbox", "seen": None, "rule": rule, "remedy": "use ServedSandbox"}}
    about = {"limits": found.limits.model_dump(), "slots": found.slots}
    return about | {"executions": [one.model_dump(mode="json") for one in executions]}


class ServedSandbox:
    """The user's side. See `ratchet.sandbox.base.Sandbox`; every thread has a connection of its own."""

    def __init__(self, place: Path, *, patience_s: float = 600.0) -> None:
        """Connect. Raises SandboxError where nobody serves a sandbox at `place`, or none can be opened there.

        Args:
            place: path of the socket.
            patience_s: seconds to wait for each program that a slot has to execute, as other users may come first.
        """
        self._place, self._patience_s = place, patience_s
        self._mine = threading.local()
        self._lock = threading.Lock()
        self._connections: list[socket.socket] = []
        self.slots = 1
        try:
            about = self._ask([])
        except SandboxError:
            self.close()
            raise
        self.limits, self.slots = Limits.model_validate(about["limits"]), int(about["slots"])

    def run(self, program: Program) -> Execution:
        """Execute one program; see `Sandbox.run`."""
        return self.run_many([program])[0]

    def run_many(self, programs: Sequence[Program]) -> list[Execution]:
        """Execute programs on all slots; see `Sandbox.run_many`."""
        return [Execution.model_validate(one) for one in self._ask(programs)["executions"]]

    def close(self) -> None:
        """Close the connections; the sandbox stays with its owner."""
        with self._lock:
            for connection in self._connections:
                connection.close()
            self._connections.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _ask(self, programs: Sequence[Program]) -> dict[str, Any]:
        line = json.dumps({"programs": [one.model_dump(mode="json") for one in programs]}).encode() + b"\n"
        try:
            stream = getattr(self._mine, "stream", None) or self._connect()
            self._mine.connection.settimeout(self._patience_s * (1 + len(programs) // self.slots))
            stream.write(line)
            stream.flush()
            answer: dict[str, Any] = json.loads(stream.readline() or b"null") or {}
        except (OSError, ValueError) as error:
            # What comes late would answer the next question.
            self._mine.stream = None
            raise self._lost(str(error)) from None
        if "error" in answer:
            raise SandboxError(**answer["error"])
        if not answer:
            raise self._lost("the connection was closed")
        return answer

    def _connect(self) -> Any:
        connection = socket.socket(socket.AF_UNIX)
        with self._lock:
            self._connections.append(connection)
        self._mine.connection = connection
        connection.connect(str(self._place))
        self._mine.stream = connection.makefile("rwb")
        return self._mine.stream

    def _lost(self, seen: str) -> SandboxError:
        return SandboxError(
            f"sandbox at {self._place}",
            seen=seen,
            rule="the process that started this one executes its programs",
            remedy="run the stage again",
        )
