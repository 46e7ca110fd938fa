"""The trusted side: runs the tests with proxies for the program's functions and reports each outcome.

The expected values live only in this process. The program is reached through pipes alone, so nothing it does to its
own interpreter changes what a test compares. What the program sends is data of the wire, never an object with
behaviour; a name it defines is offered to a test only where it hides no builtin and no module that tests rely on.
"""

from __future__ import annotations

import bisect
import builtins
import cmath
import collections
import copy
import functools
import heapq
import itertools
import math
import operator
import random
import re
import string
import types
import typing
from collections.abc import Callable
from typing import Any

from ratchet.sandbox.inside import wire

_MODULES = {
    module.__name__: module
    for module in (bisect, cmath, collections, copy, functools, heapq, itertools, math, operator, random, re, string)
}
_CLIP = 300
# Escaping from a call, these end a loop silently: `all(map(candidate, inputs))` would pass.
_SILENT = {"StopIteration", "StopAsyncIteration", "GeneratorExit"}


class CandidateError(Exception):
    """The program raised something that is not a builtin exception, or gave a value that cannot leave it."""


class CandidateEnded(BaseException):
    """The program's process is gone; no test can go on."""


class Candidate:
    """The program at the other end of two pipes."""

    def __init__(self, requests: int, answers: int, limit: int) -> None:
        self._requests, self._answers, self._limit = requests, answers, limit
        self.ended = self.malformed = False
        self.returned: list[Any] = []
        self.raised: Exception | None = None
        self.raised_name = ""

    def hello(self) -> None:
        """Wait until the other process is confined and serves. Raises wire.Closed when it could not be."""
        wire.read_frame(self._answers, self._limit)

    def load(self, source: str) -> tuple[list[str], dict[str, Any]]:
        """Run the program's module text; return its public callables and literal constants."""
        answer = self._ask(("load", source))
        if answer[0] == "loaded" and len(answer) == 3 and type(answer[1]) is list and type(answer[2]) is dict:
            return answer[1], answer[2]
        raise self._error(answer)

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function of the program; raise what it raised, by the builtin type of the same name."""
        answer = self._ask(("call", name, args, kwargs))
        if answer[0] == "value" and len(answer) == 2:
            self.returned = [answer[1]]
            return answer[1]
        raise self._error(answer)

    def _ask(self, request: tuple[Any, ...]) -> tuple[Any, ...]:
        if self.ended:
            raise CandidateEnded
        payload = wire.frame(wire.encode(request, wire.REQUEST_LIMIT))
        try:
            wire.write(self._requests, payload)
            answer = wire.read_frame(self._answers, self._limit)
        except wire.Closed:
            self.ended = True
            raise CandidateEnded from None
        except wire.Malformed:
            # Out of step for good: nothing that follows could be told from an answer.
            self.ended = self.malformed = True
            raise CandidateEnded from None
        if type(answer) is tuple and answer and type(answer[0]) is str:
            return answer
        return ("refused", "the program answered with something that is not an answer")

    def _error(self, answer: tuple[Any, ...]) -> Exception:
        name, text = "CandidateError", ""
        if answer[0] == "raised" and len(answer) == 3 and type(answer[1]) is str and type(answer[2]) is str:
            name, text = answer[1][:100], answer[2][:500]
        elif answer[0] == "refused" and type(answer[-1]) is str:
            name, text = "Unsupported", answer[-1][:500]
        kind = getattr(builtins, name, None)
        usable = isinstance(kind, type) and issubclass(kind, Exception) and name not in _SILENT
        try:
            error = kind(text) if usable and kind is not None else CandidateError(f"{name}: {text}")
        except Exception:
            # Some builtin exceptions (UnicodeDecodeError) want other arguments.
            error = CandidateError(f"{name}: {text}")
        self.raised, self.raised_name = error, name
        return error


def run(request: dict[str, Any], candidate: Candidate, report: Callable[[tuple[Any, ...]], None]) -> None:
    """Run every test of the request in order and report (index, status, exception, last value) for each.

    Tests after the end of the program are not reported: the parent counts them as not run.
    """
    support = compile(request["support"], "<support>", "exec", dont_inherit=True) if request["support"] else None
    codes = [compile(source, "<test>", "exec", dont_inherit=True) for source in request["tests"]]
    try:
        names, constants = candidate.load(request["source"])
    except CandidateEnded:
        return
    except Exception:
        for index in range(len(codes)):
            report((index, "error", candidate.raised_name, None))
        return
    offered = _offered(candidate, names, constants)
    offered["candidate"] = _proxy(candidate, request["entry_point"])
    for index, code in enumerate(codes):
        # Seeded by what the program never sees, so that random inputs repeat but cannot be foreseen.
        random.seed(request["tests"][index])
        outcome = _one(candidate, support, code, dict(offered))
        if candidate.ended:
            return
        report((index, *outcome))


def _offered(candidate: Candidate, names: list[str], constants: dict[str, Any]) -> dict[str, Any]:
    offered: dict[str, Any] = {name: value for name, value in constants.items() if type(name) is str}
    offered.update({name: _proxy(candidate, name) for name in names if type(name) is str})
    for name in list(offered):
        if hasattr(builtins, name) or name.startswith("_"):
            del offered[name]
    return {**offered, **_MODULES, "typing": typing}


def _proxy(candidate: Candidate, name: str) -> Callable[..., Any]:
    def proxy(*args: Any, **kwargs: Any) -> Any:
        return candidate.call(name, args, kwargs)

    proxy.__name__ = proxy.__qualname__ = name
    return proxy


def _one(
    candidate: Candidate, support: types.CodeType | None, code: types.CodeType, scope: dict[str, Any]
) -> tuple[str, str | None, str | None]:
    candidate.returned, candidate.raised, candidate.raised_name = [], None, ""
    status, exception = "passed", None
    try:
        if support is not None:
            exec(support, scope)
        exec(code, scope)
    except CandidateEnded:
        return "not_run", None, None
    except BaseException as error:
        from_program = error is candidate.raised
        exception = candidate.raised_name if from_program else type(error).__name__
        status = "failed" if isinstance(error, AssertionError) and not from_program else "error"
    return status, exception, _clipped(candidate.returned)


def _clipped(returned: list[Any]) -> str | None:
    if not returned:
        return None
    try:
        text = repr(returned[0])
    except ValueError:
        text = "<an int with too many digits to show>"
    return text if len(text) <= _CLIP else text[: _CLIP - 3] + "..."
