"""The parent's side of a training run: trainers run in a subprocess, so that nobody else pays for their imports.

`run_in_subprocess` starts `ratchet.methods.worker`, relays its progress lines as they come, enforces a hard limit of
wall time (the run's own budget stops it cleanly before), and raises the child's error here. The child and everything
it started die with the parent. Loads no torch.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from pathlib import Path
from typing import Any

from ratchet import errors, progress
from ratchet.errors import RatchetError, TrainingError
from ratchet.methods.confinement import Confinement
from ratchet.methods.worker import RESULT

LOG = "worker.log"


def run_in_subprocess(
    entry: str,
    arguments: dict[str, Any],
    folder: Path,
    *,
    hard_wall_s: float,
    threads: int = 1,
    confinement: Confinement | None = None,
    scratch: Path | None = None,
    accelerate: Path | None = None,
) -> Any:
    """Call a function in a process of its own.

    Args:
        entry: `package.module:function`; the function takes `arguments` and returns plain JSON.
        arguments: plain JSON: names, paths, digests, settings.
        folder: made if missing; receives `spec.json`, `result.json` and `worker.log` (the child's standard error).
        hard_wall_s: seconds after which the child is killed. Give the training budget plus time for imports, the last
            validation and the saving of weights.
        threads: torch threads of the child; fixed, since results depend on them.
        confinement: what the child must not read and where alone it may write; it may always write to `folder` and
            `scratch`. None: whatever this process may.
        scratch: folder for the child's temporary files instead of the usual one.
        accelerate: configuration file of `accelerate`, which starts the processes that it names; None for one.

    Returns:
        What the function returned.

    Raises:
        RatchetError: the same error, of the same class, that the function raised.
        TrainingError: the child crashed, was killed, or went over `hard_wall_s`.
        HeldoutError: the kernel cannot confine the child.
    """
    own = [str(folder), *([str(scratch)] if scratch else [])]
    confined = confinement._replace(writable=[*confinement.writable, *own])._asdict() if confinement else None
    folder.mkdir(parents=True, exist_ok=True)
    spec, result = folder / "spec.json", folder / RESULT
    result.unlink(missing_ok=True)
    spec.write_text(
        json.dumps({"entry": entry, "threads": threads, "confinement": confined, "arguments": arguments}, indent=1),
        encoding="utf-8",
    )
    launched = ["ratchet.methods.worker"]
    if accelerate is not None:
        launched = ["accelerate.commands.launch", "--config_file", str(accelerate), "--module", *launched]
    with (folder / LOG).open("w", encoding="utf-8") as log:
        child = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", *launched, str(spec)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=os.environ | ({"TMPDIR": str(scratch)} if scratch else {}),
            start_new_session=True,
        )
        late = threading.Event()

        def stop() -> None:
            late.set()
            _kill(child)

        timer = threading.Timer(hard_wall_s, stop)
        timer.start()
        try:
            assert child.stdout is not None
            for line in child.stdout:
                progress.say(line.rstrip("\n"))
            child.wait()
        finally:
            timer.cancel()
            _kill(child)
            child.wait()
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    pipe.close()
    if late.is_set():
        raise TrainingError(
            f"training process {entry}",
            seen=f"over {hard_wall_s:.0f} s",
            rule="it must end within its hard limit of wall time",
            remedy="raise max_wall_s or shorten the run; run again to go on from the last checkpoint",
        )
    return _read(entry, result, folder / LOG, child.returncode)


def _read(entry: str, result: Path, log: Path, status: int) -> Any:
    content = json.loads(result.read_text(encoding="utf-8")) if result.exists() else {}
    if "value" in content:
        return content["value"]
    if "error" in content:
        parts = dict(content["error"])
        kind = getattr(errors, parts.pop("kind"), RatchetError)
        raise kind(parts.pop("culprit"), **parts)
    with log.open(encoding="utf-8", errors="replace") as lines:
        tail = " | ".join(line.strip() for line in deque(lines, 3))
    raise TrainingError(
        f"training process {entry}",
        seen=content.get("crash", f"exit status {status}"),
        rule=f"it must end with a result (last lines of its log: {tail})",
        remedy=f"see {log}; run again to go on from the last checkpoint",
    )


def _kill(child: subprocess.Popen[str]) -> None:
    """Kill the child's whole process group; it may be gone already."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
