"""Models whose responses are recorded, so that a run that begins again asks none of them again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

from agents import Model, ModelProvider, ModelResponse, RunConfig
from agents.items import TResponseStreamEvent
from openai.types.responses import Response, ResponseCompletedEvent
from pydantic import TypeAdapter
from pydantic_core import to_jsonable_python

from milepost.adapters.calls import digest_of, settle
from milepost.adapters.openai_agents.holding import TURN, Attached, attached, inside

MODEL = "openai_agents.model"
_RESPONSE: TypeAdapter[ModelResponse] = TypeAdapter(ModelResponse)
_AS_SENT: Any = {"mode": "json", "by_alias": True, "exclude_unset": True, "warnings": False}


class RecordedModel(Model):
    """A model whose responses are recorded inside `durable`; elsewhere it is the model itself."""

    def __init__(self, model: Model) -> None:
        self.model = model

    async def close(self) -> None:
        """Close the model."""
        await self.model.close()

    def get_retry_advice(self, request: Any) -> Any:
        """Return what the model advises."""
        return self.model.get_retry_advice(request)

    async def get_response(self, *asked: Any, **more: Any) -> ModelResponse:
        """Return the recorded response, or ask and record. Raises what the model raises; Parked where it must wait."""
        held = attached()
        if held is None:
            return await self.model.get_response(*asked, **more)
        tool = held.tool(MODEL)

        async def ask() -> Any:
            response = await inside(lambda: self.model.get_response(*asked, **more))
            usage = response.usage
            settle(tool, _measured(usage.input_tokens, usage.output_tokens))
            return _RESPONSE.dump_python(response, **_AS_SENT)

        with held.told_again():
            payload = await held.questions.answer(tool, _question("response", *asked, **more), ask, _asker())
        return _RESPONSE.validate_python(payload)

    async def stream_response(self, *asked: Any, **more: Any) -> AsyncIterator[TResponseStreamEvent]:
        """Stream the response; of a recorded one, its end alone. The end is told once it is on record."""
        held = attached()
        if held is None:
            async for event in self.model.stream_response(*asked, **more):
                yield event
            return
        told: asyncio.Queue[Any] = asyncio.Queue()
        answering = asyncio.create_task(self._streamed(held, told, asked, more))
        answering.add_done_callback(lambda _: told.put_nowait(None))
        try:
            while (event := await told.get()) is not None:
                yield event
            payload = await answering
        finally:
            answering.cancel()
        response = Response.model_validate(payload)
        yield ResponseCompletedEvent(response=response, sequence_number=0, type="response.completed")

    async def _streamed(self, held: Attached, told: asyncio.Queue[Any], asked: Any, more: Any) -> Any:
        tool = held.tool(MODEL)

        async def stream() -> Any:
            ended: Response | None = None
            async for event in self.model.stream_response(*asked, **more):
                if isinstance(event, ResponseCompletedEvent):
                    ended = event.response
                else:
                    told.put_nowait(event)
            if ended is None:
                raise ConnectionError("the model's stream ended without a response")
            usage = ended.usage
            settle(tool, _measured(usage.input_tokens, usage.output_tokens) if usage else {})
            return ended.model_dump(**_AS_SENT)

        question = _question("stream", *asked, **more)
        with held.told_again():
            return await held.questions.answer(tool, question, lambda: inside(stream), _asker())


def _asker() -> str:
    turn = TURN.get()
    return turn.id if turn is not None else ""


def _question(kind: str, *asked: Any, **more: Any) -> str:
    """Return the digest of a question: what was said, and which tools could answer, without standing instructions.

    Those are often made anew (today's date), and do not make another question of the same conversation.
    """
    given = {**dict(zip(_NAMES, asked, strict=False)), **more}
    able = [tool.name for tool in given["tools"]] + [one.tool_name for one in given["handoffs"]]
    output = given["output_schema"]
    place = [given.get("previous_response_id"), given.get("conversation_id")]
    return digest_of(kind, sorted(able), output and output.name(), place, to_jsonable_python(given["input"]))


_NAMES = ("system_instructions", "input", "model_settings", "tools", "output_schema", "handoffs", "tracing")


def _measured(read: int, written: int) -> dict[str, Any]:
    return {"requests": 1, "input_tokens": read, "output_tokens": written, "tokens": read + written}


class RecordedProvider(ModelProvider):
    """A provider of recorded models."""

    def __init__(self, provider: ModelProvider) -> None:
        self.provider = provider

    def get_model(self, model_name: str | None) -> Model:
        """Return the provider's model, recorded."""
        return RecordedModel(self.provider.get_model(model_name))

    async def aclose(self) -> None:
        """Close the provider."""
        await self.provider.aclose()


def recorded(run_config: RunConfig | dict[str, Any] | None = None) -> RunConfig:
    """Return a configuration whose models are recorded: for `Runner.run_streamed`. `run` does this itself."""
    config = RunConfig(**run_config) if isinstance(run_config, dict) else run_config or RunConfig()
    provider, model = config.model_provider, config.model
    if not isinstance(provider, RecordedProvider):
        provider = RecordedProvider(provider)
    if isinstance(model, Model) and not isinstance(model, RecordedModel):
        model = RecordedModel(model)
    return replace(config, model_provider=provider, model=model)
