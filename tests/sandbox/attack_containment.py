"""Hostile programs that list what they managed to do; their test demands an empty list.

System call numbers are those of x86-64.
"""

from __future__ import annotations

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
