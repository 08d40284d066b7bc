"""The gateway's file: which servers, what each of their tools promises, and who may use which.

    store = "sqlite:////var/lib/milepost/gateway.db"

    [server.bank]
    url = "http://127.0.0.1:9000/mcp"

    [server.bank.tool.charge]
    effect = "keyed"
    key_ttl = "24h"
    scopes = ["pay"]

    [caller.desk]
    token = "$DESK_TOKEN"
    tools = ["bank_charge"]
    scopes = ["pay"]

It is read strictly: a word that is not known is an error, because a misspelt `aproval` would leave a tool without one.
All that is wrong is told at once. Secrets are named, never written: a value `$NAME` is taken from the environment, and
one that is missing there is an error too. Paths are seen from the folder of the file.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from milepost.core.duration import parse_ms
from milepost.errors import InvalidDeclaration, MilepostError
from milepost.stores.places import file_of

# What a tool may be declared with, beside approval and reconcile.
DECLARED = frozenset({
    "effect", "key_ttl", "timeout", "scopes", "cost", "volatile", "once", "visible_within", "repeatable", "risk",
    "version", "compatible_with", "name", "description", "errors", "key_argument",
})  # fmt: skip
OF_KIND = {"repeatable": bool, "name": str, "description": str, "key_argument": str}
OF_TOOL = DECLARED | {"approval", "reconcile"}
OF_SERVER = frozenset({"command", "cwd", "env", "url", "headers", "tool"})
OF_CALLER = frozenset({"token", "tools", "scopes", "tenant", "budget"})
OF_FILE = frozenset({"store", "policy", "trust", "encryption", "remember", "http", "stdio", "server", "caller"})
VIEWS = ("json", "structured", "text")  # what of an answer a path leads into
OF_RECONCILE = frozenset({"tool", "arguments", "happened", "absent", "same"})
REMEMBER_LEAST_MS = 60_000
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}")
_FROM_ENVIRONMENT = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)|\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class BadGateway(MilepostError):
    """The gateway's file cannot be honoured. Nothing is served under it."""

    code = "bad_gateway"

    def __init__(self, path: str, problems: list[str]) -> None:
        super().__init__(
            f"{path}: {'; '.join(problems)}. Nothing is served. Mend it, and look: milepost gateway --config {path} "
            "--list"
        )
        self.path = path
        self.problems = problems


@dataclass(frozen=True)
class Asked:
    """How another tool of the server tells whether an attempt happened; see `reconciling`."""

    tool: str
    arguments: Mapping[str, Any]
    happened: Mapping[str, Any]
    absent: Mapping[str, Any]
    same: Mapping[str, Any]


@dataclass(frozen=True)
class ToolEntry:
    """What the file declares of one tool. `elicited`: the host may ask its user for the approval."""

    declared: Mapping[str, Any]
    approval: bool
    elicited: bool
    asked: Asked | None


@dataclass(frozen=True)
class ServerEntry:
    """One server: a command that is started, or an address."""

    name: str
    command: tuple[str, ...]
    cwd: str | None
    env: Mapping[str, str]
    url: str | None
    headers: Mapping[str, str]
    tools: Mapping[str, ToolEntry]


@dataclass(frozen=True)
class CallerEntry:
    """One caller: by which token it is known (empty: by none), what it may use, and on whose behalf."""

    name: str
    token: str = field(repr=False)
    tools: tuple[str, ...]
    scopes: tuple[str, ...]
    tenant: str | None
    budget: Mapping[str, Decimal]


@dataclass(frozen=True)
class Config:
    """The whole file. `stdio` names the caller of a host that starts the gateway as its child."""

    path: str
    store: str
    policy: str | None
    trust: str | None
    encryption: str | None
    remember_ms: int
    host: str
    port: int
    stdio: str | None
    servers: tuple[ServerEntry, ...]
    callers: Mapping[str, CallerEntry]


def read(path: Path, environment: Mapping[str, str] | None = None) -> Config:
    """Read a gateway's file. Raises BadGateway with everything that is wrong with it."""
    try:
        given = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadGateway(str(path), [str(error)]) from error
    reading = _Reading(path, os.environ if environment is None else environment)
    config = reading.file(given)
    if reading.problems:
        raise BadGateway(str(path), reading.problems)
    return config


class _Reading:
    """One reading of a file, and what it found wrong."""

    def __init__(self, path: Path, environment: Mapping[str, str]) -> None:
        self.path = path
        self.environment = environment
        self.problems: list[str] = []

    def file(self, given: dict[str, Any]) -> Config:
        self.known(given, OF_FILE, "the file")
        http = self.table(given, "http", "the file")
        self.known(http, frozenset({"host", "port"}), "[http]")
        stdio = self.table(given, "stdio", "the file")
        self.known(stdio, frozenset({"caller"}), "[stdio]")
        servers = self.table(given, "server", "the file")
        callers = self.table(given, "caller", "the file")
        config = Config(
            path=str(self.path),
            store=self.store(self.text(given, "store", "the file") or "sqlite:///gateway.db"),
            policy=self.beside(self.text(given, "policy", "the file")),
            trust=self.beside(self.text(given, "trust", "the file")),
            encryption=self.beside(self.text(given, "encryption", "the file")),
            remember_ms=self.span(given.get("remember", "1d")),
            host=self.text(http, "host", "[http]") or "127.0.0.1",
            port=self.kind(http.get("port", 8474), int, "port of [http]", 8474),
            stdio=self.text(stdio, "caller", "[stdio]"),
            servers=tuple(self.server(name, one) for name, one in servers.items()),
            callers={name: self.caller(name, one) for name, one in callers.items()},
        )
        self.whole(config)
        return config

    def whole(self, config: Config) -> None:
        """Look at what no part of the file can know."""
        if not config.servers:
            self.problems.append("it names no [server.…]")
        if config.stdio is not None and config.stdio not in config.callers:
            self.problems.append(f"[stdio] names the caller {config.stdio!r}, and there is no [caller.{config.stdio}]")
        tokens = [caller.token for caller in config.callers.values() if caller.token]
        if len(tokens) != len(set(tokens)):
            self.problems.append("two callers have the same token")
        elicited = [tool for server in config.servers for tool, one in server.tools.items() if one.elicited]
        if elicited and config.trust is not None:
            self.problems.append(
                f'{elicited[0]} has approval = "elicit", and with trust an answer counts only with an operator\'s '
                "signature: write approval = true"
            )

    def server(self, name: str, given: Any) -> ServerEntry:
        where = f"[server.{name}]"
        self.named(name, where)
        given = self.kind(given, dict, where, {})
        self.known(given, OF_SERVER, where)
        command = tuple(self.kind(given.get("command", []), list, f"command of {where}", []))
        url = self.text(given, "url", where)
        if bool(command) == bool(url):
            self.problems.append(f"{where} needs a command, as a list, or a url: one of them")
        if not all(isinstance(word, str) for word in command):
            self.problems.append(f"command of {where} is no list of texts")
        return ServerEntry(
            name=name,
            command=command,
            cwd=self.beside(self.text(given, "cwd", where) or "."),
            env=self.texts(given, "env", where),
            url=url,
            headers=self.texts(given, "headers", where),
            tools={tool: self.tool(tool, one, name) for tool, one in self.table(given, "tool", where).items()},
        )

    def tool(self, name: str, given: Any, server: str) -> ToolEntry:
        where = f"[server.{server}.tool.{name}]"
        given = self.kind(given, dict, where, {})
        self.known(given, OF_TOOL, where)
        approval = given.get("approval", False)
        if approval not in (True, False, "elicit"):
            self.problems.append(f'approval of {where} is true, false or "elicit"')
        declared = {key: value for key, value in given.items() if key in DECLARED}
        if "cost" in declared:
            declared["cost"] = self.amounts(declared["cost"], f"cost of {where}")
        for word, kind in OF_KIND.items():
            if word in declared:
                self.kind(declared[word], kind, f"{word} of {where}", None)
        if declared.get("errors", "unknown") not in ("unknown", "rejected"):
            self.problems.append(f'errors of {where} is "unknown" or "rejected"')
        if "reconcile" in given:
            asked = self.reconcile(given["reconcile"], where)
        elif declared.get("effect") == "queryable":
            asked = None
            self.problems.append(f"{where} is queryable, and has no reconcile that says whom to ask")
        else:
            asked = None
        return ToolEntry(declared, approval is not False, approval == "elicit", asked)

    def reconcile(self, given: Any, tool: str) -> Asked:
        where = f"reconcile of {tool}"
        given = self.kind(given, dict, where, {})
        self.known(given, OF_RECONCILE, where)
        name = self.text(given, "tool", where)
        happened = self.table(given, "happened", where)
        if name is None or not happened:
            self.problems.append(f"{where} needs a tool to ask, and happened = {{…}}, what it answers if so")
        absent, same = self.table(given, "absent", where), self.table(given, "same", where)
        for path in (*happened, *absent, *same):
            if path.split(".")[0] not in VIEWS:
                self.problems.append(f"{where} looks at {path!r}, which begins with none of {', '.join(VIEWS)}")
        return Asked(name or "", self.table(given, "arguments", where), happened, absent, same)

    def caller(self, name: str, given: Any) -> CallerEntry:
        where = f"[caller.{name}]"
        self.named(name, where)
        given = self.kind(given, dict, where, {})
        self.known(given, OF_CALLER, where)
        token = self.text(given, "token", where)
        if token is not None and not _FROM_ENVIRONMENT.fullmatch(token):
            self.problems.append(f'token of {where} stands in the file: write token = "$NAME", and set NAME')
        return CallerEntry(
            name=name,
            token=self.from_environment(token or "", f"token of {where}"),
            tools=self.list(given, "tools", where),
            scopes=self.list(given, "scopes", where),
            tenant=self.text(given, "tenant", where),
            budget=self.amounts(given.get("budget", {}), f"budget of {where}"),
        )

    # ------------------------------------------------------------ kinds

    def known(self, given: Mapping[str, Any], words: frozenset[str], where: str) -> None:
        for word in sorted(given.keys() - words):
            self.problems.append(f"{where} says {word!r}, which is none of {', '.join(sorted(words))}")

    def named(self, name: str, where: str) -> None:
        if not _NAME.fullmatch(name):
            self.problems.append(f"{where}: a name is a letter, then letters, digits, '_' or '-', 32 at most")

    def kind(self, given: Any, kind: type[Any], what: str, default: Any) -> Any:
        if isinstance(given, kind) and not (kind is int and isinstance(given, bool)):
            return given
        self.problems.append(f"{what} is {given!r}, and should be a {kind.__name__}")
        return default

    def table(self, given: Mapping[str, Any], key: str, where: str) -> dict[str, Any]:
        found: dict[str, Any] = self.kind(given.get(key, {}), dict, f"{key} of {where}", {})
        return found

    def text(self, given: Mapping[str, Any], key: str, where: str) -> str | None:
        if key not in given:
            return None
        found: str | None = self.kind(given[key], str, f"{key} of {where}", None)
        return found

    def list(self, given: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
        found = self.kind(given.get(key, []), list, f"{key} of {where}", [])
        if not all(isinstance(one, str) and one for one in found):
            self.problems.append(f"{key} of {where} is no list of texts")
            return ()
        return tuple(found)

    def texts(self, given: Mapping[str, Any], key: str, where: str) -> dict[str, str]:
        found = self.table(given, key, where)
        return {
            name: self.from_environment(self.kind(value, str, f"{name} in {key} of {where}", ""), f"{key} of {where}")
            for name, value in found.items()
        }

    def store(self, url: str) -> str:
        try:
            file = file_of(url)
        except InvalidDeclaration as error:
            self.problems.append(str(error))
            return url
        return url if file is None else f"sqlite:///{self.beside(file)}"

    def beside(self, name: str | None) -> str | None:
        """Return a path as it is meant: from the folder of the file, wherever a host starts the gateway."""
        return None if name is None else str(self.path.resolve().parent / name)

    def span(self, given: Any) -> int:
        try:
            found = parse_ms(given)
        except (TypeError, ValueError) as error:
            self.problems.append(f"remember: {error}")
            return 1
        if found < REMEMBER_LEAST_MS:
            self.problems.append(f"remember is {given!r}: a host that comes back needs a minute at least")
        return found

    def amounts(self, given: Any, what: str) -> dict[str, Decimal]:
        found: dict[str, Decimal] = {}
        for unit, amount in self.kind(given, dict, what, {}).items():
            try:
                found[unit] = Decimal("-1" if isinstance(amount, float | bool) else amount)
            except (ArithmeticError, TypeError, ValueError):
                found[unit] = Decimal(-1)
            if not found[unit].is_finite() or found[unit] < 0:
                self.problems.append(f'{unit} in {what} is no amount: write a whole number, or a text such as "0.02"')
        return found

    def from_environment(self, value: str, what: str) -> str:
        """Put in what `$NAME` stands for."""

        def found(name: re.Match[str]) -> str:
            named = name.group(1) or name.group(2)
            if named not in self.environment or not self.environment[named]:
                self.problems.append(f"{what} is taken from the environment, and {named} is not set")
            return self.environment.get(named, "")

        return _FROM_ENVIRONMENT.sub(found, value)
