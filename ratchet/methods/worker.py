"""The child process of a training run: `python -m ratchet.methods.worker SPEC.json`.

The specification names an entry function, `package.module:function`, and its arguments in plain JSON. Progress lines
go to standard output, everything else that libraries print goes to standard error. The function's result, or the error
that it raised, is written beside the specification as `result.json`. The process and what it started die with the
parent.
"""

from __future__ import annotations

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

RESULT = "result.json"
PR_SET_PDEATHSIG = 1


def main(path: Path) -> int:
    """Run the specification at `path`; returns the exit status, 0 where the function returned."""
    die_with_parent()
    spec = json.loads(path.read_text(encoding="utf-8"))
    # Torch reads these when it is imported, which nothing here has done yet.
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(spec["threads"])
    stream = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    # Libraries may print; only progress lines belong on the pipe that the parent relays.
    os.dup2(2, 1)
    progress.set_sink(lambda line: print(line, file=stream, flush=True))
    status, result = _outcome(spec)
    fresh = path.with_name(RESULT + ".new")
    fresh.write_text(json.dumps(result), encoding="utf-8")
    fresh.rename(path.with_name(RESULT))
    return status


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


def _outcome(spec: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    try:
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
