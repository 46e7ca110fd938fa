"""The seccomp filter: the system calls that Python needs, and no other.

Everything else fails with EPERM. Not in the list: sockets (but socketpair), tracing, namespaces, mounts, keys, BPF,
io_uring, performance counters, System V and POSIX queues, and every call that changes the scheduling, the limits or
the memory of another process. `clone` may make no namespace; `clone3` hides its flags in memory, so it fails with
ENOSYS and libc falls back to `clone`.
"""

from __future__ import annotations

import errno
import functools
import tempfile

_ALLOWED = """
access alarm arch_prctl brk chdir chmod clock_getres clock_gettime clock_nanosleep close close_range copy_file_range
creat dup dup2 dup3 epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait eventfd eventfd2 execve
exit exit_group faccessat faccessat2 fadvise64 fallocate fchdir fchmod fchmodat fcntl fdatasync flock fork fstat fstatfs
fsync ftruncate futex futex_waitv get_robust_list getcpu getcwd getdents getdents64 getegid geteuid getgid getgroups
getitimer getpgid getpgrp getpid getppid getpriority getrandom getresgid getresuid getrlimit getrusage getsid gettid
gettimeofday getuid kill landlock_add_rule landlock_create_ruleset landlock_restrict_self lseek lstat madvise membarrier
mincore mkdir mkdirat mlock mmap mprotect mremap msync munlock munmap nanosleep newfstatat open openat openat2
pause pidfd_open pipe pipe2 poll ppoll pread64 preadv preadv2 pselect6 pwrite64 pwritev pwritev2 read readahead readlink
readlinkat readv recvfrom recvmsg rename renameat renameat2 restart_syscall rmdir rseq rt_sigaction rt_sigpending
rt_sigprocmask rt_sigreturn rt_sigsuspend rt_sigtimedwait sched_get_priority_max sched_get_priority_min
sched_getaffinity sched_getparam sched_getscheduler sched_yield select sendfile sendmsg sendto set_robust_list
set_tid_address setitimer setpgid setrlimit setsid shutdown sigaltstack socketpair splice stat statfs statx
symlink symlinkat sysinfo tgkill time times tkill truncate umask uname unlink unlinkat utime utimensat utimes vfork
wait4 waitid write writev
"""
# Flags of clone that make namespaces: CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET.
_NEW_NAMESPACES = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
_HARMLESS_IOCTLS = (
    0x5401,
    0x5413,
    0x541B,
    0x5421,
    0x5450,
    0x5451,
)  # TCGETS TIOCGWINSZ FIONREAD FIONBIO FIONCLEX FIOCLEX
_HARMLESS_PRCTLS = (1, 2, 3, 4, 15, 16, 38, 39)  # PDEATHSIG, DUMPABLE, NAME, NO_NEW_PRIVS: get and set


@functools.cache
def filter_program() -> bytes:
    """Return the compiled filter (classic BPF) for this machine. Raises RuntimeError where libseccomp is missing."""
    import pyseccomp as seccomp  # raises RuntimeError at import when the library is not there

    rules = seccomp.SyscallFilter(seccomp.ERRNO(errno.EPERM))
    for name in _ALLOWED.split():
        # A name that this architecture does not have is a negative number, and needs no rule.
        if seccomp.resolve_syscall(seccomp.system_arch(), name) >= 0:
            rules.add_rule(seccomp.ALLOW, name)
    rules.add_rule(seccomp.ERRNO(errno.ENOSYS), "clone3")
    rules.add_rule(seccomp.ALLOW, "clone", seccomp.Arg(0, seccomp.MASKED_EQ, _NEW_NAMESPACES, 0))
    rules.add_rule(seccomp.ALLOW, "prlimit64", seccomp.Arg(0, seccomp.EQ, 0))
    for name in ("listxattr", "llistxattr", "flistxattr", "getxattr", "lgetxattr", "fgetxattr"):
        # What libraries understand as "this file system has none"; `shutil.copy2` fails on any other error.
        rules.add_rule(seccomp.ERRNO(errno.ENOTSUP), name)
    for request in _HARMLESS_IOCTLS:
        rules.add_rule(seccomp.ALLOW, "ioctl", seccomp.Arg(1, seccomp.EQ, request))
    for option in _HARMLESS_PRCTLS:
        rules.add_rule(seccomp.ALLOW, "prctl", seccomp.Arg(0, seccomp.EQ, option))
    with tempfile.TemporaryFile() as file:
        rules.export_bpf(file)
        file.seek(0)
        return file.read()
