"""Models through pydantic-ai's model classes: one library that knows the providers. Nothing else of it is used.

It answers for three things: what we hold of a conversation becomes its messages, what it returns becomes a Reply, and
what a provider says went wrong becomes what may be done about it. The client libraries' own retries are off: a retry
that nobody sees is a charge that nobody sees.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, cast
from weakref import WeakKeyDictionary

from milepost.agents.messages import Answer, Reply, ToolCall, Usage, Words
from milepost.agents.models import (
    ContextTooLong,
    ModelFailed,
    ModelRefused,
    ModelUnauthorized,
    ModelUnpaid,
    Request,
    Said,
    ToolSpec,
)
from milepost.definitions.http import MONEY_IS_SPENT
from milepost.errors import ExtraMissing, NotSent

try:
    from pydantic import ValidationError
    from pydantic_ai import exceptions as x
    from pydantic_ai import messages as m
    from pydantic_ai.models import Model, ModelRequestParameters, infer_model
    from pydantic_ai.settings import ModelSettings
    from pydantic_ai.tools import ToolDefinition
except ImportError as missing:
    raise ExtraMissing("models named by a text", "agents") from missing

# How the outcomes of calls stand in its messages: what is no success goes out on the provider's own channel for that.
OUTCOMES: dict[str, Any] = {"confirmed": "success", "failed": "failed", "denied": "denied", "invalid": "retried"}
UNSETTLED = "interrupted"
MAY_PASS = {408, 409, 425}
NOT_REACHED = {"pool", "connect"}
PAYMENT_REQUIRED, UNAUTHORIZED, FORBIDDEN, TOO_LARGE, TOO_MANY, SERVER = 402, 401, 403, 413, 429, 500


class PydanticAIModel:
    """A model of pydantic-ai's. A text is looked up anew in each event loop, since the clients behind it belong to one.

    Raises ModelRefused for a name that it does not know.
    """

    def __init__(self, given: Model[Any] | str, name: str) -> None:
        self._given = given
        self._name = name
        self._models: WeakKeyDictionary[asyncio.AbstractEventLoop, Model[Any]] = WeakKeyDictionary()

    @property
    def name(self) -> str:
        """The model, as it is named in the manifest and in prices."""
        return self._name

    async def ask(self, request: Request, said: Said) -> Reply:
        """Return the reply. Raises NotSent, ModelFailed, or what pydantic-ai raises."""
        model = self._model()
        try:
            history = messages_of(request)
            settings = cast("ModelSettings", {**request.settings, "max_retries": 0, "max_tokens": request.max_output})
            if not request.stream:
                return reply_of(await model.request(history, settings, _parameters(request)))
            async with model.request_stream(history, settings, _parameters(request)) as stream:
                async for event in stream:
                    if text := _text_of(event):
                        said(text)
                return reply_of(stream.get())
        except (x.AgentRunError, x.UserError) as error:
            raise failure(error) from error

    def _model(self) -> Model[Any]:
        if isinstance(self._given, Model):
            return self._given
        loop = asyncio.get_running_loop()
        model = self._models.get(loop)
        if model is None:
            try:
                model = self._models[loop] = infer_model(self._given)
            except Exception as error:  # no such name, no key, no client library: nothing was sent
                raise ModelRefused(f"{self._given!r} cannot be used here: {type(error).__name__}: {error}") from error
        return model


def messages_of(request: Request) -> list[m.ModelMessage]:
    """Return the conversation in pydantic-ai's messages; what stands between two replies is one request."""
    history: list[m.ModelMessage] = []
    parts: list[m.ModelRequestPart] = []
    for message in request.messages:
        if isinstance(message, Reply):
            if not (message.text or message.calls or message.native):
                continue  # an empty message is none to a provider; what follows it says that it was empty
            if parts:
                history.append(m.ModelRequest(parts, instructions=request.instructions or None))
                parts = []
            history.append(_response(message))
        elif isinstance(message, Words):
            parts.append(m.UserPromptPart(message.text))
        else:
            parts.append(_return(message))
    if parts:
        history.append(m.ModelRequest(parts, instructions=request.instructions or None))
    return history


def _return(answer: Answer) -> m.ToolReturnPart[Any]:
    outcome = OUTCOMES.get(answer.outcome, UNSETTLED)
    return m.ToolReturnPart(answer.tool, answer.text, answer.call, outcome=outcome)


def _response(reply: Reply) -> m.ModelResponse:
    if reply.native is not None:
        try:
            (found,) = m.ModelMessagesTypeAdapter.validate_python([reply.native])
        except ValidationError:  # of another release: what it says in our own words is still there
            pass
        else:
            if isinstance(found, m.ModelResponse):
                return found
    calls = [m.ToolCallPart(call.tool, call.arguments, call.id) for call in reply.calls]
    return m.ModelResponse([*([m.TextPart(reply.text)] if reply.text else []), *calls], model_name=reply.model or None)


def reply_of(response: m.ModelResponse) -> Reply:
    """Return what a response says; its own form beside it where it holds more than text and calls."""
    text = "\n".join(part.content for part in response.parts if isinstance(part, m.TextPart) and part.content)
    calls = tuple(
        ToolCall(part.tool_call_id, part.tool_name, part.args_as_json_str())
        for part in response.parts
        if isinstance(part, m.ToolCallPart)
    )
    native = None
    if not all(map(_plain, response.parts)):
        native = m.ModelMessagesTypeAdapter.dump_python([response], mode="json")[0]
    used = response.usage
    usage = Usage(used.input_tokens, used.output_tokens, used.cache_read_tokens, 1)
    return Reply(text, calls, response.model_name or "", usage, response.finish_reason or "", native)


def _plain(part: m.ModelResponsePart) -> bool:
    """Say whether a part says no more than its text or its call: no id, no signature, nothing of a provider's own."""
    return isinstance(part, m.TextPart | m.ToolCallPart) and not part.id and not part.provider_details


def _parameters(request: Request) -> ModelRequestParameters:
    output = [] if request.result is None else [_definition(request.result, "output")]
    return ModelRequestParameters(
        function_tools=[_definition(tool, "function") for tool in request.tools],
        output_tools=output,
        output_mode="tool" if output else "text",
        allow_text_output=True,
    )


def _definition(tool: ToolSpec, kind: Any) -> ToolDefinition:
    schema = dict(tool.parameters)
    return ToolDefinition(
        name=tool.name, parameters_json_schema=schema, description=tool.description or None, kind=kind
    )


def _text_of(event: Any) -> str:
    """Return what an event of a stream adds to the text that people read."""
    if isinstance(event, m.PartStartEvent) and isinstance(event.part, m.TextPart):
        return event.part.content
    if isinstance(event, m.PartDeltaEvent) and isinstance(event.delta, m.TextPartDelta):
        return event.delta.content_delta
    return ""


def failure(error: Exception) -> Exception:
    """Return what an error says of the call: final, turned away before anything was done, or the error as it is."""
    said = f"{type(error).__name__.lstrip('_')}: {error}"
    for kinds, failed in (
        ((x.ModelQuotaExceededError,), ModelUnpaid),
        ((x.ModelContextWindowExceededError,), ContextTooLong),
        ((x.ModelAuthenticationError,), ModelUnauthorized),
    ):
        if isinstance(error, kinds):
            return failed(said)
    codes = {getattr(error, "provider_error_code", None) or "", getattr(error, "provider_error_type", None) or ""}
    status = getattr(error, "status_code", 0)
    if codes & MONEY_IS_SPENT or status == PAYMENT_REQUIRED:
        return ModelUnpaid(said)
    if isinstance(error, x.ModelRateLimitError | x.ModelUnavailableError) or status == TOO_MANY:
        return _turned_away(error, said)
    if isinstance(error, x.ModelConnectionError) and error.phase in NOT_REACHED:
        return NotSent(said)
    if isinstance(error, x.ModelRequestRejectedError | x.UserError):
        return ContextTooLong(said) if status == TOO_LARGE else ModelRefused(said)
    return _by_status(error, status, said)


def _turned_away(error: Exception, said: str) -> Exception:
    if getattr(error, "in_stream", False):
        return error  # it had begun to answer, and to count
    seconds = getattr(error, "retry_after", None)
    return NotSent(said, retry_after=None if seconds is None else timedelta(seconds=seconds))


def _by_status(error: Exception, status: int, said: str) -> Exception:
    final: dict[int, type[ModelFailed]] = {
        UNAUTHORIZED: ModelUnauthorized, FORBIDDEN: ModelUnauthorized, TOO_LARGE: ContextTooLong
    }  # fmt: skip
    if TOO_MANY < status < SERVER or (status and status < TOO_MANY and status not in MAY_PASS):
        return final.get(status, ModelRefused)(said)
    return error


__all__: Sequence[str] = ["PydanticAIModel", "failure", "messages_of", "reply_of"]
