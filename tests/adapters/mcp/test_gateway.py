"""The gateway as a process, before real servers, driven by real clients; what the bank did stands in its own ledger."""

import asyncio

import httpx2
import pytest
from mcp import Client, MCPError
from mcp_types import CallToolResult

from tests.adapters.mcp.town import Town, host, meta, said, says, soon


async def test_a_call_is_done_once_and_a_host_that_comes_back_gets_the_recorded_outcome(
    town: Town, address: str, order: str
) -> None:
    """Requirement 7. Requirement 53. Another session and another request, of the old protocol and the new."""
    answers: list[CallToolResult] = []

    for mode in ("auto", "legacy"):
        async with host(address, mode=mode) as client:
            answers += [await client.call_tool("bank_charge", {"order": order, "cents": 5}) for _ in range(2)]

    assert len(town.ledger("charge", order)) == 1
    assert [answer.structured_content for answer in answers] == [{"receipt": f"receipt {order}"}] * 4
    assert [meta(answer, "recorded") for answer in answers] == [None, True, True, True]
    assert len({meta(answer, "call") for answer in answers}) == 1
    assert "nothing was done now" in said(answers[-1])
    assert not answers[-1].is_error


async def test_other_arguments_are_another_call_and_reads_are_made_anew(town: Town, address: str, order: str) -> None:
    async with host(address) as client:
        before = await client.call_tool("bank_find_charge", {"order": order})
        for cents in (5, 6):
            await client.call_tool("bank_charge", {"order": order, "cents": cents})
        after = await client.call_tool("bank_find_charge", {"order": order})

    assert [one["cents"] for one in town.ledger("charge", order)] == [5, 6]
    assert before.structured_content == {"found": False, "cents": 0}
    assert after.structured_content == {"found": True, "cents": 5}


async def test_a_run_that_the_host_names_is_remembered_apart(town: Town, address: str, order: str) -> None:
    given = {"order": order, "cents": 5}
    async with host(address) as client:
        for run in ("1", "1", "2"):
            named = says(run=f"{order}.{run}", call="c-1")
            answer = await client.call_tool("bank_charge", given, meta=named)
            assert meta(answer, "call") == "c-1"
        same = await client.call_tool("bank_charge", given, meta=says(run=f"{order}.1", call="c-9"))
        other = await client.call_tool("bank_charge", {**given, "cents": 6}, meta=says(run=f"{order}.1", call="c-1"))
        odd = await client.call_tool("bank_charge", given, meta=says(run="no name"))

    assert len(town.ledger("charge", order)) == 2
    assert (meta(same, "call"), meta(same, "recorded")) == ("c-1", True)
    assert (other.is_error, meta(other, "code")) == (True, "diverged")
    assert (odd.is_error, "without spaces" in said(odd)) == (True, True)


async def test_a_caller_that_may_not_use_a_tool_does_not_see_it_and_cannot_call_it(
    town: Town, address: str, order: str
) -> None:
    """Requirement 88. The server decides: by the token, and as if the tool did not exist."""
    refused = {}

    async with host(address) as desk, host(address, "clerk-secret") as clerk:
        seen = [{tool.name for tool in (await one.list_tools()).tools} for one in (desk, clerk)]
        for who, client, tool in (
            ("clerk", clerk, "bank_charge"),
            ("clerk", clerk, "none"),
            ("desk", desk, "bank_wipe"),
        ):
            with pytest.raises(MCPError) as error:
                await client.call_tool(tool, {"order": order, "cents": 5})
            refused[who, tool] = str(error.value)

    assert seen[1] == {"bank_find_charge"}
    assert seen[0] >= {"bank_find_charge", "bank_charge", "branch_mail"}
    assert "bank_wipe" not in seen[0]
    assert refused == {key: f"Unknown tool: {key[1]}" for key in refused}
    assert town.ledger("charge", order) == town.ledger("wipe", "wipe") == []


@pytest.mark.parametrize("token", ["", "desk-secre", "desk-secret2", "$DESK_TOKEN"])
async def test_nobody_is_let_in_without_a_token_of_the_file(token: str, address: str) -> None:
    """Requirement 88. Also not on the loopback."""
    async with httpx2.AsyncClient() as http:
        asked = await http.post(address, json={}, headers={"Authorization": f"Bearer {token}"} if token else {})

    assert asked.status_code == 401


async def test_two_hosts_at_once_share_one_caller_and_do_nothing_twice(town: Town, address: str, order: str) -> None:
    """The same call from both at once is one effect, and each host is told its outcome; other calls go on beside it."""
    town.misbehave("hold", order)

    async with host(address) as one, host(address, mode="legacy") as two:
        same = [
            asyncio.ensure_future(client.call_tool("bank_charge", {"order": order, "cents": 5}))
            for client in (one, two)
        ]
        await soon(lambda: town.ledger("charge", order))
        beside = await asyncio.gather(
            *(client.call_tool("bank_mail", {"to": f"{order}.{n}"}) for n, client in enumerate((one, two)))
        )
        town.behave("hold", order)
        answers = await asyncio.gather(*same)

    assert [meta(answer, "outcome") for answer in (*answers, *beside)] == ["confirmed"] * 4
    assert len(town.ledger("charge", order)) == 1
    assert [len(town.ledger("mail", f"{order}.{n}")) for n in range(2)] == [1, 1]


async def test_a_host_that_goes_away_does_not_take_its_call_with_it(town: Town, address: str, order: str) -> None:
    """The call goes on in the gateway, and the host that comes back gets its outcome."""
    town.misbehave("hold", order)

    async with host(address) as client:
        calling = asyncio.ensure_future(client.call_tool("bank_mail", {"to": order}))
        await soon(lambda: town.ledger("mail", order))
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)
    async with host(address) as client:
        town.behave("hold", order)
        answer = await client.call_tool("bank_mail", {"to": order})

    assert meta(answer, "outcome") == "confirmed"
    assert len(town.ledger("mail", order)) == 1


async def test_a_server_that_dies_over_a_call_leaves_it_unknown_and_is_started_anew(
    town: Town, address: str, order: str
) -> None:
    """Requirement 11. The second request is the same call, and is not sent; another call is."""
    town.misbehave("drop", order)

    async with host(address) as client:
        lost, again = [await client.call_tool("branch_mail", {"to": order}) for _ in range(2)]
        other = await client.call_tool("branch_mail", {"to": f"{order}.2"})

    assert (meta(lost, "outcome"), meta(lost, "reason"), lost.is_error) == ("waiting", "unknown", False)
    assert (meta(again, "outcome"), meta(again, "call")) == ("waiting", meta(lost, "call"))
    assert meta(other, "outcome") == "confirmed"
    assert (len(town.ledger("mail", order)), len(town.ledger("mail", f"{order}.2"))) == (1, 1)


async def test_a_keyed_tool_is_sent_again_with_the_same_key_and_takes_effect_once(
    town: Town, address: str, order: str
) -> None:
    """Requirement 47. The server drops what it has seen under this key."""
    town.misbehave("drop", order)

    async with host(address) as client:
        answer = await client.call_tool("branch_charge_once", {"order": order, "cents": 5})
        while meta(answer, "outcome") == "waiting":
            await asyncio.sleep(0.05)
            answer = await client.call_tool("branch_charge_once", {"order": order, "cents": 5})

    assert meta(answer, "outcome") == "confirmed"
    assert len(town.ledger("charge", order)) == 1
    keys = [one["key"] for one in town.ledger("seen", order)]
    assert (len(keys) > 1, len(set(keys))) == (True, 1)
    assert keys[0] != ""


async def test_our_key_can_be_an_argument_of_the_tool_that_no_host_sees(town: Town, address: str, order: str) -> None:
    async with host(address) as client:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}["strict_charge_keyed"]
        answer = await client.call_tool("strict_charge_keyed", {"order": order})

    assert list(listed.input_schema["properties"]) == ["order"]
    assert meta(answer, "outcome") == "confirmed"
    assert len(town.ledger("charge", order)[0]["key"]) > 20


async def test_what_a_caller_may_spend_is_counted_by_the_gateway(town: Town, address: str, order: str) -> None:
    """Three cost more than the caller's four dollars: the last one waits, and is not sent."""
    async with host(address) as client:
        named = says(run=f"{order}.money")
        answers = [
            await client.call_tool("strict_charge_keyed", {"order": f"{order}.{n}"}, meta=named) for n in range(3)
        ]

    assert [meta(answer, "outcome") for answer in answers] == ["confirmed", "confirmed", "waiting"]
    assert meta(answers[2], "reason") == "budget"
    assert town.ledger("charge", f"{order}.2") == []


async def test_an_error_of_a_tool_proves_nothing_unless_the_file_says_what_it_proves(
    town: Town, address: str, order: str
) -> None:
    """Requirement 11. The mail may have left before the server was unhappy."""
    town.misbehave("refuse", order)

    async with host(address) as client:
        refused = await client.call_tool("strict_mail", {"to": order})
        doubtful = await client.call_tool("bank_mail", {"to": order})
        town.behave("refuse", order)
        retried = await client.call_tool("strict_mail", {"to": order})
        still = await client.call_tool("bank_mail", {"to": order})

    assert (refused.is_error, meta(refused, "outcome")) == (True, "failed")
    assert "the books are closed" in said(refused)
    assert meta(retried, "outcome") == "confirmed"
    assert [meta(one, "reason") for one in (doubtful, still)] == ["unknown", "unknown"]
    assert len(town.ledger("mail", order)) == 3


async def test_arguments_that_do_not_fit_are_refused_before_anything_is_recorded(
    town: Town, address: str, order: str
) -> None:
    async with host(address) as client:
        wrong = [
            await client.call_tool("bank_charge", given)
            for given in ({"order": order}, {"order": order, "cents": 5, "tip": 1}, {"order": order, "cents": "five"})
        ]

    assert [answer.is_error for answer in wrong] == [True] * 3
    assert ["Nothing was done" in said(answer) for answer in wrong] == [True] * 3
    assert town.ledger("charge", order) == []


async def test_a_host_starts_a_gateway_of_its_own_and_two_of_them_share_one_store(town: Town, order: str) -> None:
    """Over stdio, as most hosts do. The same calls from both at once are one effect each."""
    async with Client(town.stdio("stdio")) as one, Client(town.stdio("stdio"), mode="legacy") as two:
        answers = await asyncio.gather(
            *(
                client.call_tool("bank_charge", {"order": f"{order}.{n}", "cents": 5})
                for n in range(3)
                for client in (one, two)
            )
        )

    assert [meta(answer, "outcome") for answer in answers] == ["confirmed"] * 6
    assert [len(town.ledger("charge", f"{order}.{n}")) for n in range(3)] == [1, 1, 1]


async def test_a_log_does_not_quote_the_arguments_of_a_call(town: Town, order: str) -> None:
    gateway, address = town.open_gateway("logged")
    async with host(address) as client:
        answer = await client.call_tool("bank_charge", {"order": order, "cents": "sk-secret"})
    gateway.terminate()
    await soon(lambda: gateway.poll() is not None)
    logged = town.said(gateway)

    assert "sk-secret" in said(answer)
    assert "bank_charge of desk: invalid_arguments" in logged
    assert "sk-secret" not in logged
