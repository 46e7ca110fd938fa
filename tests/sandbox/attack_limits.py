"""Hostile programs that must be ended by the limit they name."""

from __future__ import annotations

from attack_programs import Attack

LIMIT_ATTACKS = {
    "fork bomb": Attack(
        "limit",
        """
def attack():
    while True:
        try:
            os.fork()
        except OSError:
            pass
""",
        ("processes",),
    ),
    "thread bomb": Attack(
        "limit",
        """
def attack():
    threading.stack_size(65536)
    for _ in range(100):
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
""",
        ("processes",),
    ),
    "memory bomb in one value": Attack("limit", "def attack():\n    return len(b'x' * (4 << 30))\n", ("memory",)),
    "memory bomb in small pieces": Attack(
        "limit", "def attack():\n    kept = []\n    while True:\n        kept.append(bytearray(100_000))\n", ("memory",)
    ),
    "memory bomb over several processes": Attack(
        "limit",
        """
def attack():
    for _ in range(5):
        if os.fork() == 0:
            kept = bytearray(80 << 20)
            for at in range(0, len(kept), 4096):
                kept[at] = 1
            time.sleep(60)
    os.wait()
""",
        ("memory",),
    ),
    "memory bomb in shared mappings": Attack(
        "limit",
        """
def attack():
    for _ in range(6):
        if os.fork() == 0:
            kept = mmap.mmap(-1, 60 << 20)
            for at in range(0, len(kept), 4096):
                kept[at] = 1
            time.sleep(60)
    os.wait()
""",
        ("memory",),
    ),
    "disk bomb": Attack(
        "limit",
        """
def attack():
    for folder in ("/tmp", "/dev/shm"):
        with open(folder + "/bomb", "wb") as file:
            while True:
                file.write(bytes(65536))
""",
        ("disk",),
    ),
    "bomb of empty files": Attack(
        "limit",
        "def attack():\n    n = 0\n    while True:\n        open(f'/tmp/{n}', 'w').close()\n        n += 1\n",
        ("cpu", "disk", "memory"),
    ),
    "bomb of nested folders": Attack(
        "limit",
        "def attack():\n    while True:\n        os.mkdir('d')\n        os.chdir('d')\n",
        ("cpu", "disk", "memory"),
    ),
    "output bomb": Attack("limit", "def attack():\n    while True:\n        print('x' * 1000)\n", ("output",)),
    "output bomb at import": Attack("limit", "while True:\n    print('x' * 1000)\ndef attack(): pass\n", ("output",)),
    "endless loop": Attack("limit", "def attack():\n    while True:\n        pass\n", ("cpu",)),
    "endless loop at import": Attack("limit", "while True:\n    pass\n", ("cpu",)),
    "endless loop that ignores signals": Attack(
        "limit",
        """
def attack():
    for number in range(1, 65):
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            pass
    while True:
        pass
""",
        ("cpu",),
    ),
    "endless loops in children": Attack(
        "limit",
        """
def attack():
    for _ in range(4):
        if os.fork() == 0:
            while True:
                pass
    time.sleep(60)
""",
        ("cpu",),
    ),
    "endless sleep": Attack("limit", "def attack():\n    time.sleep(600)\n", ("wall",)),
    "endless relay of short processes": Attack(
        "limit",
        """
def attack():
    while True:
        if os.fork():
            os._exit(0)
        end = time.process_time() + 0.01
        while time.process_time() < end:
            pass
""",
        ("exited",),
    ),
    "segmentation fault": Attack("limit", "def attack():\n    return ctypes.string_at(0)\n", ("killed",)),
    "stack overflow": Attack(
        "limit",
        """
class Deep:
    def __getattr__(self, name): return getattr(self, name + "x")
def attack():
    sys.setrecursionlimit(10**9)
    return repr(Deep().x)
""",
        ("killed",),
    ),
    "own death": Attack("limit", "def attack():\n    os.kill(os.getpid(), 9)\n", ("killed",)),
    "garbage on every descriptor": Attack(
        "limit",
        """
def attack():
    for descriptor in range(1024):
        try:
            os.write(descriptor, b"\\xff" * 64)
        except OSError:
            pass
    return 1
""",
        ("protocol",),
    ),
}
