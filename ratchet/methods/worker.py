"""The child process of a training run: `python -m ratchet.methods.worker SPEC.json`.

The specification names an entry function, `package.module:function`, and its arguments in plain JSON. Progress lines
go to standard output, everything else that libraries print goes to standard error. The function's result, or the error
that it raised, is written beside the specification as `result.json`. The process and what it started die with the
parent. Where the specification says so, the process confines itself before anything of a library or method is loaded.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import signal
import sys
import threading
import traceback
from pathlib import Path
from types import FrameType
from typing import Any

from ratchet import progress
from ratchet.errors import RatchetError
from ratchet.methods.confinement import Confinement, enter
from ratchet.policies.compute import is_first

RESULT = "result.json"
PR_SET_PDEATHSIG = 1


def main(path: Path) -> int:
    """Run the specification at `path`; returns the exit status, 0 where the function returned."""
    spec = json.loads(path.read_text(encoding="utf-8"))
    # A domain is its thread's own and inherited by later threads, so it comes before the first one.
    refused = _confine(spec["confinement"])
    die_with_parent()
    # Torch reads these when it is imported, which nothing here has done yet.
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(spec["threads"])
    stream = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    # Libraries may print; only progress lines belong on the pipe that the parent relays.
    os.dup2(2, 1)
    progress.set_sink(lambda line: print(line, file=stream, flush=True))
    status, result = _outcome(spec, refused)
    _hand_over(path.with_name(RESULT), result)
    return status


def _hand_over(place: Path, result: dict[str, Any]) -> None:
    """Write the result: of several processes the first one's, or what any refused with; a crash may follow from that.

    The process that sees another one gone crashes too, and that is not what the parent has to hear.
    """
    fresh = place.with_name(f"{place.name}.{os.getpid()}")
    fresh.write_text(json.dumps(result), encoding="utf-8")
    if "error" in result or ("value" in result and is_first()):
        fresh.rename(place)
        return
    if "crash" in result:
        with contextlib.suppress(FileExistsError):
            os.link(fresh, place)
    fresh.unlink()


def die_with_parent() -> None:
    """Kill the process group of this process as soon as its parent is gone.

    Two ways, because each has a hole: the kernel's signal arrives late where the main thread is inside a long native
    call, and the end of standard input is seen only once every holder of the pipe has closed it.
    """
    signal.signal(signal.SIGTERM, _kill_group)
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    threading.Thread(target=_wait_for_end_of_input, daemon=True).start()


def _wait_for_end_of_input() -> None:
    while os.read(0, 4096):
        pass
    _kill_group()


def _kill_group(signum: int = 0, frame: FrameType | None = None) -> None:
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _confine(wanted: dict[str, list[str]] | None) -> RatchetError | None:
    try:
        if wanted is not None:
            enter(Confinement(**wanted))
    except RatchetError as error:
        return error
    return None


def _outcome(spec: dict[str, Any], refused: RatchetError | None) -> tuple[int, dict[str, Any]]:
    try:
        if refused is not None:
            raise refused
        module, function = spec["entry"].split(":")
        return 0, {"value": getattr(importlib.import_module(module), function)(spec["arguments"])}
    except RatchetError as error:
        traceback.print_exc()
        parts = {"culprit": error.culprit, "seen": error.seen, "rule": error.rule, "remedy": error.remedy}
        try:
            json.dumps(parts)
        except TypeError:
            parts["seen"] = repr(error.seen)
        return 3, {"error": {"kind": type(error).__name__, **parts}}
    except Exception as error:
        traceback.print_exc()
        return 4, {"crash": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
