"""A proxy in front of a PostgreSQL server that cuts the connection at a chosen message of a chosen commit.

It reads both directions message by message. A commit is the text COMMIT, sent as such or by the name of the statement
that was prepared from it; its messages are those up to the Sync behind it, and the server's up to ReadyForQuery. Where
the server is to have got the commit, its answer is awaited before both ends are cut, so that it is known what became of
it, and only the client does not know.
"""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress

BEFORE = ("nothing of it", "its first message", "all but the last")
BEHIND = ("all of it", "half of the answer", "all but the last answer")
PLACES = (*BEFORE, *BEHIND)
COMMIT = b"COMMIT"
START_BYTES = 4
KIND_BYTES = 5
ENCRYPTED = {struct.pack("!I", code) for code in (80_877_103, 80_877_104)}  # asks for TLS, or for GSSAPI


class CommitProxy:
    """Listens on a loopback port, and passes on until the chosen commit; `cut` then says that it came."""

    def __init__(self, host: str, port: int, *, commit: int, place: str) -> None:
        self._to = (host, port)
        self._left = commit
        self._place = place
        self.cut = threading.Event()
        self._turn = threading.Lock()
        self._open: list[socket.socket] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        """Stop listening, and cut what is open."""
        for one in (self._listening, *self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.create_connection(self._to)
                self._open += [client, server]
                pair = Pair(self, client, server)
                threading.Thread(target=pair.requests, daemon=True).start()
                threading.Thread(target=pair.answers, daemon=True).start()

    def chosen(self) -> bool:
        """Say whether the commit that begins now is the chosen one."""
        with self._turn:
            self._left -= 1
            return self._left == 0

    @property
    def place(self) -> str:
        """Where the chosen commit is cut."""
        return self._place


class Pair:
    """One connection, from a client to the server."""

    def __init__(self, proxy: CommitProxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._names: set[bytes] = set()
        self._committing = False  # the chosen commit is on its way, and its answer is to be cut

    def requests(self) -> None:
        """Pass on what the client says."""
        with suppress(OSError, struct.error):
            while (first := self._unnamed())[START_BYTES:] in ENCRYPTED:
                self._client.sendall(b"N")  # not here: the client goes on in plain
            self._server.sendall(first)
            while message := self._message(self._client):
                if self._is_commit(message) and self._proxy.chosen():
                    self._commit(message)
                else:
                    self._server.sendall(message)
        self._end()

    def _unnamed(self) -> bytes:
        """Return a message of those before the first: they have a length, and no kind."""
        length = self._exactly(self._client, START_BYTES)
        return length + self._exactly(self._client, struct.unpack("!I", length)[0] - START_BYTES)

    def _commit(self, message: bytes) -> None:
        messages = [message]
        while message[:1] not in {b"S", b"Q"}:
            message = self._message(self._client)
            messages.append(message)
        place = self._proxy.place
        if place in BEFORE:
            passed = {"nothing of it": [], "its first message": messages[:1], "all but the last": messages[:-1]}[place]
            if len(passed) < len(messages):  # a commit of one message has no part
                self._server.sendall(b"".join(passed))
            self._proxy.cut.set()
            raise OSError
        self._committing = True
        self._server.sendall(b"".join(messages))

    def answers(self) -> None:
        """Pass on what the server says."""
        with suppress(OSError, struct.error):
            while message := self._message(self._server):
                if self._committing and message.startswith(b"C") and COMMIT in message:
                    if self._proxy.place == "half of the answer":
                        self._client.sendall(message[:KIND_BYTES])
                    elif self._proxy.place == "all but the last answer":
                        self._client.sendall(message)
                    self._proxy.cut.set()
                    break
                self._client.sendall(message)
        self._end()

    def _is_commit(self, message: bytes) -> bool:
        kind, said = message[:1], message[KIND_BYTES:]
        match kind:
            case b"Q":
                return said.rstrip(b"\0").strip().upper() == COMMIT
            case b"P":
                name, text, *_ = said.split(b"\0")
                self._names.discard(name)
                if text.strip().upper() != COMMIT:
                    return False
                self._names.add(name)
                return name == b""  # one with a name is only prepared: whoever waits for that has not said Sync yet
            case b"B":
                _, name, *_ = said.split(b"\0")
                return name != b"" and name in self._names
            case _:
                return False

    def _message(self, source: socket.socket) -> bytes:
        head = self._exactly(source, KIND_BYTES)
        return head + self._exactly(source, struct.unpack("!I", head[1:])[0] - START_BYTES)

    def _exactly(self, source: socket.socket, count: int) -> bytes:
        got = b""
        while len(got) < count:
            some = source.recv(count - len(got))
            if not some:
                raise OSError
            got += some
        return got

    def _end(self) -> None:
        for one in (self._client, self._server):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
