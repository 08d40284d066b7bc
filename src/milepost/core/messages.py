"""What may reach a run from outside its owner: the inbox, free of epochs.

Anybody with the store may put a message in; only the owner of the run turns it into entries, in the transaction that
marks it taken. So an operator never waits for a worker, and a worker that lost its epoch can still say what it saw.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Literal

import msgspec


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="message"):
    """What every message has: when it was sent and by whom."""

    at: int
    by: str = ""


class Send(Message, frozen=True, tag="send.1"):
    """A named signal with a value."""

    id: str
    name: str
    value: msgspec.Raw


class Cancel(Message, frozen=True, tag="cancel.1"):
    """Start nothing new; let what is in flight finish."""

    why: str


class Grant(Message, frozen=True, tag="grant.1"):
    """Widen the authority or the budget of the run. Where it is signed, `id` is its own (core/words.py)."""

    scopes: tuple[str, ...] = ()
    budget: dict[str, Decimal] = {}
    why: str = ""
    id: str = ""
    signature: str = ""


class Revoke(Message, frozen=True, tag="revoke.1"):
    """Take scopes from the run, or lower what it was granted to these ceilings."""

    scopes: tuple[str, ...] = ()
    ceilings: dict[str, Decimal] = {}
    why: str = ""


class Answer(Message, frozen=True, tag="answer.1"):
    """A verdict on an approval, given `at`. `digest` is of the arguments that were shown to who gave it."""

    approval: str
    approved: bool
    why: str = ""
    digest: str = ""
    signature: str = ""


class Resolve(Message, frozen=True, tag="resolve.1"):
    """A person settles an unknown effect. `answer` is happened, did_not_happen or rejected; `id` as in Grant."""

    path: str
    answer: str
    why: str
    value: msgspec.Raw = msgspec.Raw(b"null")
    id: str = ""
    signature: str = ""


Sight = Literal["returned", "not_sent", "rejected", "unknown"]


class Evidence(Message, frozen=True, tag="evidence.1"):
    """What a worker without the epoch saw of its own attempt. `saw` is returned, not_sent, rejected or unknown.

    Sending it also says that the attempt is quiet: its code has returned. `key` names the effect: another one may stand
    at its step by now. It is empty where an older version sent this.
    """

    visit: int
    step: str
    path: str
    attempt: int
    saw: str
    value: msgspec.Raw = msgspec.Raw(b"null")
    why: str = ""
    key: str = ""


class Child(Message, frozen=True, tag="child.1"):
    """A child run ended."""

    child: str
    status: str
    result: msgspec.Raw = msgspec.Raw(b"null")
    why: str = ""


class Retry(Message, frozen=True, tag="retry.1"):
    """Re-enter a failed segment, keeping its finished steps."""

    why: str = ""


class Recheck(Message, frozen=True, tag="recheck.1"):
    """Look again at what the run waits for: something outside it has changed. It changes nothing by itself."""


class Resume(Message, frozen=True, tag="resume.1"):
    """Lift a block, once what blocked the run was checked again by whoever holds it."""

    why: str = ""


class Rewind(Message, frozen=True, tag="rewind.1"):
    """Undo what happened since the boundary of visit `to`, and go on from there."""

    to: int
    why: str = ""


AnyMessage = Send | Cancel | Grant | Revoke | Answer | Resolve | Evidence | Child | Retry | Recheck | Resume | Rewind

_decoder: msgspec.json.Decoder[AnyMessage] = msgspec.json.Decoder(AnyMessage)


def decode(body: bytes) -> AnyMessage:
    """Return the message that these bytes hold. Raises msgspec.DecodeError for anything else."""
    try:
        return _decoder.decode(body)
    except (RecursionError, UnicodeDecodeError) as error:
        raise msgspec.DecodeError(str(error)) from error


def encode(message: Message) -> bytes:
    """Return the bytes of a message."""
    return msgspec.json.encode(message)
