"""A guarded child ends with whoever started it, whatever it waits for, and so does what it started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from ratchet.rollouts import guarded

STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(os.getpid(), helper.pid, sys.argv[1:], os.path.dirname(__file__) in sys.path, flush=True)
time.sleep(600)
"""
PARENT = """
import subprocess, sys, time
subprocess.Popen([sys.executable, *sys.argv[1:]], start_new_session=True)
time.sleep(600)
"""


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_a_child_that_ignores_what_it_is_asked_ends_once_its_parent_was_killed(tmp_path: Path) -> None:
    (tmp_path / "stubborn.py").write_text(STUBBORN)
    command = [sys.executable, "-c", PARENT, guarded.__file__, "0.2", "stubborn", "--port", "1"]
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        said = parent.stdout.readline().split(" ", 2)
        child, helper = int(said[0]), int(said[1])
        assert said[2].strip() == "['--port', '1'] True"
        time.sleep(2 * guarded.POLL_S)
        assert alive(child)
        assert alive(helper)
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        deadline = time.monotonic() + 30
        while (alive(child) or alive(helper)) and time.monotonic() < deadline:
            time.sleep(0.1)
    assert not alive(child)
    assert not alive(helper)
