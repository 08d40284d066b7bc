"""The gateway's file is read strictly, and everything that is wrong is told at once."""

from decimal import Decimal
from pathlib import Path

import pytest
from click.testing import CliRunner

from milepost.adapters.mcp.gateway.command import gateway
from milepost.adapters.mcp.gateway.config import BadGateway, Config, read
from tests.tidy.repository import ROOT

WHOLE = """
[server.bank]
command = ["bank"]
[server.bank.tool.charge]
cost = { usd = "0.30", calls = 1 }
[caller.desk]
tools = ["bank_charge"]
"""


def written(tmp_path: Path, body: str) -> Config:
    file = tmp_path / "servers.toml"
    file.write_text(body)
    return read(file, {"TOKEN": "t", "EMPTY": ""})


def test_a_whole_file_is_read(tmp_path: Path) -> None:
    config = written(tmp_path, WHOLE)

    assert config.servers[0].tools["charge"].declared["cost"] == {"usd": Decimal("0.30"), "calls": Decimal(1)}
    assert config.callers["desk"].tools == ("bank_charge",)
    assert (config.host, config.port, config.remember_ms) == ("127.0.0.1", 8474, 86_400_000)


def test_paths_are_seen_from_the_folder_of_the_file_wherever_a_host_starts_the_gateway(tmp_path: Path) -> None:
    """A store that depended on it would be another one, and forget what was done."""
    config = written(tmp_path, 'store = "sqlite:///gate.db"\npolicy = "policy.toml"' + WHOLE)
    elsewhere = written(tmp_path, 'store = "postgresql://user@host/database"\npolicy = "/etc/policy.toml"' + WHOLE)

    assert (config.store, config.policy) == (f"sqlite:///{tmp_path}/gate.db", f"{tmp_path}/policy.toml")
    assert config.servers[0].cwd == str(tmp_path)
    assert (elsewhere.store, elsewhere.policy) == ("postgresql://user@host/database", "/etc/policy.toml")


@pytest.mark.parametrize(
    ("added", "why"),
    [
        ("[server.mail]", "needs a command, as a list, or a url"),
        ('[server.mail]\ncommand = ["m"]\nurl = "http://m"', "needs a command, as a list, or a url"),
        ("[server.bank.tool.mail]\naproval = true", "says 'aproval'"),
        ('[server.bank.tool.mail]\napproval = "maybe"', 'is true, false or "elicit"'),
        ("[server.bank.tool.mail]\ncost = { usd = 0.3 }", "usd in cost of [server.bank.tool.mail] is no amount"),
        ('[server.bank.tool.mail]\neffect = "queryable"', "has no reconcile"),
        ("[server.bank.tool.mail.reconcile]\nabsent = { a = 1 }", "needs a tool to ask"),
        (
            '[server.bank.tool.mail.reconcile]\ntool = "f"\nhappened = { "structure.found" = true }',
            "looks at 'structure.found'",
        ),
        ('[server.bank.tool.mail]\nerrors = "fine"', 'is "unknown" or "rejected"'),
        ('[server.bank.tool.mail]\nerrors = ["fine"]', 'is "unknown" or "rejected"'),
        ('[server.bank.tool.mail]\nrepeatable = "no"', "repeatable of [server.bank.tool.mail] is 'no'"),
        ("[server.bank.tool.mail]\nname = 5", "name of [server.bank.tool.mail] is 5"),
        ('[caller.clerk]\ntoken = "secret"', "stands in the file"),
        ('[caller.clerk]\ntoken = "$1secret"', "stands in the file"),
        ('[caller.clerk]\ntoken = "$TOKEN-secret"', "stands in the file"),
        ('[caller.clerk]\ntoken = "$NO_SUCH"', "NO_SUCH is not set"),
        ('[caller.clerk]\ntoken = "$EMPTY"', "EMPTY is not set"),
        ('[caller.clerk]\ntoken = "$TOKEN"\n[caller.other]\ntoken = "$TOKEN"', "two callers have the same token"),
        ('[caller.clerk]\ntools = "bank_charge"', "should be a list"),
        ('[stdio]\ncaller = "clerk"', "there is no [caller.clerk]"),
        ('["caller"."a b"]\ntools = []', "a name is a letter"),
        ('[http]\nport = "8474"', "should be a int"),
        ("[http]\nport = true", "should be a int"),
        ("[nobody]", "says 'nobody'"),
        ("[server.bank.tool.mail]\n[server.bank.tool.mail.cost]\nusd = -1", "usd in cost of [server.bank.tool.mail]"),
    ],
)
def test_what_cannot_be_honoured_is_refused(added: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(BadGateway) as refused:
        written(tmp_path, f"{WHOLE}\n{added}")

    assert why in str(refused.value)
    assert refused.value.code == "bad_gateway"


@pytest.mark.parametrize("remember", ["0s", "5s"])
def test_calls_are_remembered_for_a_minute_at_least(remember: str, tmp_path: Path) -> None:
    with pytest.raises(BadGateway, match="needs a minute at least"):
        written(tmp_path, f'remember = "{remember}"\n{WHOLE}')


def test_all_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(BadGateway) as refused:
        written(tmp_path, 'storr = "x"\nremember = "soon"\n[stdio]\ncaller = "x"')

    assert len(refused.value.problems) == 4


def test_the_user_of_a_host_cannot_approve_where_only_signatures_count(tmp_path: Path) -> None:
    with pytest.raises(BadGateway, match="counts only with an operator's signature"):
        written(tmp_path, 'trust = "trust.json"\n' + WHOLE + '[server.bank.tool.mail]\napproval = "elicit"')


def test_the_example_of_a_file_is_whole() -> None:
    secrets = {"PAYMENTS_TOKEN": "p", "SMTP_PASSWORD": "s", "DESK_TOKEN": "d", "REPORTS_TOKEN": "r"}

    config = read(ROOT / "deploy" / "servers.toml", secrets)

    assert config.servers[0].headers == {"Authorization": "Bearer p"}
    assert "DESK_TOKEN" not in repr(config)
    assert "token='d'" not in repr(config)


def test_a_file_that_is_wrong_ends_the_command_before_anything_is_served(tmp_path: Path) -> None:
    done = CliRunner().invoke(gateway, ["--config", str(tmp_path / "none.toml")])

    assert isinstance(done.exception, BadGateway)
