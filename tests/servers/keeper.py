"""Runs one server, as another account if need be, and ends it when whoever asked for it is gone.

A program of its own (`keeper.py ENDING UID GID COMMAND...`, UID and GID `-` for the account it has), so that a test
run that is killed leaves no server behind: its standard input is a pipe from the asker, who dies or closes it. The
number of a signal, a line each, is passed on; the end of the input is the signal ENDING and, PATIENCE_S later,
SIGKILL. The first line of its output is the server's process id; its code is that of the server.
"""

import contextlib
import os
import subprocess
import sys
import threading

PATIENCE_S = 10


def listen(server: subprocess.Popen[bytes], ending: int) -> None:
    """Pass on what is asked for, until nobody asks."""
    for line in sys.stdin:
        server.send_signal(int(line))  # never to another: it looks first whether its process has ended
    server.send_signal(ending)
    with contextlib.suppress(subprocess.TimeoutExpired):
        server.wait(PATIENCE_S)
    server.kill()


def main() -> int:
    """Run the server to its end."""
    ending, uid, gid, *command = sys.argv[1:]
    if uid == "-":
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr)
    else:
        server = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=sys.stderr, user=int(uid), group=int(gid), extra_groups=[]
        )
    sys.stdout.write(f"{server.pid}\n")
    sys.stdout.flush()
    threading.Thread(target=listen, args=(server, int(ending)), daemon=True).start()
    code = server.wait()
    return 128 - code if code < 0 else code


if __name__ == "__main__":
    os._exit(main())  # whoever still holds the pipe is not waited for
