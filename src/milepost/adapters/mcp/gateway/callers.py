"""Who calls, and what each caller may use. The server decides: what a caller may not use is not there for it.

Over HTTP a caller is known by its token alone; over stdio it is the host that started this process, and the file says
which caller that is. Nobody else is let in, also not on the loopback, where any program of the machine can call.
"""

from __future__ import annotations

import hmac
from hashlib import sha256
from typing import TYPE_CHECKING

from mcp.server.auth.provider import AccessToken
from starlette.requests import Request

from milepost.adapters.mcp.gateway.config import BadGateway

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

    from milepost.adapters.mcp.gateway.config import CallerEntry, Config


class Callers:
    """The callers of a file. `stdio` is the one that speaks over this process's own input, where one does."""

    def __init__(self, config: Config, stdio: str | None = None) -> None:
        self._by_name = config.callers
        self._stdio = stdio
        self._digests = {name: _digest(one.token) for name, one in config.callers.items() if one.token}

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return whose token it is. Every one is compared, so that the time it takes tells nothing."""
        given = _digest(token)
        found = [name for name, digest in self._digests.items() if hmac.compare_digest(digest, given)]
        return AccessToken(token=found[0], client_id=found[0], scopes=[]) if found else None

    def of(self, context: ServerRequestContext) -> CallerEntry | None:
        """Return who sent a request; None for nobody that is known."""
        request = context.request
        if isinstance(request, Request):
            name = request.user.display_name if request.user.is_authenticated else ""
            return self._by_name.get(name)
        return self._by_name.get(self._stdio or "")


def stdio_caller(config: Config, asked: str | None) -> str:
    """Return the caller of a host that started this process. Raises BadGateway where the file names none."""
    name = asked or config.stdio or (next(iter(config.callers)) if len(config.callers) == 1 else None)
    if name is None:
        raise BadGateway(config.path, ['several callers, and none is for stdio: write [stdio] caller = "…"'])
    if name not in config.callers:
        raise BadGateway(config.path, [f"there is no [caller.{name}]"])
    return name


def _digest(token: str) -> bytes:
    return sha256(token.encode()).digest()
