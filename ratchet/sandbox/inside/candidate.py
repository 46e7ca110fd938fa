"""The hostile side: loads the program and answers calls of its functions until the pipe closes.

Everything here runs beside hostile code in one process, so nothing here is trusted and no secret is ever in it: it is
forked before the tests of the execution are read. All it can do is choose the values it answers with.
"""

from __future__ import annotations

import resource
import sys
import types
from typing import Any

from ratchet.sandbox.inside import wire

# Constants travel with the names; a big table is not worth its bytes.
_CONSTANT_LIMIT = 4096
_reserve = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)


def serve(requests: int, answers: int, limit: int) -> None:
    """Answer ("load", source) and ("call", name, args, kwargs) frames until the checker has gone."""
    global _reserve
    memory = resource.getrlimit(resource.RLIMIT_AS)
    _reserve = (memory[1], memory[1])
    module = types.ModuleType("program")
    wire.write(answers, wire.frame(wire.encode("ready", limit)))
    while True:
        try:
            request = wire.read_frame(requests, wire.REQUEST_LIMIT)
        except wire.Closed:
            return
        _space(memory)
        if request[0] == "load":
            answer = _load(module, request[1])
        else:
            answer = _call(module, request[1], request[2], request[3])
        frame = wire.frame(_packed(answer, limit))
        # After the last answer the supervisor ends this process: what is not flushed by then is lost.
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        wire.write(answers, frame)


def _space(limits: tuple[int, int]) -> None:
    # Nothing here may need memory: there is none. A program may have lowered its own limits for good.
    try:  # noqa: SIM105
        resource.setrlimit(resource.RLIMIT_AS, limits)
    except (ValueError, OSError):
        pass


def _packed(answer: tuple[Any, ...], limit: int) -> bytes:
    try:
        return wire.encode(answer, limit)
    except wire.Unsupported as error:
        return wire.encode(("refused", str(error)[:500]), limit)
    except BaseException as error:
        return wire.encode(("refused", f"encoding the value raised {type(error).__name__}"[:500]), limit)


def _load(module: types.ModuleType, source: str) -> tuple[Any, ...]:
    # dataclasses and typing look a class's module up by name.
    sys.modules["program"] = module
    try:
        exec(compile(source, "<program>", "exec", dont_inherit=True), module.__dict__)
    except BaseException as error:
        return _raised(error)
    names = [str(name) for name, value in list(vars(module).items()) if callable(value) and not name.startswith("_")]
    return "loaded", names, _constants(module)


def _constants(module: types.ModuleType) -> dict[str, Any]:
    found = {}
    for name, value in list(vars(module).items()):
        if name.startswith("_") or callable(value) or isinstance(value, types.ModuleType):
            continue
        try:
            wire.encode(value, _CONSTANT_LIMIT)
        except BaseException:
            # Not a plain literal: a test cannot use it, and the program may keep it.
            continue
        found[name] = value
    return found


def _call(module: types.ModuleType, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    try:
        if name not in vars(module):
            raise NameError(f"the program defines no {name!r}")
        return "value", vars(module)[name](*args, **kwargs)
    except BaseException as error:
        return _raised(error)


def _raised(error: BaseException) -> tuple[Any, ...]:
    # Where the program took all its memory, its frames still hold it: what is told is told from the reserve.
    _space(_reserve)
    BaseException.with_traceback(error, None)
    try:
        text = str(error)[:500]
    except BaseException:
        text = ""
    return "raised", type(error).__name__[:100], text
