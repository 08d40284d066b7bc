"""What is said in a conversation: the words of people, the replies of the model, the answers to its calls.

Plain values of our own, because they stand in checkpoints for years. What a provider needs back word for word, and that
these do not say (signed thinking, say), travels beside them as `Reply.native`, and is never read to decide anything.

The rule of a conversation: each call of a reply is answered right after it, before anything else is said; no provider
takes it otherwise. An answer says how the call came out, and only settled calls may stand in a checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from milepost.definitions.values import encode

CallOutcome: TypeAlias = Literal["confirmed", "failed", "denied", "invalid", "not_started", "started", "unknown"]
SETTLED = frozenset({"confirmed", "failed", "denied", "invalid"})


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tokens as the provider counted them; `cached` are those of `input` that it had read before."""

    input: int = 0
    output: int = 0
    cached: int = 0
    requests: int = 0

    def __add__(self, other: Usage) -> Usage:
        """Return the sum."""
        return Usage(
            self.input + other.input, self.output + other.output, self.cached + other.cached,
            self.requests + other.requests,
        )  # fmt: skip

    @property
    def tokens(self) -> int:
        """Input and output together."""
        return self.input + self.output


class ToolCall(msgspec.Struct, frozen=True):
    """A call that the model asks for: `arguments` is JSON text, as the model wrote it."""

    id: str
    tool: str
    arguments: str


class Words(msgspec.Struct, frozen=True, tag="words"):
    """What a person, or the program in a person's place, says to the model."""

    text: str


class Reply(msgspec.Struct, frozen=True, tag="reply", omit_defaults=True):
    """What the model said, and the calls that it asks for.

    `finish` is why it ended, in the provider's word (`length`: it was cut off); `native` the provider's own form, where
    that holds more than this.
    """

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    model: str = ""
    usage: Usage = Usage()
    finish: str = ""
    native: dict[str, Any] | None = None


class Answer(msgspec.Struct, frozen=True, tag="answer"):
    """How a call came out, and what the model is told of it.

    `invalid` is a call that nobody made, because no tool could be called so. `not_started`, `started` and `unknown` are
    not settled: they are shown, and never stand in a checkpoint.
    """

    call: str
    tool: str
    outcome: CallOutcome
    text: str


Message: TypeAlias = Words | Reply | Answer


class TranscriptOnly(ValueError):
    """A history has calls whose outcome it does not say: no run can go on from it."""

    code = "transcript_only"

    def __init__(self, calls: Iterable[ToolCall]) -> None:
        self.calls = tuple(calls)
        named = ", ".join(f"{call.tool} ({call.id})" for call in self.calls) or "an answer to no call"
        super().__init__(
            f"the history does not say what became of {named}, and a transcript cannot. Go on with the run that made "
            "the calls (start it again under its key), or leave the unfinished reply out."
        )


class Task(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an agent is asked to do: the input of its runs. `history` is an earlier conversation, all calls settled.

    Raises TranscriptOnly for a history that ends in the middle of a turn: what became of its calls stands in the record
    of the run that made them, and nowhere else.
    """

    text: str
    history: tuple[Message, ...] = ()

    def __post_init__(self) -> None:
        if not whole(self.history):
            raise TranscriptOnly(unanswered(self.history))


class Conversation(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where an agent's run stands between two turns: the state of its segment.

    `turn` is the number of the turn that comes next, from 1; `repairs` how often the final answer was sent back;
    `usage` what each model has used so far, as providers reported it.
    """

    messages: tuple[Message, ...]
    turn: int = 1
    repairs: int = 0
    usage: dict[str, Usage] = {}

    def outcomes(self, tool: str) -> list[CallOutcome]:
        """Return how the calls of a tool came out, oldest first."""
        return [message.outcome for message in self.messages if isinstance(message, Answer) and message.tool == tool]

    @property
    def last(self) -> Reply | None:
        """The latest reply, None before the first."""
        return next((message for message in reversed(self.messages) if isinstance(message, Reply)), None)


def unanswered(messages: Sequence[Message]) -> list[ToolCall]:
    """Return the calls that no settled answer stands after."""
    asked: dict[str, ToolCall] = {}
    for message in messages:
        if isinstance(message, Reply):
            asked |= {call.id: call for call in message.calls}
        elif isinstance(message, Answer) and message.outcome in SETTLED:
            asked.pop(message.call, None)
    return list(asked.values())


def whole(messages: Sequence[Message]) -> bool:
    """Say whether a provider would take this history, and nothing in it is unsettled."""
    waiting: set[str] = set()
    for message in messages:
        if isinstance(message, Answer):
            if message.call not in waiting or message.outcome not in SETTLED:
                return False
            waiting.discard(message.call)
        elif waiting:
            return False
        elif isinstance(message, Reply):
            waiting = {call.id for call in message.calls}
            if len(waiting) != len(message.calls) or "" in waiting:
                return False
    return not waiting


def with_own_ids(reply: Reply, messages: Iterable[Message], turn: int) -> Reply:
    """Return a reply whose calls have ids that no other call of the conversation has.

    Small models and some providers give none, or count from zero in each reply.
    """
    taken = {call.id for message in messages if isinstance(message, Reply) for call in message.calls}
    calls: list[ToolCall] = []
    for number, call in enumerate(reply.calls):
        id_, again = call.id, 0
        while not id_ or id_ in taken:  # also by the earlier conversation that this one goes on from
            again += 1
            id_ = f"turn-{turn}-call-{number}" + (f"-{again}" if again > 1 else "")
        taken.add(id_)
        calls.append(call if id_ == call.id else ToolCall(id_, call.tool, call.arguments))
    if tuple(calls) == reply.calls:
        return reply
    return msgspec.structs.replace(reply, calls=tuple(calls), native=None)  # which has the ids of the provider


def readable(reply: Reply) -> Reply:
    """Return a reply that can be stored: a small model may write half a character, which no JSON can hold."""
    try:
        encode(reply)
    except ValueError:
        calls = tuple(ToolCall(_whole(call.id), _whole(call.tool), _whole(call.arguments)) for call in reply.calls)
        return msgspec.structs.replace(reply, text=_whole(reply.text), calls=calls, native=None)
    return reply


def _whole(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def size_of(messages: Iterable[Message]) -> int:
    """Return an upper bound of the tokens of messages: no tokenizer makes more tokens than there are bytes."""
    total = 0
    for message in messages:
        if isinstance(message, Reply):
            spoken = [message.text, *(part for call in message.calls for part in (call.tool, call.arguments, call.id))]
            total += len(encode(message.native)) if message.native is not None else 0
        elif isinstance(message, Answer):
            spoken = [message.call, message.tool, message.text]
        else:
            spoken = [message.text]
        total += PER_MESSAGE + sum(len(text.encode("utf-8", "replace")) for text in spoken)
    return total


PER_MESSAGE = 16  # what a provider's own frame around a message costs, generously
