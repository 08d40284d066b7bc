"""What every engine's program does: ask the provider to charge an order, or which charges an order has."""

import argparse
import http.client
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_TIMEOUT_S = 60


@dataclass(frozen=True)
class Work:
    """What one worker process is to do: charge the orders, all at once, and continue where an earlier one died."""

    folder: Path
    port: int
    orders: tuple[str, ...]


def work() -> Work:
    """Read the command line: a folder for the engine's own record, the provider's port, the orders."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("port", type=int)
    parser.add_argument("orders", nargs="+")
    chosen = parser.parse_args()
    return Work(chosen.folder, chosen.port, tuple(chosen.orders))


def charge(port: int, order: str) -> dict[str, Any]:
    """Charge an order. Raises OSError or HTTPException where no answer came: it may have been charged."""
    return _ask("POST", port, order)


def charges(port: int, order: str) -> int:
    """How often an order has been charged, as far as the provider's books show now."""
    return int(_ask("GET", port, order)["charges"])


def report(*, finished: int, in_doubt: int) -> None:
    """Tell the driver what came of the orders."""
    print(json.dumps({"finished": finished, "in_doubt": in_doubt}), flush=True)


def _ask(method: str, port: int, order: str) -> dict[str, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_S)
    try:
        connection.request(method, f"/{order}")
        answer: dict[str, Any] = json.loads(connection.getresponse().read())
        return answer
    finally:
        connection.close()
