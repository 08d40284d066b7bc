"""What answers: the one method that a model has here, and how it says that it could not.

A model call is a read that costs. `NotSent` says that the provider turned it away before it did anything (a rate
limit, an overload): nothing is charged, and it is asked again, after `retry_after` at the earliest. The errors below
are final: asked again, the provider would say the same. Whatever else is raised is tried again as well, but the attempt
is charged in full, because nobody knows what the provider counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, runtime_checkable

from milepost.agents.messages import Message, Reply
from milepost.errors import MilepostError, Rejected, StepFailed

Said: TypeAlias = Callable[[str], None]
"""Called with each piece of text as it comes, for whoever watches. Nothing rests on it."""


@dataclass(frozen=True)
class ToolSpec:
    """A tool as a model is told of it: `parameters` is the JSON schema of its arguments."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True)
class Request:
    """What a model is asked: the whole conversation, and what it may call.

    `result` is the call that gives the final answer, None where plain text is the answer. `max_output` bounds the
    tokens of the reply; `turn` and `attempt` count from 1.
    """

    instructions: str
    messages: Sequence[Message]
    tools: Sequence[ToolSpec] = ()
    result: ToolSpec | None = None
    max_output: int = 4_096
    settings: Mapping[str, Any] = field(default_factory=dict)
    stream: bool = False
    turn: int = 1
    attempt: int = 1


@runtime_checkable
class Model(Protocol):
    """Something that answers. `name` stands in the manifest of each run, and prices are looked up by it."""

    @property
    def name(self) -> str:
        """The model, as it is named in the manifest and in prices."""
        ...

    async def ask(self, request: Request, said: Said) -> Reply:
        """Return the reply. Raises NotSent, ModelFailed, or anything else; see the top of this module."""
        ...


class ModelFailed(MilepostError):
    """The model cannot be asked, or answers no more; the run fails with this code."""

    code = "model_failed"

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    @property
    def recorded(self) -> Rejected:
        """This as the failure of a step, whose text is all that the record keeps."""
        return Rejected(f"{self.code}: {self.why}")


class ContextTooLong(ModelFailed):
    """The conversation has outgrown what the model can read."""

    code = "context_too_long"


class ModelUnpaid(ModelFailed):
    """The account's money or quota at the provider is spent: waiting helps nothing."""

    code = "model_unpaid"


class ModelUnauthorized(ModelFailed):
    """The provider refuses the credentials."""

    code = "model_unauthorized"


class ModelRefused(ModelFailed):
    """The provider refuses the request as it is: no such model, a setting or a schema that it does not take."""

    code = "model_refused"


KINDS = {kind.code: kind for kind in (ModelFailed, ContextTooLong, ModelUnpaid, ModelUnauthorized, ModelRefused)}


def failure_of(failed: StepFailed) -> ModelFailed:
    """Return what the record says of a model call that failed for good, as the error that it was."""
    code, _, why = failed.why.partition(": ")
    return KINDS[code](why) if code in KINDS else ModelFailed(failed.why)
