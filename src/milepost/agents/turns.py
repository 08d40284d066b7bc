"""One turn of an agent: the model is asked, its calls are made, and what came of them is told to it in the next turn.

What the model says is recorded before any of its calls is, and is durable before any effect of theirs leaves: what
follows a crash are the calls of the recorded reply, and nobody asks the model for them again. The calls of one reply
are arms: one that has to wait (for a person, for money, for an unknown outcome) parks, its siblings finish, and the
turn goes on when all are settled. So the history that a provider is sent is always whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from milepost.agents import streaming
from milepost.agents.messages import Answer, Conversation, Message, Reply, ToolCall, Usage, Words, whole
from milepost.agents.models import failure_of
from milepost.agents.results import FINAL, FinalResult, NotTaken, ResultInvalid
from milepost.definitions.tools import Tool
from milepost.definitions.values import encode
from milepost.definitions.workflows import Next, Segment, done, go
from milepost.errors import Denied, InvalidArguments, StepFailed

if TYPE_CHECKING:
    from milepost.definitions.run import Run

R = TypeVar("R")

TOO_EARLY = "You gave it together with other calls. Look at their results first, then give the final answer alone."
Stop = Callable[[Conversation], Next[Any] | None]


@dataclass(frozen=True)
class Asking:
    """What a model call is about, beside its recorded arguments: the record holds a digest, not the whole history."""

    messages: Sequence[Message]
    tell: streaming.Tell


ASKING: ContextVar[Asking | None] = ContextVar("milepost_asking", default=None)


class Turns(Generic[R]):
    """What an agent does in its segment."""

    def __init__(
        self,
        ask: Tool[[int, str, int], Reply],
        tools: Sequence[Tool[..., Any]],
        final: FinalResult[R],
        *,
        model: str,
        frame: int,
        stop: Sequence[Stop],
        repairs: int,
        together: int,
    ) -> None:
        self._ask = ask
        self._tools = {tool.name: tool for tool in tools}
        self._final = final
        self._model = model
        self._frame = frame
        self._stop = tuple(stop)
        self._repairs = repairs
        self._together = together
        self.segment: Segment[Conversation, R]

    async def turn(self, run: Run, conversation: Conversation) -> Next[R]:
        """Take one turn. Raises ModelFailed where the model cannot be asked, ResultInvalid where it gives no result."""
        for condition in self._stop:
            stopped = condition(conversation)
            if stopped is not None:
                return stopped
        reply = await self._asked(run, conversation)
        usage = {**conversation.usage, self._model: conversation.usage.get(self._model, Usage()) + reply.usage}
        try:
            if not reply.calls:
                return done(self._final.of_reply(reply))
            if len(reply.calls) == 1 and self._ends(reply.calls[0]):
                return done(self._final.of_call(reply.calls[0].arguments))
        except NotTaken as error:
            return self._again(conversation, (reply, *_corrected(reply, str(error))), usage, str(error))
        others = [call for call in reply.calls if not self._ends(call)]
        made = await run.map(self._answer, others, limit=self._together)
        early = [Answer(call.id, FINAL, "invalid", TOO_EARLY) for call in reply.calls if self._ends(call)]
        answers = {answer.call: answer for answer in [*made, *early]}
        said: list[Message] = [reply, *(answers[call.id] for call in reply.calls)]
        if early:
            return self._again(conversation, said, usage, TOO_EARLY)
        return go(self.segment, _after(conversation, said, usage))

    async def _asked(self, run: Run, conversation: Conversation) -> Reply:
        digest = sha256(encode(list(conversation.messages))).hexdigest()
        most = self._frame + streaming.most_in(conversation.messages)
        step = self._ask(conversation.turn, digest, most)
        tell = streaming.Tell(run.emit, step.path, conversation.turn)
        before = ASKING.set(Asking(conversation.messages, tell))
        try:
            return await step
        except StepFailed as failed:
            raise failure_of(failed) from failed
        finally:
            ASKING.reset(before)

    def _ends(self, call: ToolCall) -> bool:
        """Say whether a call gives the final answer."""
        return call.tool == FINAL and self._final.spec is not None

    def _again(self, conversation: Conversation, said: Sequence[Message], usage: dict[str, Usage], why: str) -> Next[R]:
        """Let the model correct its final answer, as often as the agent allows."""
        if conversation.repairs >= self._repairs:
            raise ResultInvalid(why, conversation.repairs)
        return go(self.segment, _after(conversation, said, usage, repairs=conversation.repairs + 1))

    async def _answer(self, call: ToolCall) -> Answer:
        """Make one call, and say how it came out. It parks here as long as that is not settled."""
        tool = self._tools.get(call.tool)
        if tool is None:
            return unknown_tool(call, self._tools)
        try:
            value = await tool.from_json(call.arguments)
        except InvalidArguments as error:
            return invalid(call, error)
        except Denied as error:
            return denied(call, error.why)
        except StepFailed as error:
            return failed(call, error.why)
        return Answer(call.id, call.tool, "confirmed", told(tool, value))


def _corrected(reply: Reply, why: str) -> list[Message]:
    """Return what the model is told of a final answer that is not taken."""
    if reply.calls:
        return [Answer(call.id, call.tool, "invalid", why) for call in reply.calls]
    return [Words(f"{why} Try again.")]


def unknown_tool(call: ToolCall, tools: Iterable[str]) -> Answer:
    """Return what the model is told where it calls what is not there."""
    known = ", ".join(tools) or "none"
    return Answer(call.id, call.tool, "invalid", f"There is no tool {call.tool!r}: nothing was done. Tools: {known}.")


def invalid(call: ToolCall, error: InvalidArguments) -> Answer:
    """Return what the model is told of arguments that do not fit."""
    return Answer(call.id, call.tool, "invalid", error.for_model())


def denied(call: ToolCall, why: str) -> Answer:
    """Return what the model is told of a call that a person or a rule denied."""
    return Answer(call.id, call.tool, "denied", f"It was not allowed, and nothing was done: {why}.")


def failed(call: ToolCall, why: str) -> Answer:
    """Return what the model is told of a call that did not happen, on positive evidence."""
    return Answer(call.id, call.tool, "failed", f"It was not done: {why}.")


def told(tool: Tool[..., Any], value: Any) -> str:
    """Return a tool's result as the model reads it: a text as it is, all else as JSON."""
    return value if isinstance(value, str) else tool.result.write(value).decode()


def _after(
    conversation: Conversation, said: Sequence[Message], usage: dict[str, Usage], repairs: int | None = None
) -> Conversation:
    return Conversation(
        (*conversation.messages, *said),
        conversation.turn + 1,
        conversation.repairs if repairs is None else repairs,
        usage,
    )


def may_enter(conversation: Conversation) -> bool:
    """Say whether a turn may begin: every call that the history tells of is settled, and says how."""
    return whole(conversation.messages)


def may_leave(_: Conversation, ending: Next[Any]) -> bool:
    """Say whether a turn may end so: what it leaves to the next one is whole."""
    return ending.segment is None or whole(ending.state.messages)
