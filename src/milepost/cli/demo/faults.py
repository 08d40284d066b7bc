"""How the outside world misbehaves: a pure function of the seed, of what is asked for, and of how often it was asked.

The fault of an attempt does not depend on when it comes or on what came before it, so a run of the demo can be repeated
from its seed. Misbehaviour is bounded: from attempt `WELL_BEHAVED_FROM` on, the same thing is always answered as it
should be. Without that bound a retry loop might meet an endless row of errors, and a failing demo would prove nothing.
"""

from dataclasses import dataclass
from enum import StrEnum

from milepost.cli.demo.chance import draw, draw_between

WELL_BEHAVED_FROM = 4
_MAIL_DROPS = 0.08


class Fault(StrEnum):
    """What the payment service does to one request."""

    NONE = "none"
    LOST_ANSWER = "lost_answer"  # applied; the connection is closed without a byte
    ERROR_AFTER = "error_after"  # applied; answered 500
    ERROR_BEFORE = "error_before"  # not applied; answered 500
    BUSY = "busy"  # not applied; answered 503 with Retry-After


_SHARES = (
    (Fault.LOST_ANSWER, 0.13),
    (Fault.ERROR_AFTER, 0.09),
    (Fault.ERROR_BEFORE, 0.08),
    (Fault.BUSY, 0.06),
)


@dataclass(frozen=True)
class Behaviour:
    """A fault, and the delays in milliseconds before and after the moment at which the effect is applied."""

    fault: Fault
    before_ms: int
    after_ms: int


@dataclass(frozen=True)
class MailBehaviour:
    """Whether the mail server hangs up after it took the mail, and its delays in milliseconds round that moment."""

    drops: bool
    before_ms: int
    after_ms: int


def payment_behaviour(seed: int, kind: str, order: str, attempt: int) -> Behaviour:
    """What the payment service does to the given attempt (the first is 1) at one kind of effect on one order."""
    about = (seed, kind, order, attempt)
    slow = 350 if attempt < WELL_BEHAVED_FROM and draw(*about, "slow") < 0.1 else 0  # noqa: PLR2004 - one in ten
    return Behaviour(
        _fault(draw(*about, "fault"), attempt),
        before_ms=draw_between(20, 110, *about, "before"),
        after_ms=draw_between(20, 110, *about, "after") + slow,
    )


def mail_behaviour(seed: int, ticket: str, attempt: int) -> MailBehaviour:
    """What the mail server does to the given attempt (the first is 1) at the mail of one ticket."""
    about = (seed, "mail", ticket, attempt)
    return MailBehaviour(
        drops=attempt < WELL_BEHAVED_FROM and draw(*about, "drop") < _MAIL_DROPS,
        before_ms=draw_between(2, 8, *about, "before"),
        after_ms=draw_between(2, 8, *about, "after"),
    )


def _fault(point: float, attempt: int) -> Fault:
    if attempt >= WELL_BEHAVED_FROM:
        return Fault.NONE
    reached = 0.0
    for fault, share in _SHARES:
        reached += share
        if point < reached:
            return fault
    return Fault.NONE
