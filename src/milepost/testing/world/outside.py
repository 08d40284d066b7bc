"""The outside world as a test holds it: its processes, and one account for each test."""

from __future__ import annotations

import random
import re
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar
from urllib.parse import quote

import msgspec

from milepost.core.duration import Duration, parse_ms
from milepost.testing.check import Applied
from milepost.testing.world import ledger as books
from milepost.testing.world import rules
from milepost.testing.world.drop_service import DropFolder
from milepost.testing.world.process import LOOPBACK, Service
from milepost.testing.world.rules import Rules

T = TypeVar("T")

HERE = "milepost.testing.world"
NAME = re.compile(r"[\w.-]{1,60}")
TAKEN_WITHIN_S = 10.0
LOOK_S = 0.005


class World:
    """An HTTP service and a mail server behind a fault proxy each, and a drop folder: all processes of their own.

    They run between enter and exit, and end with this process however it ends. Their ledgers stay in `folder` and can
    be read at any time. The mail server needs aiosmtpd; `mail=False` does without. Raises NotStarted where one of them
    does not start to listen.
    """

    def __init__(self, folder: Path, *, mail: bool = True) -> None:
        self.folder = folder
        self.http_port = 0
        self.mail_port = 0
        self._mail = mail
        self._running = ExitStack()

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as starting:
            services = [self._start(starting, f"{HERE}.{name}") for name in ("http_service", "drop_service")]
            mail = self._start(starting, f"{HERE}.mail_service") if self._mail else None
            self.http_port = self._proxied(starting, services[0].port(), "http")
            if mail is not None:
                self.mail_port = self._proxied(starting, mail.port(), "smtp")
            services[1].port()
            self._running = starting.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._running.close()

    def account(self, name: str) -> Account:
        """Return an account: a part of the world that nothing else touches, with rules and books of its own.

        Its name is a word: letters, digits, and what may stand in the name of a file and in the header of a mail.
        """
        if not NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name for an account: {NAME.pattern}")
        return Account(self.folder, name, self.http_port, self.mail_port)

    def _start(self, starting: ExitStack, module: str) -> Service:
        service = Service(module, self.folder)
        starting.callback(service.stop)
        return service

    def _proxied(self, starting: ExitStack, origin: int, speaks: str) -> int:
        name = f"{speaks}-proxy"
        options = ("--origin", str(origin), "--speaks", speaks, "--name", name)
        service = Service(f"{HERE}.proxy", self.folder, *options, called=name)
        starting.callback(service.stop)
        return service.port()


@dataclass(frozen=True)
class Account:
    """One account in the outside world. Any process that knows these four things has the same one."""

    folder: Path
    name: str
    http_port: int
    mail_port: int

    def url(self, kind: str, tool: str, name: str) -> str:
        """Return the address of an effect: `kind` is keyed, queryable, absolute or irreversible."""
        path = "/".join(quote(part, safe="") for part in (self.name, kind, tool, name))
        return f"http://{LOOPBACK}:{self.http_port}/{path}"

    @property
    def files(self) -> DropFolder:
        """The drop folder."""
        return DropFolder(self.folder)

    # ------------------------------------------------------------ its rules

    @property
    def rules(self) -> Rules:
        """The rules that hold now."""
        return rules.read(self.folder, self.name)

    def obey(self, new: Rules) -> None:
        """Let other rules hold, from the next exchange on."""
        rules.write(self.folder, self.name, new)

    def advance(self, span: Duration | int) -> None:
        """Move the account's clock by a span such as "3d", or by milliseconds, which may be negative."""
        now = self.rules
        ms = span if isinstance(span, int) else parse_ms(span)
        self.obey(msgspec.structs.replace(now, clock_ms=now.clock_ms + ms))

    @property
    def clock(self) -> AccountClock:
        """The account's clock, for `App(clock=…)`: so that worker and world agree."""
        return AccountClock(self.folder, self.name)

    # ------------------------------------------------------------ its books

    def lines(self) -> list[books.Line]:
        """Return every effect that was applied, of all services; a file that was sent is taken first.

        Raises TimeoutError where the service of the drop folder does not take it.
        """
        self._taken()
        found: list[books.Line] = []
        for ledger in ("http", "mail", "files"):
            found.extend(self._read(ledger, lambda book: book.applied(self.name)))
        return found

    def applied(self) -> list[Applied]:
        """Return what was applied, as the checker takes it."""
        return [line.applied for line in self.lines()]

    def requests(self) -> list[books.Request]:
        """Return every request that asked for a change and reached a service."""
        found: list[books.Request] = []
        for ledger in ("http", "mail", "files"):
            found.extend(self._read(ledger, lambda book: book.requests(self.name)))
        return found

    def met(self) -> list[str]:
        """Return what the proxies did to each exchange that asked for a change, by name."""
        found: list[str] = []
        for ledger in ("http-proxy", "smtp-proxy"):
            met = self._read(ledger, lambda book: book.met(self.name))
            found.extend(toxic for what, toxic in met if what == "*")
        return found

    def _taken(self) -> None:
        """Wait until each file that was sent is taken: nothing but a moment stands between the two."""
        deadline = time.monotonic() + TAKEN_WITHIN_S
        while self.files.waiting(self.name):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the drop service took no file of {self.name!r} for {TAKEN_WITHIN_S:.0f} s")
            time.sleep(LOOK_S)

    def _read(self, name: str, ask: Callable[[books.Ledger], list[T]]) -> list[T]:
        path = self.folder / f"{name}.ledger"
        if not path.exists():
            return []
        ledger = books.Ledger(path, read_only=True)
        try:
            return ask(ledger)
        finally:
            ledger.close()


class AccountClock:
    """The clock of an account, which a test moves from outside while processes run. Chance is the system's own."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self._path = folder / f"{name}.rules"
        self._seen = -1
        self._ahead_ms = 0

    def now(self) -> int:
        """Return the account's time in milliseconds since 1970."""
        try:
            written = self._path.stat()
        except FileNotFoundError:
            written = None
        mark = -1 if written is None else written.st_ino ^ written.st_mtime_ns
        if mark != self._seen:
            self._seen, self._ahead_ms = mark, rules.read(self._folder, self._name).clock_ms
        return time.time_ns() // 1_000_000 + self._ahead_ms

    def chance(self) -> float:
        """Return a random number in [0, 1)."""
        return random.random()  # noqa: S311  jitter is no secret

    def uuid(self) -> uuid.UUID:
        """Return a random UUID."""
        return uuid.uuid4()
