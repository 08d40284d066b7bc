"""A scripted model: it reads a ticket and answers as a language model would, and always answers the same.

A real model would make the demo need a key, money and a network, and no two runs would agree. The rules are tried from
the top, and the first that matches decides. The order is that of a careful desk: what needs a person comes first, then
what must be refused, and money last. A letter that no rule understands goes to a person.
"""

from dataclasses import dataclass

from milepost.cli.demo.chance import draw_between
from milepost.cli.demo.tickets import Action


@dataclass(frozen=True)
class Verdict:
    """What the model says about one ticket: what to do, why, and the letter to send."""

    action: Action
    reason: str
    reply: str


@dataclass(frozen=True)
class _Rule:
    action: Action
    reason: str
    words: tuple[str, ...]


_RULES = (
    _Rule("escalate", "someone was hurt", ("injured", "electric shock", "allergic")),
    _Rule("escalate", "law, fraud or the press", ("lawyer", "court", "fraud", "journalist")),
    _Rule("escalate", "a bereavement", ("passed away",)),
    _Rule("refuse", "the letter gives orders to the model", ("ignore your instructions", "do not ask a person")),
    _Rule("refuse", "used up or used for long", ("for a year", "years ago", "half of it", "burned down", "whole tour")),
    _Rule("refuse", "not our fault, as the customer says", ("not your fault",)),
    _Rule("voucher", "the customer keeps it", ("voucher", "store credit")),
    _Rule("refund", "charged without cause", ("charged twice", "charged me twice", "cancelled")),
    _Rule("refund", "not delivered", ("never arrived", "lost at the depot")),
    _Rule("refund", "faulty", ("arrived broken", "dead on arrival", "factory fault", "parts are missing")),
    _Rule("refund", "wrong goods, or sent back in time", ("the wrong", "i returned", "have returned")),
)

_GREETINGS = ("Hello {name},", "Dear {name},", "Good day {name},")

_BODIES: dict[Action, str] = {
    "refund": "we are sorry. We have sent your money back; your bank needs up to three days to show it.",
    "voucher": "thank you for your patience. We have added a voucher to your account for your next order.",
    "refuse": "thank you for writing. We have read your letter with care and cannot refund this order.",
    "escalate": "thank you for writing. A colleague will read your letter in person and call you back.",
}


def decide(text: str, customer: str, seed: int) -> Verdict:
    """The verdict on a letter. It depends on the arguments alone; `seed` changes the wording, never the action."""
    folded = text.casefold()
    action, reason = next(
        ((rule.action, rule.reason) for rule in _RULES if any(word in folded for word in rule.words)),
        ("escalate", "no rule understands this letter"),
    )
    greeting = _GREETINGS[draw_between(0, len(_GREETINGS) - 1, seed, "greeting", text)]
    return Verdict(action, reason, f"{greeting.format(name=customer)}\n\n{_BODIES[action]}\n\nYour refund desk\n")


def thinking_ms(text: str, seed: int) -> int:
    """How long the model takes over a letter, in milliseconds: long enough for a kill to land inside."""
    return draw_between(100, 400, seed, "thinking", text)
