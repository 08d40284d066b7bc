"""The tickets of the refund desk, shipped as a data file."""

from importlib import resources
from typing import Literal, TypeAlias

import msgspec

Action: TypeAlias = Literal["refund", "voucher", "refuse", "escalate"]

TICKET_HEADER = "X-Ticket"  # the header of a mail that says which ticket it answers


class Ticket(msgspec.Struct, frozen=True):
    """One letter from a customer. `cents` is what the order, or the voucher asked for, is worth.

    `label` is what a person at the desk would do. The model never sees it: the count at the end is taken against it.
    """

    id: str
    customer: str
    email: str
    order: str
    cents: int
    label: Action
    text: str


def load_tickets() -> tuple[Ticket, ...]:
    """Every ticket, in the order of arrival."""
    data = resources.files(__package__).joinpath("data", "tickets.json").read_bytes()
    return msgspec.json.decode(data, type=tuple[Ticket, ...])
