"""What `milepost gateway --list` shows, and what it finds wrong, of real servers."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from mcp import Client
from mcp_types import Tool, ToolAnnotations

from milepost.adapters.mcp import Server
from milepost.adapters.mcp.gateway.command import gateway
from milepost.adapters.mcp.gateway.config import BadGateway, ToolEntry
from milepost.adapters.mcp.gateway.downstream import Offered
from milepost.adapters.mcp.gateway.listing import lines
from milepost.adapters.mcp.gateway.serving import listing
from tests.adapters.mcp.town import TOKENS, Town


def listed(file: Path, *options: str) -> Result:
    return CliRunner(env=TOKENS).invoke(gateway, ["--config", str(file), "--list", *options])


def test_what_servers_offer_what_is_declared_and_who_may_use_it_is_listed(town: Town) -> None:
    done = listed(town.file("listed"))

    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert "  charge as bank_charge: queryable; needs pay; reconciled by find_charge; for desk" in lines
    assert "  find_charge as bank_find_charge: read; for desk, clerk" in lines
    assert "  charge as strict_charge: irreversible; approved by the host's user; for desk" in lines
    assert "  charge_keyed as strict_charge_keyed: irreversible; costs 1.50 usd; for desk" in lines
    assert "  hidden, because nothing is declared: charge_keyed, wipe" in lines
    assert "caller clerk, known by its token: bank_find_charge" in lines


def test_everything_that_does_not_fit_the_servers_is_listed_and_nothing_is_served(town: Town) -> None:
    """A misspelt name leaves no tool without its promise."""
    file = town.file("wrong")
    body = file.read_text()
    body = body.replace("[server.bank.tool.charge_once]", "[server.bank.tool.charge_onec]")
    body = body.replace('tool = "find_charge"', 'tool = "find_chrage"')
    body = body.replace('key_argument = "idempotency_key"', 'key_argument = "key"')
    body = body.replace("[server.branch.tool.mail]", '[server.branch.tool.mail]\nname = "bank_mail"')
    body = body.replace('tools = ["bank_find_charge"]', 'tools = ["bank_find_chrage"]')
    body += '\n[server.away]\nurl = "http://127.0.0.1:9/mcp"\n[server.gone]\ncommand = ["no-such-program"]\n'
    file.write_text(body)

    done = listed(file, "--json")
    problems = json.loads(done.output)["problems"]
    served = CliRunner(env=TOKENS).invoke(gateway, ["--config", str(file), "--http", "--port", "0"])

    assert done.exit_code == 1
    found = [
        "has no tool charge_onec", "asks find_chrage, which its server does not have", "has no argument 'key'",
        "another tool is offered as bank_mail", "[caller.clerk] may use bank_find_chrage", "[server.away]",
        "[server.gone]",
    ]  # fmt: skip
    assert [why for why in found if not any(why in problem for problem in problems)] == []
    assert isinstance(served.exception, BadGateway)


def test_a_declaration_that_its_server_contradicts_is_tightened_and_listed(town: Town) -> None:
    file = town.file("tightened")
    file.write_text(file.read_text().replace("[server.bank.tool.mail]", '[server.bank.tool.mail]\neffect = "read"'))

    done = listed(file)

    assert "  mail as bank_mail: irreversible; tightened, because it is declared a read, and its server" in done.output


@pytest.mark.parametrize(
    ("said", "instead", "why"),
    [
        ('{ order = "$args.order" }', '{ ordre = "$args.order" }', "gives find_charge ordre, which it does not take"),
        ('{ order = "$args.order" }', '{ order = "$args.ordre" }', "says $args.ordre, and it has no argument ordre"),
        ('"$args.cents"', '"$args.cts"', "says $args.cts"),
        ('effect = "read"', 'effect = "read"\nscopes = ["look"]', "scopes keep nobody"),
    ],
)
def test_a_question_that_names_nothing_and_a_scope_that_holds_nobody_are_found(
    town: Town, said: str, instead: str, why: str
) -> None:
    """A question with a misspelt filter may be answered about any attempt."""
    file = town.file("misnamed")
    file.write_text(file.read_text().replace(said, instead))

    done = listed(file)

    assert done.exit_code == 1
    assert why in done.output


@pytest.mark.parametrize(("effect", "shown"), [("read", True), ("irreversible", False)])
def test_a_host_is_told_that_a_tool_only_reads_where_it_is_declared_so(effect: str, *, shown: bool) -> None:
    hints = ToolAnnotations(read_only_hint=True, title="Look")
    server = Server("bank", lambda: Client("http://127.0.0.1:9/mcp"), look={"effect": effect})
    said = Tool(name="look", input_schema={"type": "object"}, annotations=hints)
    tool = server.declare([said])["look"]

    told = listing(Offered("bank", said, ToolEntry({}, approval=False, elicited=False, asked=None), tool, ""))

    assert told.annotations == hints.model_copy(update={"read_only_hint": shown})


@pytest.mark.parametrize(("caller", "why"), [("nobody", "there is no [caller.nobody]")])
def test_a_host_on_stdin_has_to_be_a_caller_of_the_file(caller: str, why: str, town: Town) -> None:
    done = CliRunner(env=TOKENS).invoke(gateway, ["--config", str(town.file("callers")), "--caller", caller])

    assert isinstance(done.exception, BadGateway)
    assert why in str(done.exception)


def test_what_is_wrong_stands_below_what_is_right() -> None:
    told = {"servers": {}, "callers": {}, "problems": ["[server.bank]: cannot be reached"]}

    assert lines(told) == ["WRONG [server.bank]: cannot be reached"]
