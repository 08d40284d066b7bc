"""What a user says of queues: where a run stands, and how many may go at once."""

from __future__ import annotations

from typing import Any

from milepost.core.duration import Duration, parse_ms
from milepost.core.queues import PRIORITY_MOST, Limit, Place
from milepost.definitions.tools import checked_name
from milepost.errors import InvalidDeclaration, InvalidValue

GROUP_CHARS = 200


def checked_queue(name: Any) -> str:
    """Return the name of a queue. Raises InvalidDeclaration for one that is none."""
    return checked_name(name, "queue")


def place(queue: Any, priority: Any, group: Any, begins_at: int | None) -> Place:
    """Return where a run is to stand. Raises InvalidValue; moments are milliseconds since 1970."""
    what = "queue"
    try:
        checked_queue(queue)
    except InvalidDeclaration as error:
        raise InvalidValue(what, str(error)) from error
    if type(priority) is not int or abs(priority) > PRIORITY_MOST:
        what, why = "priority", f"{priority!r} is no whole number from -{PRIORITY_MOST} to {PRIORITY_MOST}"
        raise InvalidValue(what, why)
    if group is not None and (not isinstance(group, str) or not 0 < len(group) <= GROUP_CHARS):
        what, why = "group", f"{group!r:.60} is no text of 1 to {GROUP_CHARS} characters"
        raise InvalidValue(what, why)
    return Place(queue, priority, group, begins_at)


def limit(
    queue: str, by: str, together: int | None, starts: int | None, per: Duration | None, *, while_waiting: bool
) -> Limit:
    """Return a limit. Raises InvalidDeclaration for one that says nothing, or that would let nothing through."""
    what = f"limit of queue {checked_queue(queue)!r}"
    if by not in {"queue", "group"}:
        raise InvalidDeclaration(f'{what}: by={by!r}. Write by="queue", or by="group" for each of its groups.')
    if together is None and starts is None:
        raise InvalidDeclaration(f'{what} limits nothing: give it together=5, or starts=100, per="1m".')
    for name, number in (("together", together), ("starts", starts)):
        if number is not None and (type(number) is not int or number < 1):
            raise InvalidDeclaration(f"{what}: {name}={number!r} would let nothing through. Give it 1 or more.")
    if (starts is None) != (per is None):
        raise InvalidDeclaration(f'{what}: starts= and per= belong together, such as starts=100, per="1m".')
    try:
        per_ms = 0 if per is None else parse_ms(per)
    except ValueError as error:
        raise InvalidDeclaration(f"{what}: {error}") from error
    if per is not None and per_ms < 1:
        raise InvalidDeclaration(f"{what}: per={per!r} is no time at all.")
    if while_waiting and together is None:
        raise InvalidDeclaration(f"{what}: while_waiting= says what together= counts. Give it together=1.")
    return Limit(queue, by == "group", together, while_waiting, starts, per_ms)
