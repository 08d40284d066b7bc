"""Models of pydantic-ai's: what they are sent, what comes back, and what a provider's refusal means."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from pydantic_ai import exceptions as x
from pydantic_ai import messages as m
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

import milepost as mp
from milepost import agents
from milepost.agents.pydantic_models import failure, messages_of, reply_of
from tests.agents.desks import PLENTY, Decision, Desk
from tests.runtime.stage import Stage

HISTORY = (
    agents.Words("Refund o-1."),
    agents.Reply("Let me see.", (agents.ToolCall("1", "look_up", '{"order":"o-1"}'),)),
    agents.Answer("1", "look_up", "confirmed", '{"cents":300}'),
    agents.Reply("", (agents.ToolCall("2", "refund", "{}"), agents.ToolCall("3", "mail", "{}"))),
    agents.Answer("2", "refund", "invalid", "no order"),
    agents.Answer("3", "mail", "denied", "no"),
)


async def ended(stage: Stage, agent: agents.Agent[Any]) -> Any:
    async with stage.app(agent.workflow) as app:
        handle = await app.start(agent.workflow, agents.Task("Refund o-1."), budget=PLENTY)
        return await handle.result(timeout="60s")


def test_a_conversation_becomes_requests_and_responses_in_turn() -> None:
    sent = messages_of(agents.Request("Be kind.", HISTORY))

    assert [type(message).__name__ for message in sent] == [
        "ModelRequest", "ModelResponse", "ModelRequest", "ModelResponse", "ModelRequest",
    ]  # fmt: skip
    returned = [part for message in sent for part in message.parts if isinstance(part, m.ToolReturnPart)]
    assert [(part.tool_call_id, part.outcome) for part in returned] == [
        ("1", "success"), ("2", "retried"), ("3", "denied"),
    ]  # fmt: skip
    assert {message.instructions for message in sent if isinstance(message, m.ModelRequest)} == {"Be kind."}


def test_a_reply_that_says_more_than_text_and_calls_goes_back_as_the_provider_made_it() -> None:
    thinking = m.ThinkingPart("hm", signature="signed", provider_name="p")
    response = m.ModelResponse([thinking, m.TextPart("Yes."), m.ToolCallPart("mail", {"to": "ann"}, "7")])
    reply = reply_of(response)

    assert (reply.text, reply.calls) == ("Yes.", (agents.ToolCall("7", "mail", '{"to":"ann"}'),))
    (sent,) = messages_of(agents.Request("", [reply]))
    assert list(sent.parts) == list(response.parts)
    assert reply_of(m.ModelResponse([m.TextPart("Yes.")])).native is None


def test_a_native_form_of_a_release_that_is_not_known_leaves_text_and_calls() -> None:
    reply = agents.Reply("Yes.", (agents.ToolCall("7", "mail", "{}"),), native={"kind": "of the future"})

    (sent,) = messages_of(agents.Request("", [reply]))

    assert [type(part).__name__ for part in sent.parts] == ["TextPart", "ToolCallPart"]


async def test_a_model_of_pydantic_ais_is_asked_with_tools_and_a_call_for_the_result(stage: Stage) -> None:
    desk, seen = Desk(), list[AgentInfo]()

    def say(messages: list[m.ModelMessage], info: AgentInfo) -> m.ModelResponse:
        seen.append(info)
        if len(messages) == 1:
            return m.ModelResponse([m.ToolCallPart("refund", {"order": "o-1", "cents": 300})])
        return m.ModelResponse([m.ToolCallPart("final_result", {"refunded": True, "why": "broken"})])

    agent = desk.agent(model=FunctionModel(say, model_name="fn"), result=Decision)

    assert await ended(stage, agent) == Decision(refunded=True, why="broken")
    assert desk.done == ["refund o-1 300"]
    assert [tool.name for tool in seen[0].function_tools] == ["look_up", "refund", "mail"]
    assert [tool.name for tool in seen[0].output_tools] == ["final_result"]
    assert (seen[0].instructions, dict(seen[0].model_settings or {})["max_tokens"]) == ("Be kind.", 4_096)
    assert agent.workflow.models == {"ask.refund-desk": "function:fn"}


async def test_its_streamed_text_is_shown_and_its_calls_are_made(stage: Stage) -> None:
    desk = Desk()

    async def say(messages: list[m.ModelMessage], info: AgentInfo) -> Any:
        if len(messages) == 1:
            yield "Paying "
            yield "back."
            yield {1: DeltaToolCall("refund", '{"order":"o-1","cents":300}', tool_call_id="9")}
        else:
            yield "Done."

    agent = desk.agent(model=FunctionModel(stream_function=say), stream=True)
    screen = agents.Screen()
    async with stage.app(agent.workflow) as app:
        handle = await app.start(agent.workflow, agents.Task("x"), budget=PLENTY)
        assert await handle.result(timeout="60s") == "Done."
        async for event in handle.events():
            screen.take(event)

    assert list(screen.texts.values()) == ["Paying back.", "Done."]
    assert desk.done == ["refund o-1 300"]


def test_an_empty_reply_is_no_message_to_a_provider() -> None:
    said = (agents.Words("Hello?"), agents.Reply(""), agents.Words("You said nothing."))

    (sent,) = messages_of(agents.Request("", said))

    assert [part.part_kind for part in sent.parts] == ["user-prompt", "user-prompt"]


async def test_a_model_that_cannot_be_used_here_ends_the_run_at_once(stage: Stage) -> None:
    agent = Desk().agent(model="no-such-provider:model")
    async with stage.app(agent.workflow) as app:
        handle = await app.start(agent.workflow, agents.Task("x"), budget=PLENTY)
        with pytest.raises(mp.RunFailed, match="no-such-provider"):
            await handle.result(timeout="60s")
        detail = await app.inspect.detail(handle.id)

    assert (detail.row.why or "").startswith("model_refused: ")
    assert detail.spent == {}


# ---------------------------------------------------------------- what a provider says went wrong


def http(status: int, category: Any = None, **more: Any) -> x.ModelHTTPError:
    return x.ModelHTTPError.for_category(category, status_code=status, model_name="m", **more)


@pytest.mark.parametrize(
    ("error", "meant"),
    [
        (http(429, x.ModelRateLimitError, headers={"Retry-After": "3"}), mp.NotSent),
        (http(429), mp.NotSent),
        (http(429, x.ModelRateLimitError, provider_error_code="rate_limit_exceeded"), mp.NotSent),
        (http(529, x.ModelOverloadedError), mp.NotSent),
        (http(503, x.ModelUnavailableError), mp.NotSent),
        (x.ModelConnectionError("m", "no", phase="connect"), mp.NotSent),
        (http(429, x.ModelQuotaExceededError), agents.ModelUnpaid),
        (http(429, x.ModelRateLimitError, provider_error_code="insufficient_quota"), agents.ModelUnpaid),
        (http(429, x.ModelRateLimitError, provider_error_code="project_spend_limit_exceeded"), agents.ModelUnpaid),
        (http(402), agents.ModelUnpaid),
        (http(400, x.ModelContextWindowExceededError), agents.ContextTooLong),
        (http(413), agents.ContextTooLong),
        (http(401, x.ModelAuthenticationError), agents.ModelUnauthorized),
        (http(403), agents.ModelUnauthorized),
        (http(404, x.ModelNotFoundError), agents.ModelRefused),
        (http(422), agents.ModelRefused),
        (x.UserError("no such provider"), agents.ModelRefused),
    ],
)
def test_what_a_provider_says_decides_whether_it_is_asked_again(error: Exception, meant: type[Exception]) -> None:
    """Requirement 65."""
    assert type(failure(error)) is meant


@pytest.mark.parametrize(
    "error",
    [
        http(500, x.ModelServerError), http(408), http(409), http(529, x.ModelOverloadedError, in_stream=True),
        x.ModelConnectionError("m", "reset", phase="read"), x.UnexpectedModelBehavior("odd"),
    ],
)  # fmt: skip
def test_what_says_nothing_of_what_was_counted_is_charged_and_tried_again(error: Exception) -> None:
    assert failure(error) is error


def test_the_pause_that_a_provider_asks_for_is_kept() -> None:
    """Requirement 65."""
    told = failure(http(429, x.ModelRateLimitError, headers={"Retry-After": "3"}))

    assert isinstance(told, mp.NotSent)
    assert told.retry_after is not None
    assert told.retry_after.total_seconds() == 3  # type: ignore[union-attr]


# ---------------------------------------------------------------- over a real client, on loopback

Answer = tuple[int, dict[str, str], dict[str, Any]]


@contextmanager
def provider(answer: Callable[[int, dict[str, Any]], Answer]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A server that speaks as OpenAI's does; `answer` gets the number of the request and its body."""
    got: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            status, headers, body = answer(len(got), got[-1])
            data = json.dumps(body).encode()
            self.send_response(status)
            for name, value in {
                "content-type": "application/json",
                "content-length": str(len(data)),
                **headers,
            }.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", got
    finally:
        server.shutdown()
        server.server_close()
        serving.join()


def completion(message: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": "c", "object": "chat.completion", "created": 1, "model": "small-1",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", **message}}],
        "usage": {"prompt_tokens": 40, "completion_tokens": 2, "total_tokens": 42},
    }  # fmt: skip


def calling(name: str, **arguments: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return completion({"content": None, "tool_calls": [{"id": "c1", "type": "function", "function": function}]})


def openai(url: str) -> OpenAIChatModel:
    return OpenAIChatModel("small", provider=OpenAIProvider(base_url=url, api_key="none"))


async def test_a_whole_run_over_a_real_client_that_is_told_to_wait_once(stage: Stage) -> None:
    desk = Desk()

    def answer(number: int, _: dict[str, Any]) -> Answer:
        if number == 1:
            return 429, {"retry-after-ms": "5"}, {"error": {"code": "rate_limit_exceeded", "message": "slow down"}}
        return 200, {}, calling("refund", order="o-1", cents=300) if number == 2 else completion({"content": "Done."})

    with provider(answer) as (url, got):
        agent = desk.agent(model=openai(url))
        async with stage.app(agent.workflow) as app:
            handle = await app.start(agent.workflow, agents.Task("Refund o-1."), budget={"turns": 2})
            assert await handle.result(timeout="60s") == "Done."

            visit = await app.inspect.visit(handle.id, "turn")
            assert visit is not None
            assert visit.state["usage"] == {"openai:small": {"input": 40, "output": 2, "requests": 1}}

    assert len(got) == 3  # and no retry of the client's own
    assert [message["role"] for message in got[2]["messages"]] == ["system", "user", "assistant", "tool"]
    assert desk.done == ["refund o-1 300"]


@pytest.mark.parametrize(
    ("status", "code", "meant"),
    [
        (429, "insufficient_quota", "model_unpaid"),
        (400, "context_length_exceeded", "context_too_long"),
        (401, "invalid_api_key", "model_unauthorized"),
    ],
)
async def test_what_no_second_try_mends_is_tried_once_over_a_real_client(
    stage: Stage, status: int, code: str, meant: str
) -> None:
    """Requirement 65."""
    with provider(lambda *_: (status, {}, {"error": {"code": code, "message": "no", "type": code}})) as (url, got):
        agent = Desk().agent(model=openai(url))
        async with stage.app(agent.workflow) as app:
            handle = await app.start(agent.workflow, agents.Task("x"), budget=PLENTY)
            with pytest.raises(mp.RunFailed):
                await handle.result(timeout="60s")
            detail = await app.inspect.detail(handle.id)

    assert (detail.row.why or "").startswith(f"{meant}: ")
    assert len(got) == 1


def test_a_model_named_by_a_text_serves_one_script_after_another(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    with provider(lambda *_: (200, {}, completion({"content": "Hello."}))) as (url, got):
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        agent = Desk().agent(model="openai-chat:small")
        for key in ("one", "two"):  # each is an event loop of its own
            assert stage.app(agent.workflow).run(agent.workflow, agents.Task("x"), key=key, budget=PLENTY) == "Hello."

    assert len(got) == 2
    assert agent.workflow.models == {"ask.refund-desk": "openai-chat:small"}
