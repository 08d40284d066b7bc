"""`python -m benchmarks.duplicates`: lost response, killed process, resume; who is paid counts, on every engine alike.

Each engine's worker charges all orders at once. When the provider holds a request of each, the worker is killed
(SIGKILL) and started again with the same command, and continues as its engine's documentation says. No engine gets an
idempotency key to rely on; where one has a hook that asks the provider, it is used.
"""

import argparse
import importlib.util
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.child import ROOT, command
from benchmarks.duplicates.provider import FATES, PATIENCE_S, Provider, serving

HEADINGS = ("engine", "the request was", "orders", "charges", "charged twice", "never charged", "in doubt", "right")
WIDTHS = (12, 15, 13, 7, 13, 13, 8, 5)


@dataclass(frozen=True)
class Engine:
    """An engine, the module that must be installed for it, and our program that uses it."""

    name: str
    needs: str
    program: str


ENGINES = (
    Engine("Milepost", "milepost", "benchmarks.duplicates.with_milepost"),
    Engine("DBOS", "dbos", "benchmarks.duplicates.with_dbos"),
    Engine("LangGraph", "langgraph.checkpoint.sqlite", "benchmarks.duplicates.with_langgraph"),
    Engine("call4agents", "call4agents", "benchmarks.duplicates.with_call4agents"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table. 0 if every order of ours is charged exactly once, 1 if not."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.duplicates", description=__doc__)
    parser.add_argument("--orders", type=int, default=20, help="orders in flight at the kill (default: %(default)s)")
    chosen = parser.parse_args(arguments)
    orders = tuple(f"order-{number}" for number in range(1, chosen.orders + 1))
    _print(HEADINGS)
    _print(["-" * width for width in WIDTHS])
    rows = []
    for fate in FATES:
        for engine in ENGINES:
            if installed(engine.needs):
                rows.append((engine.name, fate, *scenario(engine, fate, orders)))
            else:
                rows.append((engine.name, fate, "not installed", *[""] * 5))
            _print(rows[-1])
    return 0 if all(row[-1] == row[2] for row in rows if row[0] == ENGINES[0].name) else 1


def scenario(engine: Engine, fate: str, orders: tuple[str, ...]) -> tuple[str, ...]:
    """One engine, one fate: the numbers of one line. Raises RuntimeError where a worker fails by itself."""
    provider = Provider(orders, fate)
    with tempfile.TemporaryDirectory(prefix="milepost-duplicates-") as folder, serving(provider) as port:
        start = command(engine.program, Path(folder), port, *orders)
        _kill_in_flight(start, provider)
        provider.released.set()
        again = subprocess.run(start, cwd=ROOT, capture_output=True, text=True, check=False, timeout=2 * PATIENCE_S)
        if again.returncode != 0:
            raise RuntimeError(f"{engine.name}, {fate}: the second worker failed:\n{again.stderr[-2000:]}")
        told = json.loads(again.stdout.splitlines()[-1])
        charged = provider.settled()
    numbers = (
        len(orders),
        sum(charged),
        sum(times > 1 for times in charged),
        sum(times == 0 for times in charged),
        told["in_doubt"],
        min(charged.count(1), told["finished"]),
    )
    return tuple(str(number) for number in numbers)


def installed(module: str) -> bool:
    """Whether an engine is here. Nothing of it is imported."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _kill_in_flight(start: list[str], provider: Provider) -> None:
    with subprocess.Popen(start, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as worker:
        held = all(order.held.wait(PATIENCE_S) for order in provider.orders.values())
        worker.kill()
        _, errors = worker.communicate(timeout=PATIENCE_S)
        if not held or worker.returncode != -signal.SIGKILL:
            raise RuntimeError(f"{start[2]} did not send every request, or ended by itself:\n{errors[-2000:]}")


def _print(row: Sequence[str]) -> None:
    print("  ".join(cell.ljust(width) for cell, width in zip(row, WIDTHS, strict=True)).rstrip(), flush=True)


if __name__ == "__main__":
    sys.exit(main())
