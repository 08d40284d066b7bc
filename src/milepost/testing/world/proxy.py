"""A proxy that makes the network fail: `python -m milepost.testing.world.proxy`.

It stands between a tool and a service, one exchange for each connection, and does to it what the account's rules say
(`rules.Toxic`). `--speaks http` passes one request and its answer; `--speaks smtp` passes a whole conversation, and
what is done is done to the end of the mail: to its last line, and to the word that it was taken.

What it did is written into its ledger, `met`, so that a test can see that the fault it asked for truly came.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from milepost.testing.world import ledger as books
from milepost.testing.world import rules, wire
from milepost.testing.world.process import LOOPBACK, announce, arguments, end_with_stdin

CHUNK = 65_536
SILENCE_S = 60.0
LOOK_S = 0.01
END_OF_MAIL = b"\r\n.\r\n"


class Proxy:
    """Passes exchanges on to one origin."""

    def __init__(self, folder: Path, origin: int, name: str) -> None:
        self.folder = folder
        self.origin = origin
        self.ledger = books.Ledger(folder / f"{name}.ledger")
        self._held: set[asyncio.Task[None]] = set()

    def meet(self, account: str, what: str, *, changes: bool) -> tuple[rules.Toxic, int]:
        """Choose what is done to an exchange, and write it down; return it, and the moment by the account's clock."""
        how = rules.read(self.folder, account)
        number = self.ledger.met_so_far(account, what)
        changing = self.ledger.met_so_far(account, "*")
        toxic = how.toxic(what, number, changing) if changes or how.seed is not None else rules.FINE
        now = how.now()  # read before a word of it is written: whoever has read that may move the clock
        self.ledger.meet(account, what, toxic.name, now)
        if changes:
            self.ledger.meet(account, "*", toxic.name, now)
        return toxic, now

    async def forward(self, data: bytes) -> bytes:
        """Send a request to the origin and return its answer; nothing where the origin is not there."""
        try:
            reader, writer = await asyncio.open_connection(LOOPBACK, self.origin)
        except OSError:
            return b""
        writer.write(data)
        heard = await reader.read()
        await wire.finish(writer)
        return heard

    async def later(self, account: str, due: int, data: bytes) -> None:
        """Send a request once the account's clock has come to that moment."""
        while rules.read(self.folder, account).now() < due:  # noqa: ASYNC110  another process moves that clock
            await asyncio.sleep(LOOK_S)
        await self.forward(data)

    async def http(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass one HTTP exchange on."""
        try:
            request = await wire.read_request(reader)
        except (wire.BadRequest, OSError, EOFError):
            request = None
        if request is None:
            await wire.finish(writer)
            return
        toxic, now = self.meet(request.account, request.what, changes=request.changes)
        if toxic.kind == "late":
            task = asyncio.get_running_loop().create_task(self.later(request.account, now + toxic.ms, request.raw))
            self._held.add(task)
            task.add_done_callback(self._held.discard)
            await silence(reader, writer)
            return
        heard = await self.forward(request.raw) if toxic.applies else b""
        await self.respond(toxic, heard, reader, writer)

    async def respond(
        self, toxic: rules.Toxic, heard: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Give the client what the toxic leaves of an answer."""
        match toxic.kind:
            case "drop" | "late":
                await silence(reader, writer)
            case "reset":
                reset(writer)
            case "gateway":
                await wire.finish(writer, wire.answer(toxic.status, {"error": "from nowhere"}))
            case "truncate":
                await wire.finish(writer, heard[: -max(1, len(heard) // 8)])
            case "trickle":
                await trickle(writer, heard, toxic.ms / 1_000)
            case "delay":
                await asyncio.sleep(toxic.ms / 1_000)
                await wire.finish(writer, heard)
            case _:
                await wire.finish(writer, heard)

    async def smtp(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass one conversation with a mail server on, and interfere with the end of the mail."""
        try:
            origin, sink = await asyncio.open_connection(LOOPBACK, self.origin)
        except OSError:
            await wire.finish(writer)
            return
        back = Back(origin, writer)
        said = b""
        try:
            while data := await reader.read(CHUNK):
                said += data
                if END_OF_MAIL not in said:
                    sink.write(data)
                    continue
                account, to = addressed(said)
                toxic, _ = self.meet(account, f"MAIL {to}", changes=True)
                said = b""
                await asyncio.sleep(toxic.ms / 1_000 if toxic.kind == "delay" else 0)
                if toxic.kind not in {"none", "delay"}:
                    back.mute()
                if toxic.applies:
                    sink.write(data)
                if back.muted:
                    await back.heard(wait=toxic.applies)
                    await self.interrupt(toxic, reader, writer)
                    break
        except OSError:
            pass
        finally:
            back.end()
            await wire.finish(sink)
            await wire.finish(writer)

    async def interrupt(self, toxic: rules.Toxic, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Give a mail client what the toxic leaves of the word that its mail was taken."""
        match toxic.kind:
            case "reset":
                reset(writer)
            case "gateway":
                await wire.finish(writer, b"421 4.3.0 from nowhere\r\n")
            case "truncate" | "trickle":
                await trickle(writer, b"2", toxic.ms / 1_000)
            case _:
                await silence(reader, writer)


def addressed(said: bytes) -> tuple[str, str]:
    """Return the account and the recipient of a mail."""
    account = re.search(rb"^X-Account: *(\S+)", said, re.MULTILINE)
    to = re.search(rb"^To: *(\S+)", said, re.MULTILINE)
    return (account[1].decode() if account else "", to[1].decode() if to else "")


class Back:
    """The way back from an origin to its client, which may be muted: then the client hears nothing any more."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.muted = False
        self._answered = asyncio.Event()
        self._passing = asyncio.create_task(self._pass(reader, writer))

    def mute(self) -> None:
        """Let the client hear nothing from here on."""
        self.muted = True

    async def heard(self, *, wait: bool) -> None:
        """Wait until the origin said something that its client did not hear."""
        if wait:
            await self._answered.wait()

    def end(self) -> None:
        """Stop."""
        self._passing.cancel()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(CHUNK):
                if self.muted:
                    self._answered.set()
                    continue
                writer.write(data)
                await writer.drain()
        self._answered.set()


async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Say nothing until the client gives up."""
    with suppress(TimeoutError, OSError):
        async with asyncio.timeout(SILENCE_S):
            while await reader.read(CHUNK):
                continue
    await wire.finish(writer)


async def trickle(writer: asyncio.StreamWriter, data: bytes, pause_s: float) -> None:
    """Send an answer byte by byte."""
    with suppress(OSError):
        for place in range(len(data)):
            writer.write(data[place : place + 1])
            await writer.drain()
            await asyncio.sleep(pause_s)
    await wire.finish(writer)


def reset(writer: asyncio.StreamWriter) -> None:
    """Break the connection so that the client sees a reset, and not its end."""
    held: socket.socket | None = writer.get_extra_info("socket")
    if held is not None:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def run(options: argparse.Namespace) -> None:
    """Serve until killed."""
    proxy = Proxy(options.folder, options.origin, options.name)
    speak = proxy.http if options.speaks == "http" else proxy.smtp
    server = await asyncio.start_server(speak, LOOPBACK, 0, backlog=256, limit=wire.MOST_HEAD_BYTES)
    announce(options.port_file, server.sockets[0].getsockname()[1])
    await server.serve_forever()


def main(argv: Sequence[str] | None = None) -> None:
    """Serve until the parent ends."""
    parser = arguments("A proxy that makes the network fail.")
    parser.add_argument("--origin", type=int, required=True, help="the port that is passed on to")
    parser.add_argument("--speaks", choices=("http", "smtp"), required=True)
    parser.add_argument("--name", required=True, help="the name of its ledger")
    options = parser.parse_args(argv)
    end_with_stdin()
    asyncio.run(run(options))


if __name__ == "__main__":
    main()
