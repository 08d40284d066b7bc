"""The worker process of the refund desk: `python -m milepost.cli.demo.desk_worker`. Kill it at any instruction.

It starts a run for each ticket, keyed by the ticket's id, so that after a restart the same start finds the same run.
Then it serves, a few runs at once, as `milepost worker` does. It ends with status 0 when no run can move without a
person.
"""

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path

import milepost as mp
from milepost.cli.demo.desk import Case, desk, desk_app
from milepost.cli.demo.tickets import Ticket, load_tickets
from milepost.stores.api import Query

_TOGETHER = 3
_LOOK_SECONDS = 0.05
_SHARED_OPTIONS = ("--store", "--seed", "--payments-port", "--mail-port", "--tickets")


async def work(serving: mp.App, asking: mp.App, tickets: Sequence[Ticket], seed: int) -> None:
    """Bring every ticket to its end, or to a person. `asking` starts and looks, `serving` drives."""
    stop = asyncio.Event()
    async with asking.client(), asyncio.TaskGroup() as group:
        await asyncio.gather(*(asking.start(desk, Case(ticket, seed), key=ticket.id) for ticket in tickets))
        group.create_task(serving.serve(stop, together=_TOGETHER, grace="2s"))
        while await _can_move(asking, len(tickets)):  # noqa: ASYNC110 - the state is in the store, and others may change it
            await asyncio.sleep(_LOOK_SECONDS)
        stop.set()


async def _can_move(app: mp.App, most: int) -> bool:
    """Whether a run is held by a worker, or due now or later: else only a person can move what is left."""
    rows = await app.inspect.runs(Query(limit=most))
    return any(row.owner is not None or row.due is not None for row in rows)


def arguments(store: Path, seed: int, ports: tuple[int, int], tickets: int) -> list[str]:
    """The command line of a worker. `ports` are those of the payment service and of the mail server."""
    values = (f"sqlite:///{store.resolve()}", seed, *ports, tickets)
    return [str(word) for pair in zip(_SHARED_OPTIONS, values, strict=True) for word in pair]


def main(argv: Sequence[str] | None = None) -> None:
    """Work through the tickets."""
    parser = argparse.ArgumentParser(description="The worker of the demo's refund desk.")
    parser.add_argument("--store", required=True)
    for option in _SHARED_OPTIONS[1:]:
        parser.add_argument(option, type=int, required=True)
    options = parser.parse_args(argv)
    serving, asking = (desk_app(options.store, options.payments_port, options.mail_port) for _ in range(2))
    asyncio.run(work(serving, asking, load_tickets()[: options.tickets], options.seed))


if __name__ == "__main__":
    main()
