"""Hostile programs, in three kinds.

`limit`: must be ended by the named limit. `contained`: lists what it managed to do; its test demands an empty list.
`forgery`: computes a wrong answer and tries to pass all the same. System call numbers are those of x86-64.
"""

from __future__ import annotations

from typing import NamedTuple


class Attack(NamedTuple):
    kind: str
    source: str
    limits: tuple[str, ...] = ()


PRELUDE = """
import ctypes, gc, mmap, os, resource, signal, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)

def call(number, *arguments):
    result = libc.syscall(number, *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return result

def worked(attempts):
    done = []
    for name, attempt in attempts.items():
        try:
            if attempt() is not False:
                done.append(name)
        except OSError:
            pass
    return done

def content(path):
    with open(path, "rb") as file:
        return file.read(4096)

def others():
    # The warm process is 1; the checker was forked just before or after this process.
    near = range(max(2, os.getpid() - 20), os.getpid() + 20)
    return [1, *(pid for pid in near if pid != os.getpid())]
"""

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

CONTAINED = {
    "writes outside": """
def attack():
    paths = ["/x", "/usr/x", "/usr/bin/x", "/etc/x", "/inside/x", "/dev/x", "/proc/sys/kernel/core_pattern", "/var/x",
             "/proc/sysrq-trigger", "/proc/self/oom_score_adj", "/proc/1/oom_score_adj", "/proc/self/uid_map",
             "/inside/ratchet/sandbox/inside/zygote.py", "/sys/kernel/x", "/root/x", "/home/x", "/run/x",
             "/dev/null/../x", "/usr/lib/python3.11/random.py", HOST_FILE]
    found = worked({path: lambda p=path: open(path, "w") for path in paths})
    found += worked({"append " + path: lambda p=path: open(p, "ab") for path in paths})
    found += worked({"chmod": lambda: os.chmod("/usr/bin/env", 0o777),
                     "mkdir": lambda: os.mkdir("/usr/y"), "unlink": lambda: os.unlink("/usr/bin/env"),
                     "rename": lambda: os.rename("/usr/bin/env", "/tmp/e")})
    return found
""",
    "host secrets": """
def attack():
    paths = [HOST_FILE, "/etc/passwd", "/etc/shadow", "/etc/hostname", "/root/.bashrc", "/proc/1/environ",
             "/proc/1/mem", "/proc/1/cmdline", "/proc/self/environ", "/proc/self/maps", "/proc/self/mem",
             "/proc/cmdline", "/proc/mounts", "/proc/net/tcp", "/dev/mem", "/dev/kmsg", "/dev/sda", "/dev/vda",
             "/sys/kernel", "/var/log", "/inside/ratchet/sandbox/inside/zygote.py"]
    found = worked({path: lambda p=path: content(p) for path in paths})
    found += worked({"list " + path: lambda p=path: os.listdir(p) for path in (
                     "/", "/root", "/home", "/etc", "/proc", "/proc/1/fd", "/proc/1/root",
                     "/sys", "/var", "/usr/local", "/inside")})
    return found
""",
    "host environment": """
def attack():
    known = {"PATH", "HOME", "LANG", "PYTHONHASHSEED", "MALLOC_ARENA_MAX", "RATCHET_SANDBOX", "PWD", "LC_CTYPE"}
    return sorted(set(os.environ) - known) + [value for value in os.environ.values() if TOKEN in value]
""",
    "inherited descriptors": """
def attack():
    def is_open(descriptor):
        os.fstat(descriptor)
    return worked({str(descriptor): lambda d=descriptor: is_open(d) for descriptor in range(5, 4096)})
""",
    "network": """
import socket
def attack():
    def connect(family, address):
        with socket.socket(family, socket.SOCK_STREAM) as made:
            made.connect(address)
    return worked({
        "loopback": lambda: connect(socket.AF_INET, ("127.0.0.1", PORT)),
        "loopback 6": lambda: connect(socket.AF_INET6, ("::1", PORT)),
        "internet": lambda: connect(socket.AF_INET, ("1.1.1.1", 53)),
        "abstract socket": lambda: connect(socket.AF_UNIX, chr(0) + NAME),
        "path socket": lambda: connect(socket.AF_UNIX, "/run/systemd/private"),
        "netlink": lambda: socket.socket(16, socket.SOCK_RAW, 0),
        "packet": lambda: socket.socket(17, socket.SOCK_RAW, 0),
        "vsock": lambda: socket.socket(40, socket.SOCK_STREAM, 0),
        "raw call": lambda: call(41, 2, 1, 0),
        "bind abstract": lambda: socket.socket(socket.AF_UNIX).bind(chr(0) + "x"),
        "socketpair and connect": lambda: socket.socketpair()[0].connect(chr(0) + NAME),
    })
""",
    "signals to everybody": """
def attack():
    found = worked({f"kill {pid}": lambda p=pid: os.kill(p, 9) for pid in others()})
    found += worked({f"stop {pid}": lambda p=pid: os.kill(p, signal.SIGSTOP) for pid in others()})
    found += worked({f"tgkill {pid}": lambda p=pid: call(234, p, p, 9) for pid in others()})
    found += worked({f"pidfd {pid}": lambda p=pid: signal.pidfd_send_signal(os.pidfd_open(p), 9) for pid in others()})
    found += worked({"parent": lambda: os.kill(os.getppid(), 9)})
    # Answers 0 whether or not it reached anybody; the checker that reads this answer is the proof that it did not.
    os.kill(-1, 9)
    return found
""",
    "tracing": """
def attack():
    buffer = ctypes.create_string_buffer(16)
    found = worked({f"attach {pid}": lambda p=pid: call(101, 16, p, 0, 0) for pid in others()})
    found += worked({f"seize {pid}": lambda p=pid: call(101, 0x4206, p, 0, 0) for pid in others()})
    found += worked({f"read {pid}": lambda p=pid: call(310, p, buffer, 1, buffer, 1, 0) for pid in others()})
    found += worked({f"memory {pid}": lambda p=pid: open(f"/proc/{p}/mem", "rb") for pid in others()})
    found += worked({f"descriptor {pid}": lambda p=pid: call(438, os.pidfd_open(p), 0, 0) for pid in others()})
    return found
""",
    "namespaces and mounts": """
def attack():
    return worked({
        "mount": lambda: call(165, b"none", b"/tmp", b"tmpfs", 0, None),
        "umount": lambda: call(166, b"/proc", 2),
        "remount": lambda: call(165, None, b"/", None, 32 | 4096, None),
        "user namespace": lambda: call(272, 0x10000000),
        "mount namespace": lambda: call(272, 0x00020000),
        "clone into a user namespace": lambda: call(56, 0x10000000 | 17, 0, 0, 0, 0),
        "clone3": lambda: call(435, ctypes.create_string_buffer(88), 88),
        "chroot": lambda: os.chroot("/tmp"),
        "pivot_root": lambda: call(155, b"/tmp", b"/tmp"),
        "device": lambda: os.mknod("/tmp/device", 0o600 | 0o060000, os.makedev(8, 0)),
        "setuid": lambda: os.setuid(0),
        "setns": lambda: call(308, 0, 0),
        "new mount api": lambda: call(430, b"tmpfs", 0),
        "open_tree": lambda: call(428, -100, b"/", 1),
    })
""",
    "kernel interfaces": """
def attack():
    buffer = ctypes.create_string_buffer(256)
    return worked({
        "bpf": lambda: call(321, 0, buffer, 72),
        "perf": lambda: call(298, buffer, 0, -1, -1, 0),
        "io_uring": lambda: call(425, 4, buffer),
        "userfaultfd": lambda: call(323, 0),
        "keyctl": lambda: call(250, 0, -3, 1),
        "add_key": lambda: call(248, b"user", b"x", b"y", 1, -3),
        "shared memory": lambda: call(29, 4711, 4096, 0o1666),
        "message queue": lambda: call(68, 4711, 0o1666),
        "posix queue": lambda: call(240, b"x", 66, 0o666, None),
        "memfd": lambda: call(319, b"x", 0),
        "personality": lambda: call(135, 0x0040000),
        "syslog": lambda: call(103, 3, buffer, 256),
        "reboot": lambda: call(169, 0xFEE1DEAD, 672274793, 0, None),
        "sethostname": lambda: call(170, b"x", 1),
        "kexec": lambda: call(246, 0, 0, None, 0),
        "module": lambda: call(175, buffer, 1, b""),
        "terminal input": lambda: call(16, 0, 0x5412, b"x"),
    })
""",
    "limits and scheduling of others": """
def attack():
    pair = (ctypes.c_uint64 * 2)(0, 0)
    files = resource.RLIMIT_NOFILE
    found = worked({f"limit {pid}": lambda p=pid: resource.prlimit(p, files, (0, 0)) for pid in others()})
    found += worked({f"nice {pid}": lambda p=pid: os.setpriority(os.PRIO_PROCESS, p, 19) for pid in others()})
    found += worked({f"affinity {pid}": lambda p=pid: os.sched_setaffinity(p, {0}) for pid in others()})
    found += worked({f"idle {pid}": lambda p=pid: os.sched_setscheduler(p, 5, os.sched_param(0)) for pid in others()})
    found += worked({"nice user": lambda: os.setpriority(os.PRIO_USER, os.getuid(), 19)})
    for limit in (resource.RLIMIT_CPU, resource.RLIMIT_AS, resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC):
        try:
            resource.setrlimit(limit, (1 << 40, 1 << 40))
            found.append(f"raised limit {limit}")
        except ValueError:
            pass
    return found
""",
    "links": """
def attack():
    return worked({
        "symlink to a secret": lambda: os.symlink("/etc/passwd", "/tmp/link"),
        "symlink to a host file": lambda: os.symlink(HOST_FILE, "/tmp/link2"),
        "read through a link": lambda: content("/tmp/link"),
        "hard link": lambda: os.link("/usr/bin/env", "/tmp/env"),
        "walk up": lambda: content("/tmp/../etc/passwd"),
        "fifo": lambda: os.mkfifo("/tmp/fifo"),
        "descriptor path": lambda: content("/proc/self/fd/0/../../../etc/passwd"),
    })
""",
    "running programs": """
import subprocess
def attack():
    def fork_and(run):
        pid = os.fork()
        if pid == 0:
            try:
                run()
            finally:
                os._exit(7)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 7
    return worked({
        "shell": lambda: subprocess.run(["/bin/sh", "-c", "true"]).returncode == 0,
        "exec": lambda: fork_and(lambda: os.execv("/usr/bin/env", ["env"])),
        "exec by loader": lambda: fork_and(lambda: os.execv("/lib64/ld-linux-x86-64.so.2", ["ld", "/usr/bin/env"])),
        "bwrap": lambda: subprocess.run(["bwrap", "--version"]).returncode == 0,
    })
""",
    "leftover daemon": """
def attack():
    for _ in range(3):
        if os.fork() == 0:
            os.setsid()
            if os.fork():
                os._exit(0)
            for number in range(1, 65):
                try:
                    signal.signal(number, signal.SIG_IGN)
                except (OSError, ValueError):
                    pass
            while True:
                open("/tmp/daemon", "w").close()
                open("/dev/shm/daemon", "w").close()
                time.sleep(0.005)
    time.sleep(0.1)
    return []
""",
    "poison for the next episode": """
import builtins, random
def attack():
    builtins.abs = lambda value: 0
    builtins.poisoned = True
    random.seed = random.random = lambda *arguments: 0.5
    sys.modules["math"] = None
    sys.path.insert(0, "/tmp")
    sys.setrecursionlimit(50)
    os.environ["POISON"] = "1"
    os.umask(0)
    os.chmod("/tmp", 0)
    open("/dev/shm/poison.py", "w").close()
    os.makedirs("/dev/shm/a/b/c")
    os.chmod("/dev/shm/a/b", 0)
    signal.signal(signal.SIGALRM, lambda *arguments: os._exit(0))
    signal.alarm(1)
    gc.callbacks.append(lambda *arguments: None)
    for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE):
        resource.setrlimit(limit, (8, 8))
    return []
""",
}

# What a fresh execution must look like, whatever ran before it in the same warm sandbox.
CLEAN = """
import builtins, gc, os, random, resource, signal, sys
first_random = random.random()
def attack():
    found = [name for name in ("POISON",) if name in os.environ]
    found += ["poisoned"] * hasattr(builtins, "poisoned") + ["abs"] * (abs(-1) != 1)
    found += ["path"] * ("/tmp" in sys.path) + ["recursion"] * (sys.getrecursionlimit() != 1000)
    found += [f"file {name}" for folder in ("/tmp", "/dev/shm") for name in os.listdir(folder)]
    found += ["random"] * (first_random != 0.8444218515250481)
    found += ["umask"] * (os.umask(0o22) != 0o22) + ["alarm"] * bool(signal.alarm(0)) + ["gc"] * len(gc.callbacks)
    found += ["descriptors"] * (resource.getrlimit(resource.RLIMIT_NOFILE)[0] != 64)
    found += ["processes"] * (sum(alive(pid) for pid in range(max(2, os.getpid() - 500), os.getpid() + 100)) != 2)
    return found
def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
"""

FORGERIES = {
    "early exit at import": "import os\nos._exit(0)\n",
    "early exit in the call": "def attack(): os._exit(0)\n",
    "system exit": "def attack(): sys.exit(0)\n",
    "exit of the interpreter with everything flushed": "def attack(): os.kill(os.getpid(), signal.SIGTERM)\n",
    "object that equals everything": """
class Any:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 0
    def __bool__(self): return True
def attack(): return Any()
""",
    "int that equals everything": """
class Any(int):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 0
    def __sub__(self, other): return 0
    def __reduce__(self): return (print, ("x",))
    def to_bytes(self, *arguments, **names): return b"N"
    def bit_length(self): return 0
def attack(): return Any(1)
""",
    "object with a false class": """
class Any:
    __class__ = property(lambda self: int)
    def __eq__(self, other): return True
def attack(): return Any()
""",
    "patched builtins": """
import builtins
for name in ("abs", "all", "any", "len", "isinstance", "sum", "max", "min", "repr", "sorted"):
    setattr(builtins, name, lambda *arguments, **names: 0)
builtins.AssertionError = type("AssertionError", (BaseException,), {})
builtins.compile = builtins.exec = lambda *arguments, **names: None
def attack(): return 0
""",
    "names that hide what tests use": """
def abs(value): return 0
def isinstance(*arguments): return True
def all(values): return True
def approximately(a, b): return True
class math:
    @staticmethod
    def fabs(value): return 0
    @staticmethod
    def isclose(*arguments, **names): return True
def candidate(): return 0
AssertionError = Exception
__builtins__ = {}
__debug = False
def attack(): return 0
""",
    "end of iteration": "def attack(*arguments): raise StopIteration\n",
    "end of a generator": "def attack(*arguments): raise GeneratorExit\n",
    "raised assertion": "def attack(): raise AssertionError\n",
    "raised exception with a false name": """
class KeyboardInterrupt(Exception): pass
def attack(): raise KeyboardInterrupt("x")
""",
    "search of the heap": """
def attack():
    for found in gc.get_objects():
        if isinstance(found, dict):
            for value in list(found.values()):
                if isinstance(value, int) and 8_000_000_000_000 < value < 9_000_000_000_000:
                    return value
        if isinstance(found, (list, tuple)):
            for value in list(found):
                if isinstance(value, str) and "assert" in value and "candidate()" in value and "8" in value:
                    return int(value.split("==")[1])
    return 0
""",
    "walk of the frames": """
def attack():
    frame = sys._getframe()
    while frame:
        for scope in (frame.f_locals, frame.f_globals):
            for value in list(scope.values()):
                if type(value) is int and 8_000_000_000_000 < value < 9_000_000_000_000:
                    return value
                if type(value) in (list, tuple, dict, str, bytes) and "candidate()" in repr(value):
                    return int(repr(value).split("==")[1][:14])
        frame = frame.f_back
    return 0
""",
    "raw memory": """
def attack():
    wanted = b"assert candidate" + b"() == "
    seen = 0
    # A child reads forward from known objects until it faults, and tells its parent what it saw.
    for start in [id(object()), id([]), id("x" * 100), id(sys), id(bytearray(1000))]:
        read, write = os.pipe()
        if os.fork() == 0:
            base = start & ~0xFFFFF
            for page in range(base, base + (1 << 24), 4096):
                text = ctypes.string_at(page, 4096)
                if wanted in text and b"8675" in text:
                    os.write(write, text[text.index(wanted):][:60])
            os._exit(0)
        os.close(write)
        os.wait()
        found = os.read(read, 60)
        if found:
            return int(found[len(wanted):].split()[0])
    return 0
""",
    "forged frames with a stolen nonce": """
def attack():
    wire = sys.modules["ratchet.sandbox.inside.wire"]
    nonces = [value for holder in gc.get_objects() if isinstance(holder, (dict, list, tuple))
              for value in (holder.values() if isinstance(holder, dict) else holder)
              if isinstance(value, bytes) and len(value) == 16]
    for nonce in [bytes(16), *nonces]:
        outcome = wire.frame(wire.encode((nonce, 0, "passed", None, None), 1 << 20))
        report = wire.frame(wire.encode({"nonce": nonce, "limit": None, "early": None, "checked": True, "cpu_s": 0.0,
                                         "wall_s": 0.0, "clean": True}, 1 << 20))
        for descriptor in [*range(0, 3), *range(5, 300)]:
            for frame in (outcome, report):
                try:
                    os.write(descriptor, frame)
                except OSError:
                    pass
    return 0
""",
    "answers written ahead": """
wire = sys.modules["ratchet.sandbox.inside.wire"]
for _ in range(20):
    os.write(4, wire.frame(wire.encode(("value", True), 4096)))
    os.write(4, wire.frame(wire.encode(("value", float("nan")), 4096)))
def attack(): return 0
""",
    "answers of a strange shape": """
wire = sys.modules["ratchet.sandbox.inside.wire"]
for answer in (("loaded", 5, 6), ("value",), ("raised", 1, 2), ("passed", 0), [], {}, None, ("loaded", [1], {2: 3})):
    os.write(4, wire.frame(wire.encode(answer, 4096)))
def attack(): return 0
""",
    "module planted for the checker": """
for folder in ("/tmp", "/dev/shm"):
    for name in ("statistics", "fractions", "json", "hashlib"):
        with open(f"{folder}/{name}.py", "w") as file:
            file.write("import os, builtins\\nbuiltins.AssertionError = StopIteration\\nos._exit(0)\\n")
        os.makedirs(f"{folder}/ratchet/sandbox/inside", exist_ok=True)
def attack(): return 0
""",
    "death of the checker, then a false result": """
def attack():
    for pid in others():
        for number in (9, 15, 11):
            try:
                os.kill(pid, number)
            except OSError:
                pass
    os._exit(0)
""",
    "deep value": "def attack():\n    value = []\n    for _ in range(99_999): value = [value]\n    return value\n",
    "huge value": "def attack(): return 'x' * (50 << 20)\n",
    "endless value": "def attack():\n    value = []\n    value.append(value)\n    return value\n",
    "shared value that explodes": """
def attack():
    value = [0] * 10
    for _ in range(12):
        value = [value] * 10
    return value
""",
    "generator instead of a value": "def attack():\n    yield 1\n",
    "hash collisions for the checker": "def attack(): return {n * ((1 << 61) - 1) for n in range(9000)}\n",
}
