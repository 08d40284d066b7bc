"""The worker process of the sweep: makes the calls of one task as one run, or stops where it is to be killed.

It is forked from a template that has everything imported, so that a start costs milliseconds; to the kernel, to the
store and to whoever kills it, it is a process like any other. The same start again continues the same run: its key is
the account.
"""

import asyncio
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Literal

import milepost as mp
from evaluation.acting import LOOKS, WRITE, Nowhere, Outside, Planned, Progress, Stop, outside_at, solving
from evaluation.classes import Class
from evaluation.points import Moment
from milepost.app import App  # not mp.App, which would be imported by each worker for itself, at its first use

Said = tuple[Literal["at the point"], None] | tuple[Literal["done"], list[str]] | tuple[Literal["person", "broke"], str]
"""What a worker tells its driver: that it may be killed now, its result, who it needs, or why it could not go on."""


@dataclass(frozen=True)
class Order:
    """What one worker is to do: the store, the port of the outside world, the account, and the calls to make.

    `stop` is the place where it is to be killed, if it is. `otherwise` claims another class for some tools than the
    table; that is for tests, which show what a wrong claim leads to.
    """

    store: str
    port: int
    account: str
    calls: tuple[tuple[str, dict[str, Any]], ...]
    stop: tuple[int, Moment] | None = None
    otherwise: Mapping[str, Class] | None = None


class Here:
    """A stop that tells the driver when it is reached, and then waits for the kill while the runtime lives on."""

    def __init__(self, driver: Connection, position: int, moment: Moment) -> None:
        self._driver = driver
        self._place = (position, moment)

    async def reached(self, position: int, moment: Moment) -> None:
        """Wait for ever, if this is the place."""
        if (position, moment) == self._place:
            self._driver.send(("at the point", None))
            await asyncio.Event().wait()


def perform(order: Order, driver: Connection) -> None:
    """Drive the run to its end, and tell the driver what came of it."""
    stop: Stop = Nowhere() if order.stop is None else Here(driver, *order.stop)
    workflow = solving(stop, order.otherwise)
    app = App(
        f"sqlite:///{order.store}",
        workflows=[workflow],
        resources={Outside: outside_at(order.port, order.account, stop)},
    )
    try:
        answers = app.run(
            workflow,
            Progress([Planned(function, args) for function, args in order.calls]),
            key=order.account,
            authority=mp.Authority("evaluation", scopes={WRITE}),
            budget={LOOKS: len(order.calls) + 1},  # an attempt that is lost has been charged for too
        )
        asyncio.run(stop.reached(len(order.calls) - 1, "between"))
        driver.send(("done", answers))
    except mp.NeedsPerson as needed:
        driver.send(("person", needed.run_id))
    except Exception:  # noqa: BLE001 - whatever it was, the driver says so in its table
        driver.send(("broke", traceback.format_exc()))


def calls_of(calls: Sequence[Any]) -> tuple[tuple[str, dict[str, Any]], ...]:
    """Ground-truth calls as an order has them."""
    return tuple((call.function, call.args) for call in calls)
