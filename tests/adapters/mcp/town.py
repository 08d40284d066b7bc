"""Real processes: a bank that keeps a ledger, gateways before it, and hosts that are real clients of MCP."""

import asyncio
import json
import os
import re
import subprocess
import sys
from asyncio import CancelledError
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import httpx2
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, TextContent

from tests.polling import eventually

T = TypeVar("T")
BANK = Path(__file__).with_name("bank.py")
TOKENS = {"DESK_TOKEN": "desk-secret", "CLERK_TOKEN": "clerk-secret"}
PAUSE_S = 0.01
LISTENS = re.compile(r"running on (http://\S+) ")
LISTENING = re.compile(r"^listening on (.+)\n", re.MULTILINE)

FILE = """
store = "sqlite:///NAME.db"
policy = "policy.toml"

[server.bank]
url = "ADDRESS"
[server.bank.tool.find_charge]
effect = "read"
[server.bank.tool.charge]
effect = "queryable"
visible_within = "1s"
scopes = ["pay"]
[server.bank.tool.charge.reconcile]
tool = "find_charge"
arguments = { order = "$args.order" }
happened = { "structured.found" = true }
absent = { "structured.found" = false }
same = { "structured.cents" = "$args.cents" }
[server.bank.tool.charge_once]
effect = "keyed"
key_ttl = "1h"
[server.bank.tool.mail]

[server.strict]
url = "ADDRESS"
[server.strict.tool.mail]
errors = "rejected"
[server.strict.tool.charge]
approval = "elicit"
[server.strict.tool.charge_once]
approval = true
[server.strict.tool.charge_keyed]
key_argument = "idempotency_key"
cost = { usd = "1.50" }

[server.branch]
command = COMMAND
[server.branch.tool.mail]
[server.branch.tool.charge_once]
effect = "keyed"
key_ttl = "1h"

[caller.desk]
token = "$DESK_TOKEN"
tools = [
  "bank_charge", "bank_charge_once", "bank_find_charge", "bank_mail", "strict_mail", "strict_charge",
  "strict_charge_once", "strict_charge_keyed", "branch_mail", "branch_charge_once",
]
scopes = ["pay"]
budget = { usd = 4 }
[caller.clerk]
token = "$CLERK_TOKEN"
tools = ["bank_find_charge"]
[stdio]
caller = "desk"
"""


POLICY = """
version = "1"
[[rule]]
name = "no mail to strangers"
verdict = "deny"
tool = "bank_mail"
when = "args.to.startsWith('stranger')"
[[rule]]
name = "the rest"
verdict = "allow"
"""


class Town:
    """A folder: the bank's ledger, and the files and stores of gateways."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[str]] = []
        self.bank = ""

    # ------------------------------------------------------------ the outside world

    def open_bank(self) -> None:
        """Start the bank over HTTP, at a free port: it takes one itself, and says which."""
        bank = self.start(str(BANK), str(self.folder), "0")
        self.bank = f"{self.heard(bank, LISTENS)}/mcp"

    def ledger(self, kind: str, over: str) -> list[dict[str, Any]]:
        """Return what the bank did for one order, or one receiver of mail."""
        file = self.folder / "ledger.jsonl"
        lines = file.read_text().splitlines() if file.exists() else []
        return [one for one in map(json.loads, lines) if one["kind"] == kind and over in one.values()]

    def misbehave(self, how: str, over: str) -> None:
        """Let the bank misbehave over one order, or one receiver of mail."""
        (self.folder / f"{how}.{over}").touch()

    def behave(self, how: str, over: str) -> None:
        """Let it stop that."""
        (self.folder / f"{how}.{over}").unlink()

    # ------------------------------------------------------------ gateways

    def file(self, name: str) -> Path:
        """Write the file of a gateway with a store of its own, and return where it is."""
        command = json.dumps([sys.executable, str(BANK), str(self.folder)])
        written = FILE.replace("NAME", name)
        path = self.folder / f"{name}.toml"
        (self.folder / "policy.toml").write_text(POLICY)
        path.write_text(written.replace("ADDRESS", self.bank).replace("COMMAND", command))
        return path

    def store(self, name: str) -> str:
        """Return the store of a gateway's file."""
        return f"sqlite:///{self.folder}/{name}.db"

    def start(self, *command: str) -> "subprocess.Popen[str]":
        """Start a Python process; it is ended with the tests."""
        with self.log(len(self.processes)).open("w") as log:
            process = subprocess.Popen(
                [sys.executable, *command], stderr=log, stdout=subprocess.DEVNULL, text=True,
                env={**os.environ, **TOKENS}, cwd=self.folder,
            )  # fmt: skip
        self.processes.append(process)
        return process

    def log(self, number: int) -> Path:
        """Return where a process writes what it has to say."""
        return self.folder / f"process-{number}.log"

    def said(self, process: "subprocess.Popen[str]") -> str:
        """Return what a process has said so far."""
        return self.log(self.processes.index(process)).read_text()

    def heard(self, process: "subprocess.Popen[str]", what: re.Pattern[str]) -> str:
        """Wait until a process says something; return the part of it that is asked for."""
        eventually(lambda: what.search(self.said(process)) or process.poll() is not None, saying="it says it, or ends")
        found = what.search(self.said(process))
        assert found is not None, f"it ended: {self.said(process)}"
        return found[1]

    def open_gateway(self, name: str) -> "tuple[subprocess.Popen[str], str]":
        """Start a gateway over HTTP at a free port, and return it with its address."""
        file = str(self.file(name))
        process = self.start("-m", "milepost", "gateway", "--config", file, "--http", "--port", "0")
        return process, self.heard(process, LISTENING)

    def stdio(self, name: str) -> StdioServerParameters:
        """Return how a host starts a gateway as its child."""
        args = ["-m", "milepost", "gateway", "--config", str(self.file(name))]
        env = {name: value for name, value in os.environ.items() if name.startswith(("PYTHON", "MILEPOST"))}
        return StdioServerParameters(command=sys.executable, args=args, env={**env, **TOKENS}, cwd=self.folder)

    def milepost(self, *args: str) -> "subprocess.CompletedProcess[str]":
        """Type a command, as an operator does."""
        return subprocess.run(
            [sys.executable, "-m", "milepost", *args], env={**os.environ, **TOKENS}, cwd=self.folder,
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip

    def close(self) -> None:
        """End every process that was started here."""
        for process in self.processes:
            process.kill()
            process.wait()


@asynccontextmanager
async def leaving(address: str) -> AsyncIterator[Client]:
    """A host whose gateway dies under it; what its own client makes of that does not matter."""
    with suppress(BaseExceptionGroup, httpx2.HTTPError, MCPError, CancelledError):
        async with host(address) as client:
            yield client


@asynccontextmanager
async def host(address: str, token: str = TOKENS["DESK_TOKEN"], **options: Any) -> AsyncIterator[Client]:
    """A host that is connected over HTTP with a caller's token."""
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=60) as http,
        Client(streamable_http_client(address, http_client=http), **options) as client,
    ):
        yield client


async def soon(ask: Callable[[], T], within_s: float = 60.0) -> T:
    """Ask again and again, while the event loop turns, until the answer is true."""
    async with asyncio.timeout(within_s):
        while not (answer := ask()):  # noqa: ASYNC110  another process is asked
            await asyncio.sleep(PAUSE_S)
    return answer


def said(result: CallToolResult) -> str:
    """Return what an answer says in words."""
    return "\n".join(block.text for block in result.content if isinstance(block, TextContent))


def meta(result: CallToolResult, name: str) -> Any:
    """Return what the gateway says to programs."""
    return (result.meta or {}).get(f"milepost/{name}")


def says(**named: str) -> Any:
    """Return the `_meta` in which a host names a run and a call."""
    return {f"milepost/{name}": value for name, value in named.items()}
