"""The worker process of the refund desk: `python -m milepost.cli.demo.desk_worker`. Kill it at any instruction.

It starts a run for each ticket, a few at a time, keyed by the ticket's id: after a restart the same start finds the
same run. It ends with status 0 when every run is done or waits for a person.
"""

import argparse
import asyncio
from collections.abc import Iterator, Sequence

import milepost as mp
from milepost.cli.demo.desk import Case, desk, desk_app
from milepost.cli.demo.tickets import Ticket, load_tickets

_AT_ONCE = 2
_LOOK_SECONDS = 0.02
_ENDED = {"done", "failed", "cancelled", "killed", "blocked"}


async def work(app: mp.App, tickets: Sequence[Ticket], seed: int) -> None:
    """Bring every ticket to its end, or to a person."""
    waiting_tickets = iter(tickets)
    async with app, asyncio.TaskGroup() as group:
        for _ in range(_AT_ONCE):
            group.create_task(_serve(app, waiting_tickets, seed))


async def _serve(app: mp.App, tickets: Iterator[Ticket], seed: int) -> None:
    for ticket in tickets:
        handle = await app.start(desk, Case(ticket, seed), key=ticket.id)
        while not _is_settled(await handle.status()):  # noqa: ASYNC110 - the state is in the store, and others may change it
            await asyncio.sleep(_LOOK_SECONDS)


def _is_settled(view: mp.RunView) -> bool:
    """Whether nothing but a person can move this run."""
    return view.status in _ENDED or (view.waiting is not None and view.waiting.reason == "person")


def main(argv: Sequence[str] | None = None) -> None:
    """Work through the tickets."""
    parser = argparse.ArgumentParser(description="The worker of the demo's refund desk.")
    parser.add_argument("--store", required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--payments-port", type=int, required=True)
    parser.add_argument("--mail-port", type=int, required=True)
    options = parser.parse_args(argv)
    app = desk_app(options.store, options.payments_port, options.mail_port)
    asyncio.run(work(app, load_tickets(), options.seed))


if __name__ == "__main__":
    main()
