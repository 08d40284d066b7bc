"""The orders on call4agents: the charge is an `effect` with its reconcile hook, which asks the provider."""

import importlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks.duplicates import paying

# By name: it is untyped, and not installed where types are checked.
c4a: Any = importlib.import_module("call4agents")

WORK = paying.work()


def _charged(order: str) -> int | None:
    return paying.charges(WORK.port, order) or None


def _charge(order: str) -> int:
    return int(paying.charge(WORK.port, order)["charges"])


charge: Any = c4a.effect(_charge, name="charge", reconcile=_charged)


def buy(order: str) -> bool:
    """Whether the order came to an end; False where the library says that it is in doubt."""
    with c4a.run(order):
        try:
            charge(order)
        except c4a.EffectInDoubt:
            return False
    return True


def main() -> None:
    """Make the charge of every order, in the run of its name."""
    c4a.init(str(WORK.folder / "call4agents.sqlite"))
    with ThreadPoolExecutor(len(WORK.orders)) as pool:
        finished = list(pool.map(buy, WORK.orders))
    paying.report(finished=sum(finished), in_doubt=finished.count(False))


if __name__ == "__main__":
    main()
