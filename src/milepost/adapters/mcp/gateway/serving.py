"""The gateway as an MCP server: what it lists, and what it does with a call.

Each caller is served the tools that the file gives it and no others: one that it may not use is not listed, and calling
it is answered exactly as for a tool that does not exist.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

import uvicorn
from mcp.server import Server as McpServer
from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
from mcp.server.auth.middleware.bearer_auth import BearerAuthBackend, RequireAuthMiddleware
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, CallToolRequestParams, CallToolResult, InputRequiredResult, ListToolsResult
from mcp_types import Tool as Listed
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.routing import Route

from milepost import __version__
from milepost.adapters.mcp.gateway import answering, approving
from milepost.adapters.mcp.gateway.callers import Callers
from milepost.adapters.mcp.gateway.calls import Calls
from milepost.adapters.mcp.gateway.input import ending_input
from milepost.app import App
from milepost.errors import InvalidArguments, MilepostError, Waiting

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from mcp.server.context import ServerRequestContext
    from mcp_types import PaginatedRequestParams

    from milepost.adapters.mcp.gateway.config import CallerEntry, Config
    from milepost.adapters.mcp.gateway.downstream import Downstream, Offered

GRACE_S = 10
ANSWER_S = 0.2  # for the answers of what has just ended to be written
PATH = "/mcp"
LOOPBACK = ("127.0.0.1", "localhost", "::1")
INSTRUCTIONS = (
    "Each call is recorded, and a call that was made before is answered from the record. Where a tool says that it "
    "waits, or that nobody knows what came of it, do not call it again: say so to the user."
)
log = logging.getLogger("milepost.gateway")


class Gateway:
    """The servers behind it, and the calls of each caller."""

    def __init__(self, config: Config, downstream: Downstream, stdio: str | None = None) -> None:
        self._config = config
        self._downstream = downstream
        self.callers = Callers(config, stdio)
        tools = [one.tool for one in downstream.offered.values()]
        self._app = App(
            config.store, tools=tools, policy=config.policy, trust=config.trust, encryption=config.encryption
        )
        self._calls = {name: Calls(self._app, caller, config) for name, caller in config.callers.items()}
        self.server: McpServer[Any] = McpServer(
            "milepost", version=__version__, instructions=INSTRUCTIONS,
            on_list_tools=self._list, on_call_tool=self._call,
        )  # fmt: skip

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Hold the store open, and settle what is unknown, for as long as the gateway serves."""
        async with self._app:
            try:
                yield
            finally:
                await self.drained()

    async def drained(self) -> None:
        """Wait for the calls that are under way; what takes longer than the grace is left unknown."""
        await asyncio.gather(*(calls.drain(GRACE_S) for calls in self._calls.values()))

    def _offered(self, context: ServerRequestContext[Any]) -> tuple[CallerEntry | None, dict[str, Offered]]:
        caller = self.callers.of(context)
        allowed = () if caller is None else caller.tools
        return caller, {name: self._downstream.offered[name] for name in allowed}

    async def _list(
        self,
        context: ServerRequestContext[Any],
        params: PaginatedRequestParams | None,  # noqa: ARG002  one page
    ) -> ListToolsResult:
        _, offered = self._offered(context)
        return ListToolsResult(tools=[listing(one) for one in offered.values()])

    async def _call(
        self, context: ServerRequestContext[Any], params: CallToolRequestParams
    ) -> CallToolResult | InputRequiredResult:
        caller, offered = self._offered(context)
        found = offered.get(params.name)
        if caller is None or found is None:
            raise MCPError(INVALID_PARAMS, f"Unknown tool: {params.name}")
        calls, arguments, meta = self._calls[caller.name], params.arguments or {}, dict(context.meta or {})
        try:
            attempted = await calls.attempt(found.tool, arguments, meta)
            outcome = attempted.outcome
            if isinstance(outcome, Waiting) and outcome.reason == "approval" and found.entry.elicited:
                asked = await approving.asked(self._app, caller.name, attempted, context, params)
                if isinstance(asked, InputRequiredResult):
                    return asked
                if asked:
                    attempted = await calls.again(attempted, found.tool, arguments)
        except MilepostError as error:
            said = error.code if isinstance(error, InvalidArguments) else error  # whose words quote what was given
            log.warning("%s of %s: %s", params.name, caller.name, said)
            return answering.refused(error, params.name)
        return answering.answer(attempted, params.name)


def listing(offered: Offered) -> Listed:
    """Return how a tool is offered: the server's own words, and the arguments that are left to the caller.

    Without an output schema, because a call that waits is answered in words. That it only reads is said of declared
    reads alone: hosts ask nobody before those, and repeat them.
    """
    hints = offered.listed.annotations
    if hints is not None and hints.read_only_hint and offered.tool.effect != "read":
        hints = hints.model_copy(update={"read_only_hint": False})
    return Listed(
        name=offered.tool.name,
        title=offered.listed.title,
        description=offered.tool.description or None,
        input_schema=dict(offered.tool.parameters),
        annotations=hints,
    )


async def over_stdio(gateway: Gateway) -> None:
    """Serve the host that started this process until it closes our input, or a signal ends us.

    Either way what is under way is waited for: hosts close the input, and send SIGTERM a moment later.
    """
    with ending_input() as end_input:
        leaving: list[asyncio.Task[None]] = []

        async def leave() -> None:
            await gateway.drained()
            await asyncio.sleep(ANSWER_S)
            end_input()

        def told() -> None:
            if not leaving:
                leaving.append(asyncio.create_task(leave(), name="milepost-leaving"))

        with signals(told):
            async with gateway.opened(), stdio_server() as (read, write):
                await gateway.server.run(read, write, gateway.server.create_initialization_options())
            for one in leaving:
                one.cancel()


@contextmanager
def signals(told: Callable[[], None]) -> Iterator[None]:
    """Call `told` for the first signal that asks this process to end; one more ends it at once."""
    loop, those = asyncio.get_running_loop(), (signal.SIGINT, signal.SIGTERM)

    def no_more() -> None:
        for one in those:
            loop.remove_signal_handler(one)

    def first() -> None:
        no_more()
        told()

    for one in those:
        loop.add_signal_handler(one, first)
    try:
        yield
    finally:
        no_more()


async def over_http(gateway: Gateway, host: str, port: int, listening: Callable[[str], None]) -> None:
    """Serve HTTP until a signal ends it; `listening` is told the address. A request needs a caller's token."""
    config = uvicorn.Config(
        http_app(gateway, host), host=host, port=port, log_level="warning", lifespan="on", ws="none",
        timeout_graceful_shutdown=GRACE_S,
    )  # fmt: skip
    server = _Listening(config, listening)
    with signals(server.leave):
        async with gateway.opened():
            await server.serve()


class _Listening(uvicorn.Server):
    """Says where it listens. Signals end it without ending the process, which has calls to wait for."""

    def __init__(self, config: uvicorn.Config, listening: Callable[[str], None]) -> None:
        super().__init__(config)
        self._told = listening

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            port = self.servers[0].sockets[0].getsockname()[1]
            self._told(f"http://{self.config.host}:{port}{PATH}")

    def leave(self) -> None:
        """Answer what is under way, and end; `handle_exit` would tell streams of answers to end at once."""
        self.should_exit = True

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def http_app(gateway: Gateway, host: str) -> Starlette:
    """Return the application: streamable HTTP at one path, for callers with a token."""
    local = [f"{name}:*" for name in (*LOOPBACK[:2], "[::1]")]
    security = TransportSecuritySettings(
        enable_dns_rebinding_protection=host in LOOPBACK, allowed_hosts=local,
        allowed_origins=[f"http://{name}" for name in local],
    )  # fmt: skip
    manager = StreamableHTTPSessionManager(gateway.server, security_settings=security)
    return Starlette(
        routes=[Route(PATH, endpoint=RequireAuthMiddleware(StreamableHTTPASGIApp(manager), []))],
        middleware=[
            Middleware(AuthenticationMiddleware, backend=BearerAuthBackend(gateway.callers)),
            Middleware(AuthContextMiddleware),
        ],
        lifespan=lambda _: manager.run(),
    )
