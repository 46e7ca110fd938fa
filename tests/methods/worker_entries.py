"""Functions that the tests run in a worker process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from ratchet import progress
from ratchet.errors import RightsError


def echo(arguments: dict[str, Any]) -> dict[str, Any]:
    print("noise from a library")
    progress.say("first line")
    progress.say("second line")
    return {"got": arguments["value"], "threads": os.environ["OMP_NUM_THREADS"]}


def refuse(arguments: dict[str, Any]) -> None:
    raise RightsError("grant g1", seen="withdrawn", rule="the right must hold", remedy="ask for it")


def crash(arguments: dict[str, Any]) -> None:
    raise ZeroDivisionError("by zero")


def hang(arguments: dict[str, Any]) -> None:
    """Start a child of its own, tell both ids, and wait for ever."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(arguments["pids"]).write_text(f"{os.getpid()} {child.pid}", encoding="utf-8")
    progress.say("hanging")
    time.sleep(600)
