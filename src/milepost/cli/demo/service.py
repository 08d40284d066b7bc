"""What both services of the outside world do as processes: say where they listen, and end with whoever started them."""

import argparse
import os
import sys
from pathlib import Path
from threading import Thread

LOOPBACK = "127.0.0.1"


def arguments(what: str) -> argparse.ArgumentParser:
    """The command line of a service."""
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--ledger", type=Path, required=True, help="the SQLite file of what was done")
    parser.add_argument("--seed", type=int, required=True, help="decides how the service misbehaves")
    parser.add_argument("--port-file", type=Path, required=True, help="written with the port once the service listens")
    parser.add_argument(
        "--end-with-stdin", action="store_true", help="end when standard input ends, as it does when the parent dies"
    )
    return parser


def announce(port_file: Path, port: int) -> None:
    """Write the port so that a reader sees the whole number or no file."""
    written = port_file.with_suffix(".part")
    written.write_text(f"{port}\n")
    written.replace(port_file)


def end_with_stdin() -> None:
    """End this process when its standard input ends.

    The parent holds the other end of that pipe and never writes. However the parent dies, the pipe closes, and no
    service stays behind. The ledgers need no goodbye.
    """

    def wait() -> None:
        # The descriptor itself, without Python's buffered reader: its lock would be held for good by this thread.
        while os.read(sys.stdin.fileno(), 1):
            continue
        os._exit(0)

    Thread(target=wait, name="end-with-stdin", daemon=True).start()
