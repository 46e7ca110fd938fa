"""Runs a module as the program of a child that never outlives the process that started it.

    python guarded.py GRACE_S MODULE ARGUMENTS...

vLLM's server, asked to end while requests are open, ends its engine and then waits for the requests without an end. So
a thread watches the parent: once it is gone, the server is asked, and after `GRACE_S` seconds everything of its session
is killed. It runs in the server's own environment, and so it uses nothing but the standard library.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading
import time

POLL_S = 0.5


def follow(parent: int, grace_s: float) -> None:
    """Wait until the parent is another one, then end this session; the process must lead its group."""
    while os.getppid() == parent:
        time.sleep(POLL_S)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(grace_s)
    os.killpg(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    grace, module = float(sys.argv[1]), sys.argv[2]
    threading.Thread(target=follow, args=(os.getppid(), grace), daemon=True).start()
    sys.argv = sys.argv[2:]
    # The folder of this file is on the path as a script's is, and must not stand before the server's own modules.
    del sys.path[0]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
