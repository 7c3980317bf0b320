"""`import jupyter_dist` and its modules work on macOS: nothing that only Linux has is needed at import.

Simulated on Linux: what macOS lacks is taken away before our modules are imported. Whether runs work there is
not tested.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest

from jupyter_dist.conformance.deadlines import run_process
from tests.tiers.import_graph import MODULES, ROOT

MACOS = """
import ctypes, fcntl, importlib, json, os, select, signal, socket, sys, time
import resource, selectors, sysconfig, urllib.request
sysconfig.get_config_vars()  # Python's own answers depend on the platform, and are kept
for other in "anywidget cloudpickle IPython numpy pydantic tornado jupyter_server.extension.handler".split():
    try:
        importlib.import_module(other)
    except ImportError:
        pass

ONLY_LINUX = {
    os: '''
        sched_getaffinity sched_setaffinity sched_getparam sched_setscheduler pidfd_open
        memfd_create eventfd splice copy_file_range getrandom posix_fadvise posix_fallocate pipe2
        fdatasync setresuid getresuid setns unshare getxattr setxattr listxattr removexattr
        O_TMPFILE O_PATH O_DIRECT O_LARGEFILE O_NOATIME O_RSYNC P_PIDFD MFD_CLOEXEC EFD_CLOEXEC
        SCHED_BATCH SCHED_IDLE RTLD_DEEPBIND POSIX_FADV_DONTNEED SPLICE_F_MOVE''',
    signal: "SIGRTMIN SIGRTMAX SIGPOLL SIGPWR SIGSTKFLT SIGCLD pidfd_send_signal sigtimedwait sigwaitinfo",
    fcntl: '''
        F_SETPIPE_SZ F_GETPIPE_SZ F_OFD_GETLK F_OFD_SETLK F_OFD_SETLKW F_SETSIG F_GETSIG F_ADD_SEALS
        F_GET_SEALS F_SEAL_WRITE F_SETLEASE F_GETLEASE F_NOTIFY DN_CREATE''',
    select: "epoll EPOLLIN EPOLLOUT EPOLLRDHUP EPOLLET POLLRDHUP",
    selectors: "EpollSelector",
    socket: '''
        AF_NETLINK AF_PACKET AF_VSOCK AF_ALG AF_CAN SOCK_CLOEXEC SOCK_NONBLOCK SO_BINDTODEVICE
        SO_PEERCRED SO_PASSCRED SO_MARK SO_DOMAIN SO_PROTOCOL TCP_USER_TIMEOUT TCP_QUICKACK
        TCP_DEFER_ACCEPT TCP_CORK TCP_LINGER2 TCP_SYNCNT TCP_KEEPIDLE MSG_NOSIGNAL MSG_CMSG_CLOEXEC
        MSG_ERRQUEUE MSG_MORE''',
    resource: "RLIMIT_NICE RLIMIT_RTPRIO RLIMIT_SIGPENDING RLIMIT_MSGQUEUE prlimit RUSAGE_THREAD",
    time: "CLOCK_BOOTTIME CLOCK_TAI",
}
for module, names in ONLY_LINUX.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)

class Library:
    "A C library without Linux's own functions."
    def __init__(self, library):
        object.__setattr__(self, "_library", library)
    def __getattr__(self, name):
        if name in ("prctl", "inotify_init1", "inotify_add_watch", "inotify_rm_watch", "epoll_create1"):
            raise AttributeError(name)
        return getattr(self._library, name)

class CDLL:
    def __new__(cls, name=None, *args, **kwargs):
        return Library(real(name, *args, **kwargs))

real, ctypes.CDLL = ctypes.CDLL, CDLL
sys.platform = "darwin"
"""


def macos(code: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-W", "error", "-c", MACOS + code]
    return run_process(words, cwd=ROOT)


def test_the_package_is_imported() -> None:
    done = macos("import jupyter_dist\nprint(jupyter_dist.rank(), jupyter_dist.world_size())")
    assert (done.returncode, done.stdout) == (0, "0 1\n"), done.stderr


def test_every_module_is_imported() -> None:
    names = [name for name in MODULES if not name.endswith("__main__")]
    if find_spec("jupyter_server") is None:
        names = [name for name in names if not name.startswith("jupyter_dist.server")]
    code = f"""
import traceback
failed = {{}}
for name in {names!r}:
    try:
        importlib.import_module(name)
    except Exception as error:
        failed[name] = traceback.format_exc()
print(json.dumps(failed))
"""
    done = macos(code)
    assert (done.returncode, done.stdout) == (0, "{}\n"), done.stdout + done.stderr


@pytest.mark.parametrize("name", ["SIGRTMIN", "sched_getaffinity", "F_SETPIPE_SZ"])
def test_the_simulation_takes_away_what_it_says(name: str) -> None:
    done = macos(f"print([hasattr(module, {name!r}) for module in (os, signal, fcntl)], sys.platform)")
    assert done.stdout == "[False, False, False] darwin\n", done.stderr
