"""One call of a batch is held at the gateway, for a person or because its server fails: the calls beside it go on."""

import asyncio

from tests.adapters.mcp.town import Town, host, meta, soon

FAILURES = 5


async def test_an_objection_to_the_second_of_three_lets_its_siblings_finish_and_be_recorded(
    town: Town, address: str, order: str
) -> None:
    """Requirement 58. The server keeps the siblings until the objection is told."""
    mails = [f"{order}.1", f"{order}.3"]
    for mail in mails:
        town.misbehave("hold", mail)

    async with host(address) as client:
        siblings = [asyncio.ensure_future(client.call_tool("bank_mail", {"to": mail})) for mail in mails]
        waiting = await client.call_tool("strict_charge_once", {"order": order, "cents": 5})
        await soon(lambda: all(town.ledger("mail", mail) for mail in mails))
        assert not any(sibling.done() for sibling in siblings)
        for mail in mails:
            town.behave("hold", mail)
        one, three = await asyncio.gather(*siblings)
        again = await client.call_tool("bank_mail", {"to": mails[0]})

    assert (meta(waiting, "outcome"), meta(waiting, "reason"), waiting.is_error) == ("waiting", "approval", False)
    assert [meta(answer, "outcome") for answer in (one, three, again)] == ["confirmed"] * 3
    assert meta(again, "call") == meta(one, "call")
    assert [len(town.ledger("mail", mail)) for mail in mails] == [1, 1]
    assert town.ledger("charge", order) == []


async def test_a_breaker_holds_a_tool_whose_server_fails_and_no_other_until_a_person_resets_it(
    town: Town, order: str
) -> None:
    """Nothing of it stands in the gateway's file: five failures in a row are enough."""
    _, own = town.open_gateway("breaking")

    async with host(own) as client:
        for number in range(FAILURES):
            town.misbehave("drop", f"{order}.{number}")
            lost = await client.call_tool("branch_mail", {"to": f"{order}.{number}"})
            assert (meta(lost, "outcome"), meta(lost, "reason")) == ("waiting", "unknown")
        held = await client.call_tool("branch_mail", {"to": order})
        other = await client.call_tool("bank_mail", {"to": f"{order}.other"})
        nothing = town.ledger("mail", order)
        thaw = town.milepost("thaw", "tool:branch_mail", "--why", "it is well", "--store", town.store("breaking"))
        thawed = await client.call_tool("branch_mail", {"to": order})

    assert (meta(held, "outcome"), meta(held, "reason"), held.is_error) == ("waiting", "breaker", False)
    assert nothing == []
    assert thaw.returncode == 0, thaw.stderr
    assert [meta(answer, "outcome") for answer in (other, thawed)] == ["confirmed", "confirmed"]
    assert len(town.ledger("mail", order)) == 1
