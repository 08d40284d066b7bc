"""Approvals through the gateway: asked of the host's user where the file says so, else of whoever types a command."""

import json
from typing import Any

import httpx2
import pytest
from mcp_types import ElicitRequestParams, ElicitResult

from tests.adapters.mcp.town import TOKENS, Town, host, meta, said


class User:
    """The user of a host, who answers what is asked in one way."""

    def __init__(self, action: str, **content: Any) -> None:
        self.answer = ElicitResult.model_validate({"action": action, "content": content or None})
        self.asked: list[str] = []

    async def __call__(self, _: object, params: ElicitRequestParams) -> ElicitResult:
        self.asked.append(params.message)
        return self.answer


def approvals(town: Town) -> list[dict[str, Any]]:
    """Return all approvals of the shared gateway, as an operator lists them."""
    typed = town.milepost("approvals", "--all", "--json", "--store", town.store("shared"))
    assert typed.returncode == 0, typed.stderr
    found: list[dict[str, Any]] = json.loads(typed.stdout)
    return found


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_what_the_hosts_user_approves_is_done_once_and_recorded_as_elicited(
    mode: str, town: Town, address: str, order: str
) -> None:
    """The question shows the arguments as they would be sent; in the record it is nobody's name."""
    user = User("accept", approve=True)

    async with host(address, mode=mode, elicitation_callback=user) as client:
        answers = [await client.call_tool("strict_charge", {"order": order, "cents": 5}) for _ in range(2)]

    assert [(meta(one, "outcome"), meta(one, "recorded")) for one in answers] == [
        ("confirmed", None), ("confirmed", True),
    ]  # fmt: skip
    assert len(user.asked) == 1
    lines = user.asked[0].splitlines()
    assert {"  cents = 5", f'  order = "{order}"'} <= set(lines)
    assert len(town.ledger("charge", order)) == 1
    by = [one["by"] for one in approvals(town) if order in json.dumps(one)]
    assert by == ["elicited:desk"]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize("user", [User("decline"), User("accept", approve=False), User("accept")], ids="abc")
async def test_anything_that_is_not_a_clear_yes_of_the_user_denies(
    mode: str, user: User, town: Town, address: str, order: str
) -> None:
    async with host(address, mode=mode, elicitation_callback=user) as client:
        answer = await client.call_tool("strict_charge", {"order": order, "cents": 5})

    assert (meta(answer, "outcome"), answer.is_error) == ("failed", True)
    assert town.ledger("charge", order) == []


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_user_who_closes_the_question_leaves_it_waiting_for_another_answer(
    mode: str, town: Town, address: str, order: str
) -> None:
    given = {"order": order, "cents": 5}

    async with host(address, mode=mode, elicitation_callback=User("cancel")) as client:
        closed = await client.call_tool("strict_charge", given)
    async with host(address, mode=mode) as client:
        waiting = await client.call_tool("strict_charge", given)
    async with host(address, mode=mode, elicitation_callback=User("accept", approve=True)) as client:
        done = await client.call_tool("strict_charge", given)

    assert [meta(one, "reason") for one in (closed, waiting)] == ["approval", "approval"]
    assert "milepost approve" in said(waiting)
    assert meta(done, "outcome") == "confirmed"
    assert len(town.ledger("charge", order)) == 1


async def test_what_the_user_is_asked_hides_nothing_of_what_would_be_sent(town: Town, address: str, order: str) -> None:
    """Letters that are not seen, or that look like others, stand there as what they are."""
    user = User("decline")
    sly = f"{order}\u202e\u200b\u0430dmin"

    async with host(address, elicitation_callback=user) as client:
        await client.call_tool("strict_charge", {"order": sly, "cents": 5})

    assert "U+202E" in user.asked[0]
    assert "U+200B" in user.asked[0]
    assert "Careful: " in user.asked[0]


async def test_where_the_file_does_not_trust_the_host_a_person_types_the_approval(
    town: Town, address: str, order: str
) -> None:
    """The host could ask its user, and is not asked to."""
    user = User("accept", approve=True)

    async with host(address, elicitation_callback=user) as client:
        waiting = await client.call_tool("strict_charge_once", {"order": order, "cents": 5})
        approval = next(word for word in said(waiting).split() if word.startswith("ap-")).strip(",.`")
        typed = town.milepost("approve", approval, "--store", town.store("shared"))
        done = await client.call_tool("strict_charge_once", {"order": order, "cents": 5})

    assert (meta(waiting, "outcome"), meta(waiting, "reason"), waiting.is_error) == ("waiting", "approval", False)
    assert user.asked == []
    assert typed.returncode == 0, typed.stderr
    assert meta(done, "outcome") == "confirmed"
    assert len(town.ledger("charge", order)) == 1


async def test_what_an_operator_froze_is_not_sent_and_the_rest_goes_on(town: Town, address: str, order: str) -> None:
    """A switch holds for every host behind the gateway."""
    store = ("--store", town.store("shared"))

    async with host(address) as client:
        town.milepost("freeze", "tool:strict_mail", "--why", "spam", *store)
        frozen = await client.call_tool("strict_mail", {"to": order})
        other = await client.call_tool("bank_mail", {"to": f"{order}.2"})
        town.milepost("thaw", "tool:strict_mail", "--why", "over", *store)
        thawed = await client.call_tool("strict_mail", {"to": order})

    assert (meta(frozen, "outcome"), meta(frozen, "reason")) == ("waiting", "switch")
    assert [meta(one, "outcome") for one in (other, thawed)] == ["confirmed", "confirmed"]
    assert len(town.ledger("mail", order)) == 1


async def test_a_rule_of_the_policy_that_denies_is_final_for_every_host(town: Town, address: str, order: str) -> None:
    """Requirement 71. Whatever the model says: the rule looks at the arguments of the call."""
    to = f"stranger-{order}"

    async with host(address) as client:
        denied = await client.call_tool("bank_mail", {"to": to})

    assert (denied.is_error, meta(denied, "outcome")) == (True, "failed")
    assert "no mail to strangers" in said(denied)
    assert town.ledger("mail", to) == []


async def test_a_host_that_can_only_open_pages_is_told_to_wait_and_is_not_asked(
    town: Town, address: str, order: str
) -> None:
    """A question that it cannot put to its user would never be answered."""
    headers = {"Authorization": f"Bearer {TOKENS['DESK_TOKEN']}", "Accept": "application/json, text/event-stream"}
    able = {"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {"url": {}}}}
    call = {"name": "strict_charge", "arguments": {"order": order, "cents": 5}}
    async with httpx2.AsyncClient(headers=headers, timeout=20) as http:

        async def says(method: str, **more: Any) -> str:
            answer = await http.post(address, json={"jsonrpc": "2.0", "method": method, **more})
            http.headers.update({name: answer.headers[name] for name in ("mcp-session-id",) if name in answer.headers})
            return answer.text

        await says("initialize", id=1, params={**able, "clientInfo": {"name": "h", "version": "1"}})
        await says("notifications/initialized")
        told = await says("tools/call", id=2, params=call)

    assert '"milepost/reason":"approval"' in told
    assert "elicitation/create" not in told
