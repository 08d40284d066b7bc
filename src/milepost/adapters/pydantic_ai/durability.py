"""The engine: each unit of the framework's work is a step of the attached run that `durable` holds."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from pydantic_ai.capabilities import WrapRunHandler
from pydantic_ai.durable_exec import (
    JSON_CODEC,
    BaseDurabilityCapability,
    BoundDurableOperation,
    CapabilityOperationId,
    DurabilityEngineSpec,
    DurableOperation,
    DurableOperationId,
    JournalCallableOperationBackend,
    ModelCompactMessagesId,
    ModelRequestId,
    RoleBasedOperationConfig,
    ToolsetCallToolId,
    conversation_id_from_run_id,
)
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry, ToolFailed, UserError
from pydantic_ai.messages import ModelResponse
from pydantic_ai.run import AgentRunResult
from pydantic_ai.tools import AgentDepsT, DeferredToolRequests, DeferredToolResults, RunContext, ToolDefinition

import milepost as mp
from milepost.adapters.calls import sending, settle
from milepost.adapters.holding import Attached, Place
from milepost.adapters.pydantic_ai.listing import MODEL, OURS
from milepost.adapters.pydantic_ai.wording import (
    HANDED_OVER,
    RETURNED,
    WANTS_APPROVAL,
    arguments_of,
    asked,
    call_id,
    measured,
    payload_of,
    plain,
)
from milepost.adapters.saying import to_model, to_person
from milepost.adapters.threads import Threads

APPROVED = "approved"
ASKS_FIRST = "it asks for an approval before it does anything"


_PLACE: Place[Attached] = Place("milepost_pydantic_ai")


@asynccontextmanager
async def durable(threads: Threads, key: str) -> AsyncIterator[mp.AttachedRun]:
    """Run agents that have MilepostDurability durably, under `key`; elsewhere they run as they always do.

    After a kill or a pause, do the same under the same key: what is recorded is not done again. Raises RunHeld while
    another living process holds the key.
    """
    async with threads.attached(key) as run:
        with _PLACE.holding(Attached(threads, key, run)):
            yield run


class Backend(JournalCallableOperationBackend[None]):
    """Where the framework's units become steps."""

    def __init__(self, agent_name: str, default_model_id: str | None) -> None:
        nothing: RoleBasedOperationConfig[None] = RoleBasedOperationConfig(
            model=None, event=None, capability=None, tool=None
        )
        super().__init__(agent_name=agent_name, default_model_id=default_model_id, config=nothing)
        self._agent_name = agent_name

    def bind(self, operation: DurableOperation[Any, Any, Any]) -> BoundDurableOperation[Any, Any, Any]:
        """Bind an operation. Raises UserError for one of a capability: nothing says what it does outside."""
        if isinstance(operation.operation_id, CapabilityOperationId):
            of = operation.operation_id
            raise UserError(
                f"{of.capability_id}.{of.operation} is durable work of a capability, for which nothing is promised. "
                "Make it a tool of the agent, or leave the capability out of this agent."
            )
        return super().bind(operation)

    async def execute(
        self,
        *,
        operation_id: DurableOperationId,
        name: str,  # noqa: ARG002  steps are named by the call's id, or by what is asked
        body: Callable[[], Awaitable[object]],
        cache_key: tuple[object, ...],
        config: None,  # noqa: ARG002
    ) -> object:
        """Run one unit, or answer it from the record."""
        attached = _PLACE.held()
        if attached is None:
            return await body()
        if isinstance(operation_id, ToolsetCallToolId):
            return await _call(attached, body, cache_key)
        if isinstance(operation_id, ModelRequestId | ModelCompactMessagesId):
            messages: Any = cache_key[1]
            if isinstance(operation_id, ModelRequestId):
                kind = "stream" if operation_id.streaming else "request"
                question = asked(f"{self._agent_name}/{kind}", messages)
            else:
                question = asked(f"{self._agent_name}/compact", messages.messages)
            ctx: Any = cache_key[-1]
            return await _ask(attached, question, body, ctx.run_id)
        return await body()  # discovery, validation, events: nothing of it acts outside


async def _ask(attached: Attached, question: str, body: Callable[[], Awaitable[object]], asker: str) -> object:
    tool = attached.tools.get(MODEL)
    if tool is None:
        raise UserError("this app lists no questions to a model: make it with App(tools=listed(agent, …))")

    async def ask() -> object:
        payload = await _PLACE.inside(body)
        settle(tool, measured(JSON_CODEC.load(ModelResponse, payload)) if tool.costed else {})
        return payload

    return await attached.questions.answer(tool, question, ask, asker)


async def _call(attached: Attached, body: Callable[[], Awaitable[Any]], cache_key: tuple[Any, ...]) -> object:
    """Put one call of a tool through the outcome protocol. Where it has to wait, defer it: its siblings go on."""
    name, given, ctx, other = cache_key
    definition = other if isinstance(other, ToolDefinition) else getattr(other, "tool_def", None)
    tool = attached.tools.get(name)
    if tool is None:  # `prepare_tools` refuses it before the model is asked; a call of it is not made either way
        raise ToolFailed(to_model(mp.Failed(f"{name} is not listed"), name))
    ours = OURS in ((definition and definition.metadata) or {})
    told: list[Any] = []

    async def work() -> Any:
        payload: Any = await _PLACE.inside(body)
        kind = payload["kind"]
        if kind in RETURNED or kind == HANDED_OVER or tool.effect == "read":
            return plain(payload)
        if kind == WANTS_APPROVAL:
            told.append(payload.get("metadata"))
            raise mp.Rejected(ASKS_FIRST)
        raise RuntimeError(f"{kind}: {payload.get('message', '')}")  # an exception proves nothing

    async def made(id_: str) -> mp.Outcome[Any]:
        try:
            arguments, send = arguments_of(definition, given), None if ours else sending(work)
            return await attached.threads.attempt(attached.key, id_, tool, arguments, send=send)
        except mp.InvalidArguments as error:
            raise ModelRetry(error.for_model()) from error

    id_ = call_id(str(ctx.tool_call_id), ctx.messages)
    with attached.calls:
        try:
            outcome = await made(id_)
            if isinstance(outcome, mp.Failed) and outcome.why.endswith(ASKS_FIRST):
                if not ctx.tool_call_approved:
                    raise ApprovalRequired(metadata=told[0] if told else None)
                outcome = await made(f"{id_}/{APPROVED}")
        except mp.MilepostError:
            await attached.calls.others()  # the framework cancels what is beside a call that raises
            raise
    if isinstance(outcome, mp.Confirmed):
        return payload_of(JSON_CODEC.dump(Any, outcome.value) if ours else outcome.value)
    if isinstance(outcome, mp.Failed):
        raise ToolFailed(to_model(outcome, name))
    said = {"run": attached.run.id, "waiting": outcome.reason, "ask": to_person(attached.run.id, outcome)}
    raise (ApprovalRequired if outcome.reason == "approval" else CallDeferred)(metadata={OURS: said})


class MilepostDurability(BaseDurabilityCapability[AgentDepsT]):
    """The capability that makes an agent durable inside `durable(…)`; outside it changes nothing.

    The agent needs a `name`, and its toolsets need an `id`; both are part of what is recorded.
    """

    engine_spec = DurabilityEngineSpec(
        engine_name="Milepost",
        durable_unit_noun="step",
        durable_container_noun="attached run",
        codec=JSON_CODEC,
        journal_discovery=False,
        tool_config_key=None,
        unsupported_runtime_toolset_kinds=frozenset({"function", "mcp", "dynamic"}),
        toolset_lifecycles={"function": "enter-always", "mcp": "enter-always", "dynamic": "enter-never"},
    )

    @property
    def in_durable_context(self) -> bool:
        """Tell whether an attached run is held here, and no step of it is being done."""
        return _PLACE.held() is not None

    def get_durable_operation_backend(self) -> Backend:
        """Return what makes steps of this agent's work."""
        return Backend(self.name, self.default_model_id)

    def get_default_conversation_id(self, run_id: str) -> str | None:  # noqa: ARG002  one thread, one conversation
        """Return the conversation's id, the same for every run of an agent under one key."""
        attached = _PLACE.held()
        return None if attached is None else conversation_id_from_run_id(attached.run.id)

    async def wrap_run(self, ctx: RunContext[AgentDepsT], *, handler: WrapRunHandler) -> AgentRunResult[Any]:
        """Run the agent. Where it ends without its result, it is to be run again, and asks what it has asked."""
        attached, over = _PLACE.held(), False
        try:
            result = await super().wrap_run(ctx, handler=handler)
            over = not isinstance(result.output, DeferredToolRequests)
        finally:
            if attached is not None and not over:
                attached.questions.forget(ctx.run_id or "")
        return result

    async def prepare_tools(
        self,
        ctx: RunContext[AgentDepsT],  # noqa: ARG002  the framework's form
        tool_defs: list[ToolDefinition],
    ) -> list[ToolDefinition]:
        """Let the model see its tools. Raises UserError for one that the app does not list, before it is asked."""
        attached = _PLACE.held()
        unlisted = [one.name for one in tool_defs if attached and one.name not in attached.tools]
        if unlisted:
            raise UserError(
                f"not listed by this app: {', '.join(unlisted)}. Make it with App(tools=listed(agent, promises=…)), "
                "and list what comes from a server with foreign(name, schema, …)."
            )
        return tool_defs

    async def handle_deferred_tool_calls(
        self,
        ctx: RunContext[AgentDepsT],  # noqa: ARG002  the framework's form
        *,
        requests: DeferredToolRequests,
    ) -> DeferredToolResults | None:
        """Leave what waits to whoever runs the agent. Raises Parked where its output cannot say that it waits.

        The batch is over when this is called: what else was in it has finished and is recorded.
        """
        attached = _PLACE.held()
        if attached is not None and not _may_say(self.agent.output_type if self.agent else None):
            for said in requests.metadata.values():
                if OURS in said:
                    waiting = said[OURS]
                    raise mp.Parked(attached.run.id, mp.Waiting(waiting["waiting"], None, waiting["ask"]))
        return None


def _may_say(output: Any) -> bool:
    return DeferredToolRequests in (output if isinstance(output, list | tuple) else (output,))
