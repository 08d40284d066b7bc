"""The gateway is killed for real between a request and its answer, and started again on the same store."""

import asyncio
import json
import signal
import subprocess
import sys

import pytest
from mcp_types import CallToolResult

from tests.adapters.mcp.town import Town, host, leaving, meta, said, soon
from tests.polling import eventually


async def killed_in(town: Town, name: str, over: str, tool: str, **arguments: object) -> str:
    """Kill a gateway while the bank holds the answer back; return the address of the one that follows it."""
    gateway, address = town.open_gateway(name)
    town.misbehave("hold", over)
    kind = "mail" if "mail" in tool else "charge"
    async with leaving(address) as client:
        calling = asyncio.ensure_future(client.call_tool(tool, dict(arguments)))
        await soon(lambda: town.ledger(kind, over))
        assert not calling.done()
        _kill(gateway)
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)
    town.behave("hold", over)
    return town.open_gateway(name)[1]


def _kill(gateway: "subprocess.Popen[str]") -> None:
    gateway.kill()
    assert gateway.wait() == -9


async def settled(address: str, tool: str, **arguments: object) -> CallToolResult:
    """Repeat a call, as a host does that came back, until it waits no more."""
    async with host(address) as client:
        while True:
            answer = await client.call_tool(tool, dict(arguments))
            if meta(answer, "outcome") != "waiting":
                return answer
            await asyncio.sleep(0.05)


async def test_a_queryable_call_is_looked_up_at_its_server_and_not_sent_again(town: Town, order: str) -> None:
    """Requirement 11. Requirement 46. Requirement 51. The bank is asked what came of the charge."""
    address = await killed_in(town, "queryable", order, "bank_charge", order=order, cents=5)

    answer = await settled(address, "bank_charge", order=order, cents=5)

    assert answer.structured_content == {"found": True, "cents": 5}
    assert len(town.ledger("charge", order)) == 1
    assert town.ledger("asked", order) != []


async def test_an_irreversible_call_is_held_for_a_person_and_the_host_is_told_not_to_try_again(
    town: Town, order: str
) -> None:
    """Requirement 11. Requirement 18. Until a person looked, and typed what came of it."""
    address = await killed_in(town, "irreversible", order, "bank_mail", to=order)

    async with host(address) as client:
        unknown, again = [await client.call_tool("bank_mail", {"to": order}) for _ in range(2)]
        other = await client.call_tool("bank_mail", {"to": f"{order}.2"})
        typed = town.milepost(
            "resolve", meta(unknown, "run"), f"@{meta(unknown, 'call')}", "--happened", '"it went out"',
            "--why", "saw it", "--store", town.store("irreversible"),
        )  # fmt: skip
        known = await client.call_tool("bank_mail", {"to": order})

    assert (meta(unknown, "outcome"), meta(unknown, "reason"), unknown.is_error) == ("waiting", "unknown", False)
    assert meta(again, "outcome") == "waiting"
    assert "not known yet" in said(unknown)
    assert "Do not make this call again" in said(unknown)
    assert f"milepost resolve {meta(unknown, 'run')}" in said(unknown)
    assert typed.returncode == 0, typed.stderr
    assert meta(known, "outcome") == "confirmed"
    assert "it went out" in said(known)
    assert not other.is_error
    assert len(town.ledger("mail", order)) == 1


async def test_a_gateway_that_is_told_to_end_answers_what_is_under_way_first(town: Town, order: str) -> None:
    """Requirement 18. A rollout leaves nothing unknown behind."""
    gateway, address = town.open_gateway("ended")
    town.misbehave("hold", order)

    async with host(address) as client:
        await client.list_tools()  # else the client asks for it once it has the answer
        calling = asyncio.ensure_future(client.call_tool("bank_mail", {"to": order}))
        await soon(lambda: town.ledger("mail", order))
        gateway.terminate()
        town.behave("hold", order)
        answer = await calling
        assert await soon(lambda: gateway.poll() is not None)

    assert meta(answer, "outcome") == "confirmed"
    assert gateway.returncode == 0


def ask(gateway: "subprocess.Popen[str]", **request: object) -> None:
    """Say something to a gateway on stdin."""
    assert gateway.stdin is not None
    gateway.stdin.write(json.dumps({"jsonrpc": "2.0", **request}) + "\n")
    gateway.stdin.flush()


@pytest.mark.parametrize("how", ["SIGTERM", "SIGINT", "input, then SIGTERM"])
def test_a_gateway_on_stdin_that_is_told_to_end_records_what_is_under_way_first(
    town: Town, order: str, how: str
) -> None:
    """Requirement 18. Hosts close the input, and send SIGTERM a moment later. A signal alone leaves time to answer."""
    name, params = how[:7].replace(",", ""), {"name": "bank_mail", "arguments": {"to": order}}
    start = town.stdio(name)
    with subprocess.Popen(
        [sys.executable, *start.args], env=start.env, cwd=town.folder, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    ) as gateway:  # fmt: skip
        town.processes.append(gateway)
        host = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "h", "version": "1"}}
        ask(gateway, id=1, method="initialize", params=host)
        ask(gateway, method="notifications/initialized")
        town.misbehave("hold", order)
        ask(gateway, id=2, method="tools/call", params=params)
        eventually(lambda: town.ledger("mail", order), saying="the mail is sent")
        if how.startswith("input"):
            assert gateway.stdin is not None
            gateway.stdin.close()
        gateway.send_signal(signal.SIGINT if how == "SIGINT" else signal.SIGTERM)
        town.behave("hold", order)
        assert gateway.wait(60) == 0
        assert gateway.stdout is not None
        told = [json.loads(line) for line in gateway.stdout]

    if how.startswith("SIG"):
        assert told[-1]["result"]["_meta"]["milepost/outcome"] == "confirmed"
    else:
        assert "error" in told[-1]
    done = town.milepost("runs", "--json", "--needs-you", "--store", town.store(name))
    assert done.stdout.strip() in {"", "[]"}, done.stdout
