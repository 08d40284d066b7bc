"""An HTTP service with one kind of endpoint for each class of effect: `python -m milepost.testing.world.http_service`.

Every path is `/ACCOUNT/KIND/TOOL/NAME`, the body is the JSON object of the arguments, and `Effect-Attempt` may say
which attempt it is. That number, and the `Effect-Key` of the kinds that do not look at keys, only go into the ledger.

  POST keyed         applies once for each `Idempotency-Key`, as long as the account's rules say that keys are known;
                     the same key with other arguments is answered 422
  POST queryable     applies each time
  PUT  absolute      applies if `If-Match` is the version of the name (0 for none yet), else 412
  POST irreversible  applies each time, and answers no question

`GET` of the same path lists what was applied under the name (`shows_after_ms` late, except for `absolute`), and its
version. The service is honest: what goes wrong on the way is the proxy's.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from milepost.testing.world import ledger as books
from milepost.testing.world import rules, wire
from milepost.testing.world.process import LOOPBACK, announce, arguments, end_with_stdin

KINDS = {"keyed": "POST", "queryable": "POST", "absolute": "PUT", "irreversible": "POST"}
PATH_PARTS = 3


class Refused(Exception):
    """The request is refused, and nothing was done."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why


class HttpService:
    """Answers requests, and writes down what it did."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ledger = books.Ledger(folder / "http.ledger")

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the one request of a connection."""
        try:
            request = await wire.read_request(reader)
            if request is None:
                await wire.finish(writer)
                return
            data = wire.answer(200, self.handle(request))
        except wire.BadRequest as error:
            data = wire.answer(400, {"error": str(error)})
        except Refused as refused:
            data = wire.answer(refused.status, {"error": refused.why})
        except (OSError, EOFError):
            data = b""  # the client is gone in the middle of its request: nothing was asked
        await wire.finish(writer, data)

    def handle(self, request: wire.Request) -> dict[str, Any]:
        """Do what is asked; return the answer's content. Raises Refused."""
        if len(request.path) != PATH_PARTS or request.path[0] not in KINDS:
            raise Refused(404, "no such path")
        kind, tool, name = request.path
        how = rules.read(self.folder, request.account)
        if request.method == "GET":
            return self._look(request.account, how, kind, tool, name)
        if request.method != KINDS[kind]:
            raise Refused(405, f"{kind} takes {KINDS[kind]}")
        key = request.headers.get("idempotency-key", request.headers.get("effect-key", ""))
        attempt = int(request.headers.get("effect-attempt", "0"))
        self.ledger.asked(request.account, books.Request(request.what, key, attempt, how.now()))
        try:
            args = json.loads(request.body)
        except ValueError as error:
            raise Refused(400, str(error)) from error
        line = books.Line(0, tool, name, key, attempt, how.now(), args)
        return self._apply(request, how, kind, line)

    def _look(self, account: str, how: rules.Rules, kind: str, tool: str, name: str) -> dict[str, Any]:
        if kind == "irreversible":
            raise Refused(405, "nobody can be asked about these")
        late = 0 if kind == "absolute" else how.shows_after_ms
        found = self.ledger.of_name(account, kind, tool, name, until=how.now() - late)
        return {"found": [shown(line) for line in found], "version": len(found)}

    def _apply(self, request: wire.Request, how: rules.Rules, kind: str, line: books.Line) -> dict[str, Any]:
        if kind == "keyed":
            known = self._known(request, how, line)
            if known is not None:
                return shown(known)
        if kind == "absolute":
            version = len(self.ledger.of_name(request.account, kind, line.tool, line.name, until=line.at))
            if request.headers.get("if-match") != str(version):
                raise Refused(412, f"{line.name} has version {version}")
        return shown(self.ledger.apply(request.account, kind, line))

    def _known(self, request: wire.Request, how: rules.Rules, line: books.Line) -> books.Line | None:
        if "idempotency-key" not in request.headers:
            raise Refused(400, "an Idempotency-Key is needed")
        known = [one for one in self.ledger.of_key(request.account, line.tool, line.key)
                 if one.at > line.at - how.knows_keys_ms]  # fmt: skip
        if known and known[-1].args != line.args:
            raise Refused(422, "this key was used with other arguments")
        return known[-1] if known else None


def shown(line: books.Line) -> dict[str, Any]:
    """Return an applied effect as the service answers it."""
    return {"receipt": f"{line.tool}-{line.name}-{line.seq}", "args": line.args}


async def run(folder: Path, port_file: Path) -> None:
    """Serve until killed."""
    service = HttpService(folder)
    server = await asyncio.start_server(service.serve, LOOPBACK, 0, backlog=256, limit=wire.MOST_HEAD_BYTES)
    announce(port_file, server.sockets[0].getsockname()[1])
    await server.serve_forever()


def main(argv: Sequence[str] | None = None) -> None:
    """Serve until the parent ends."""
    options = arguments("An HTTP service with a ledger.").parse_args(argv)
    end_with_stdin()
    asyncio.run(run(options.folder, options.port_file))


if __name__ == "__main__":
    main()
