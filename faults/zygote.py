"""A process that has imported everything and forks workers on demand: `python -m faults.zygote`.

Thousands of processes are started and killed; most of the time of each would go into imports. Each line on standard
input is an `Order`; the answer is the id of the child. The child is a process like any other: it opens its own files,
is killed for itself, and leaves nothing behind but what a killed worker leaves. Its end is written to the order's
`status` file. All end with this process, and this process with its standard input.
"""

import ctypes
import os
import random
import resource
import select
import signal
import sys
import traceback
from pathlib import Path

import msgspec

from faults import worker

PR_SET_PDEATHSIG = 1
PR_SET_PTRACER = 0x59616D61
ANY_PROCESS = ctypes.c_ulong(-1)
LIBC = ctypes.CDLL(None, use_errno=True)


class Order(msgspec.Struct, frozen=True):
    """A worker to be started: its folder, its arguments, and whether it waits (stopped) until it is told to go on.

    `fsize` bounds the size of its files and `memory` its address space, both in bytes.
    """

    folder: str
    arguments: tuple[str, ...]
    out: str
    err: str
    status: str
    waits: bool = False
    fsize: int | None = None
    memory: int | None = None
    environment: dict[str, str] = {}


def live(order: Order, born_of: int) -> int:
    """Be the child."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    LIBC.prctl(PR_SET_PTRACER, ANY_PROCESS, 0, 0, 0)
    if os.getppid() != born_of:
        return 1
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    files = [
        (os.devnull, os.O_RDONLY),
        *((path, os.O_WRONLY | os.O_CREAT | os.O_APPEND) for path in (order.out, order.err)),
    ]
    for number, (path, flags) in enumerate(files):
        file = os.open(path, flags, 0o600)
        os.dup2(file, number)
        os.close(file)
    for kind, most in ((resource.RLIMIT_FSIZE, order.fsize), (resource.RLIMIT_AS, order.memory)):
        if most is not None:
            resource.setrlimit(kind, (most, most))
    os.environ.update(order.environment)
    random.seed()
    if order.waits:
        os.kill(os.getpid(), signal.SIGSTOP)
    return worker.main(Path(order.folder), list(order.arguments))


def fork(order: Order) -> int:
    """Start a child; return its id."""
    mother = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        code = live(order, mother)
    except BaseException:  # noqa: BLE001  a child never returns into the loop of its mother
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def reap(statuses: dict[int, Path]) -> None:
    """Write down the end of each child that has ended."""
    while statuses:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        path = statuses.pop(pid)
        part = path.with_suffix(".part")
        part.write_text(str(os.waitstatus_to_exitcode(status)))
        part.replace(path)


def main() -> None:
    """Take orders until standard input ends."""
    statuses: dict[int, Path] = {}
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakes)
    waiting = b""
    while True:
        ready, _, _ = select.select([0, woken], [], [])
        if woken in ready:
            os.read(woken, 4_096)
        reap(statuses)
        if 0 not in ready:
            continue
        read = os.read(0, 65_536)
        if not read:
            return
        *lines, waiting = (waiting + read).split(b"\n")
        for line in lines:
            order = msgspec.json.decode(line, type=Order)
            pid = fork(order)
            statuses[pid] = Path(order.status)
            os.write(1, f"{pid}\n".encode())
            reap(statuses)


if __name__ == "__main__":
    main()
