"""A proxy between a store and its server, which cuts the connection at the COMMIT that a test names."""

import socket
import threading
from typing import Literal

Cut = Literal["before", "behind"]
COMMIT = b"COMMIT\0"
PIECE = 65_536


class Cutter:
    """Passes everything on, until it is told to `cut`: `before` the server gets a COMMIT, or `behind` it."""

    def __init__(self, to: str) -> None:
        self._to = to
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.cut: Cut | None = None
        self.cuts = 0
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._to)
            self._open += [client, server]
            deaf = threading.Event()
            for source, sink, towards in ((client, server, True), (server, client, False)):
                args = (source, sink, towards, deaf)
                threading.Thread(target=self._pass_on, args=args, daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket, towards: bool, deaf: threading.Event) -> None:  # noqa: FBT001
        try:
            while piece := source.recv(PIECE):
                if towards and self.cut is not None and COMMIT in piece:
                    cut, self.cut = self.cut, None
                    self.cuts += 1
                    deaf.set()
                    if cut == "behind":
                        sink.sendall(piece)
                        sink.shutdown(socket.SHUT_WR)  # the server finishes what it has, then sees the end
                        self._until_it_has_answered(sink)
                    source.shutdown(socket.SHUT_RDWR)
                    break
                if towards or not deaf.is_set():
                    sink.sendall(piece)
        except OSError:
            pass
        finally:
            for end in (source, sink):
                end.close()

    def _until_it_has_answered(self, server: socket.socket) -> None:
        server.settimeout(10)
        while server.recv(PIECE):
            pass

    def close(self) -> None:
        """Stop passing on."""
        for one in (self._listening, *self._open):
            one.close()
