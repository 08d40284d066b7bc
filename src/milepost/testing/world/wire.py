"""As much HTTP/1.1 as a service and a proxy of a test need: one request and one answer for each connection."""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

MOST_BODY_BYTES = 100_000_000
MOST_HEAD_BYTES = 65_536


class Request(NamedTuple):
    """One request. `raw` has the bytes as they came; `path` is without the account in front."""

    method: str
    account: str
    path: tuple[str, ...]
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    raw: bytes

    @property
    def changes(self) -> bool:
        """Whether it asks for a change."""
        return self.method not in {"GET", "HEAD"}

    @property
    def what(self) -> str:
        """What it asks for, the same each time it is sent again."""
        return f"{self.method} {'/'.join(self.path)} {self.headers.get('idempotency-key', '')}".rstrip()


class BadRequest(Exception):
    """Bytes that are no request."""


async def read_request(reader: asyncio.StreamReader) -> Request | None:
    """Return the request on a connection, None where it ended without one. Raises BadRequest."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise BadRequest("the head ends in the middle") from error
        return None
    except asyncio.LimitOverrunError as error:
        raise BadRequest("the head is too long") from error
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    try:
        method, target, _ = first.split(" ")
        length = int(headers.get("content-length", "0"))
    except ValueError as error:
        raise BadRequest(first) from error
    if not 0 <= length <= MOST_BODY_BYTES:
        raise BadRequest(f"a body of {length} bytes")
    body = await reader.readexactly(length)
    url = urlsplit(target)
    _, account, *path = map(unquote, url.path.split("/"))
    query = {name: values[-1] for name, values in parse_qs(url.query).items()}
    return Request(method, account, tuple(path), query, headers, body, head + body)


def answer(status: int, content: Any) -> bytes:
    """Return the bytes of an answer with a JSON body, after which the connection is closed."""
    body = json.dumps(content).encode()
    reason = HTTPStatus(status).phrase
    head = (
        f"HTTP/1.1 {status} {reason}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + body


async def finish(writer: asyncio.StreamWriter, data: bytes = b"") -> None:
    """Send what is left and close. A client that is gone already is no error: that is what is tested."""
    try:
        if data:
            writer.write(data)
            await writer.drain()
        writer.close()
        await writer.wait_closed()
    except OSError:
        return
