"""The orders on DBOS: the charge is a step. What was pending when the process died is recovered at launch."""

import os
from collections.abc import Callable

from dbos import DBOS, DBOSConfig, SetWorkflowID

from benchmarks.duplicates import paying


def _charge(port: int, order: str) -> int:
    return int(paying.charge(port, order)["charges"])


def _buy(port: int, order: str) -> int:
    return charge(port, order)


# Not as decorators: where DBOS is not installed, a type checker would find every function untyped.
charge: Callable[[int, str], int] = DBOS.step()(_charge)
buy: Callable[[int, str], int] = DBOS.workflow()(_buy)


def main() -> None:
    """Start every order, or find it, and wait for all of them."""
    work = paying.work()
    config: DBOSConfig = {
        "name": "duplicates",
        "system_database_url": f"sqlite:///{work.folder}/dbos.sqlite",
        "log_level": "CRITICAL",
    }
    DBOS(config=config)
    DBOS.launch()
    handles = []
    for order in work.orders:
        if DBOS.get_workflow_status(order) is None:
            with SetWorkflowID(order):
                handles.append(DBOS.start_workflow(buy, work.port, order))
        else:
            handles.append(DBOS.retrieve_workflow(order))
    finished = [handle.get_result() for handle in handles]
    paying.report(finished=len(finished), in_doubt=0)
    os._exit(0)  # its threads take seconds to stop, and there is nothing left to keep


if __name__ == "__main__":
    main()
