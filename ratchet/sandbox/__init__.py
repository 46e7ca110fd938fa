"""Runs hostile code and judges it: `open_sandbox()` gives a `Sandbox`, `diagnose()` says why there is none.

with open_sandbox() as sandbox:
    execution = sandbox.run(Program(source=..., entry_point="add", tests=(TestCase(name="t", source="..."),)))
"""

from __future__ import annotations

from ratchet.errors import SandboxError
from ratchet.sandbox.base import Execution, Finding, Limits, Program, Sandbox, TestCase, TestOutcome
from ratchet.sandbox.bubblewrap import BubblewrapSandbox
from ratchet.sandbox.doctor import diagnose
from ratchet.sandbox.memo import MemoSandbox
from ratchet.sandbox.served import ServedSandbox, served

__all__ = [
    "Execution",
    "Finding",
    "Limits",
    "MemoSandbox",
    "Program",
    "Sandbox",
    "ServedSandbox",
    "TestCase",
    "TestOutcome",
    "diagnose",
    "open_sandbox",
    "served",
]

_BACKENDS = {"bubblewrap": BubblewrapSandbox}


def open_sandbox(backend: str = "bubblewrap", *, slots: int | None = None, limits: Limits | None = None) -> Sandbox:
    """Open a sandbox. Close it, or use it as a context manager.

    Args:
        backend: name of the backend.
        slots: executions at one time; default the number of processors.
        limits: what one execution may use.

    Raises SandboxError when the backend is unknown or cannot work on this machine; nothing ever runs unsandboxed.
    """
    if backend not in _BACKENDS:
        raise SandboxError("sandbox backend", seen=backend, rule=f"known are {', '.join(_BACKENDS)}", remedy="name one")
    return _BACKENDS[backend](slots=slots, limits=limits)
