"""`milepost policy` says what a policy file would do, before a worker reads it."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shop_floor import Shop
from tests.polling import eventually

GOOD = """\
version = "7"

[[rule]]
name = "small"
verdict = "allow"
tool = "charge"
when = "args.cents <= 5000"

[[rule]]
name = "large"
verdict = "ask"
tool = ["charge", "pay"]
class = ["queryable", "keyed"]
expires = "24h"

[[rule]]
name = "no fax"
verdict = "deny"
tool = "fax"
why = "nobody has one"

[[rule]]
name = "mail"
verdict = "allow"
tool = "mail"
"""


def write(shop: Shop, text: str, name: str = "policy.toml") -> Path:
    path = shop.folder / name
    path.write_text(text, encoding="utf-8")
    return path


def checked(shop: Shop, code: int, *args: str) -> dict[str, Any]:
    result = shop.milepost("policy", "check", *args, "--json")
    assert result.exit_code == code, result.output
    told: dict[str, Any] = json.loads(result.stdout)
    assert told["ok"] == (code == 0)
    return told


# ---------------------------------------------------------------- check


def test_a_good_file_is_described(bare: Shop) -> None:
    write(bare, GOOD)

    told = checked(bare, 0, "policy.toml")

    assert (told["policy"]["version"], told["policy"]["rules"], told["findings"]) == ("7", 4, [])
    assert len(told["policy"]["fingerprint"]) == 64
    said = bare.ok("policy", "check", "policy.toml")
    assert "policy.toml, version 7, 4 rules, fingerprint" in said
    assert "Nothing is wrong." in said


def test_everything_that_is_wrong_is_told_with_its_rule_and_key(bare: Shop) -> None:
    write(
        bare,
        GOOD.replace("5000", "").replace('why = "nobody', 'wy = "nobody').replace('"allow"\ntool = "mail"', '"let"'),
    )

    told = checked(bare, 1, "policy.toml")

    places = [(one["state"], one["rule"], one["key"]) for one in told["findings"]]
    assert places == [("wrong", "'small'", "when"), ("wrong", "'no fax'", "wy"), ("wrong", "'mail'", "verdict")]
    said = bare.milepost("policy", "check", "policy.toml")
    assert (said.exit_code, "nothing would be allowed" in said.output) == (1, True)
    assert "'no fax'" in said.output


def test_a_file_that_is_not_there_is_wrong(bare: Shop) -> None:
    assert checked(bare, 1, "gone.toml")["findings"][0]["why"] == "it cannot be read: No such file or directory"


def test_a_rule_that_can_never_decide_is_wrong(bare: Shop) -> None:
    write(bare, GOOD + '\n[[rule]]\nname = "nothing outside"\nverdict = "deny"\nclass = "queryable"\ntool = "*"\n'
          '[[rule]]\nname = "moot"\nverdict = "allow"\ntool = "f*"\nclass = "queryable"\nwhen = "true"\n')  # fmt: skip

    told = checked(bare, 1, "policy.toml")

    assert [(one["rule"], one["why"]) for one in told["findings"]] == [
        ("'moot'", "it never decides: 'nothing outside' says deny to everything that it fits")
    ]


def test_with_an_app_names_arguments_and_tools_are_held_against_it(shop: Shop) -> None:
    write(
        shop, GOOD.replace("args.cents", "args.cent").replace('tool = "mail"', 'tool = "mial"\nworkflow = "mailings"')
    )

    told = checked(shop, 1, "policy.toml")

    said = [(one["state"], one["rule"], one["key"], one["why"]) for one in told["findings"]]
    assert [one for one in said if one[0] == "wrong"] == [
        ("wrong", "'small'", "when", "no tool that it fits takes cent (it fits charge)"),
        ("wrong", "'mail'", "tool", "'mial' fits no tool of the App"),
        ("wrong", "'mail'", "workflow", "'mailings' fits no workflow of the App"),
    ]
    assert ("note", "", "tool", "mail: no rule allows it or asks for it, so it can never start") in said
    assert not [why for *_, why in said if why.startswith("charge: ")], "a rule allows it"


def test_without_an_app_names_are_taken_on_trust(bare: Shop) -> None:
    write(bare, GOOD.replace('tool = "mail"', 'tool = "mial"'))

    assert checked(bare, 0, "policy.toml")["findings"] == []


def test_the_file_is_the_argument_the_option_the_environment_the_settings_or_the_apps_own(
    bare: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert bare.refused("policy", "check") == (2, "no_policy_given")
    for name in ("argument", "option", "environment", "settings", "own"):
        write(bare, GOOD.replace('"7"', f'"{name}"'), f"{name}.toml")

    def version(*args: str) -> str:
        return str(checked(bare, 0, *args)["policy"]["version"])

    program = bare.folder / "shop.py"
    program.write_text(
        program.read_text().replace("    workflows=[buy,", '    policy="own.toml",\n    workflows=[buy,')
    )
    assert version("--app", "shop:app") == "own"
    write(bare, '[tool.milepost]\npolicy = "settings.toml"\n', "pyproject.toml")
    assert version("--app", "shop:app") == "settings"
    monkeypatch.setenv("MILEPOST_POLICY", "environment.toml")
    assert version() == "environment"
    assert version("--policy", "option.toml") == "option"
    assert version("argument.toml", "--policy", "option.toml") == "argument"


# ---------------------------------------------------------------- test


CASES = """\
[[case]]
name = "a small charge"
tool = "charge"
expect = "allow"
rule = "small"
class = "keyed"
args = { cents = 5000 }
provenance = { after = ["ask_model"] }

[[case]]
tool = "charge"
class = "queryable"
args = { cents = 5001 }
expect = "ask"

[[case]]
name = "an amount is missing"
tool = "charge"
expect = "default"

[[case]]
tool = "fax"
expect = "deny"

[[case]]
name = "nothing names it"
tool = "format-disk"
expect = "default"
"""


def test_calls_are_tried_and_a_verdict_that_is_expected_is_ok(bare: Shop) -> None:
    """Requirement 71."""
    write(bare, GOOD.replace('class = ["queryable", "keyed"]\n', 'class = "queryable"\n'))
    write(bare, CASES, "cases.toml")

    told = bare.read("policy", "test", "cases.toml", "--policy", "policy.toml")

    assert [(one["name"], one["got"], one["ok"]) for one in told["cases"]] == [
        ("a small charge", "allow", True), ("charge", "ask", True), ("an amount is missing", "default", True),
        ("fax", "deny", True), ("nothing names it", "default", True),
    ]  # fmt: skip
    assert told["cases"][1]["expires_ms"] == 86_400_000
    assert told["label"].startswith("7+")
    assert "5 of 5 as expected, under 7+" in bare.ok("policy", "test", "cases.toml", "--policy", "policy.toml")


def test_another_verdict_than_expected_ends_with_code_1_and_is_shown(bare: Shop) -> None:
    write(bare, GOOD)
    write(bare, CASES, "cases.toml")

    result = bare.milepost("policy", "test", "cases.toml", "--policy", "policy.toml")

    assert result.exit_code == 1
    assert "4 of 5 as expected" in result.output
    row = next(line for line in result.output.splitlines() if "a small charge" in line)
    assert row.split() == ["wrong", "a", "small", "charge", "allow", "by", "small", "ask", "rule", "'large'"]


def test_cases_may_be_json_and_take_what_the_apps_tools_declare(shop: Shop) -> None:
    rule = '[[rule]]\nname = "pays"\nverdict = "allow"\nclass = "keyed"\nscopes = "payments:charge"\n'
    when = "when = '''authority.tenant == \"acme\" && budget.left.usd > 1.0'''\n"
    write(shop, f'version = "1"\n{rule}{when}')
    case = {"tool": "pay", "tenant": "acme", "budget": {"left": {"usd": 2.0}}, "expect": "allow"}
    write(shop, json.dumps({"case": [case, {**case, "class": "read", "expect": "default"}]}), "cases.json")

    assert shop.read("policy", "test", "cases.json", "--policy", "policy.toml")["ok"]


@pytest.mark.parametrize(
    "text",
    ["", "case = 1", "case = []", '[[case]]\ntool = "x"', '[[case]]\ntool = "x"\nexpect = "maybe"',
     '[[case]]\ntool = "x"\nexpect = "deny"\narg = {}', '[[case]]\ntool = "x"\nexpect = "deny"\nclass = "any"',
     '[[case]]\ntool = "x"\nexpect = "deny"\nrisk = "some"', "["],
)  # fmt: skip
def test_cases_that_say_nothing_clear_are_refused(text: str, bare: Shop) -> None:
    write(bare, GOOD)
    write(bare, text, "cases.toml")

    assert bare.refused("policy", "test", "cases.toml", "--policy", "policy.toml") == (2, "bad_fixtures")


def test_a_policy_that_cannot_be_read_is_not_tried(bare: Shop) -> None:
    write(bare, "version = ")
    write(bare, CASES, "cases.toml")

    assert bare.refused("policy", "test", "cases.toml", "--policy", "policy.toml") == (2, "invalid_policy")
    assert bare.refused("policy", "test", "gone.toml", "--policy", "policy.toml")[0] == 2


# ---------------------------------------------------------------- where it holds


def test_a_worker_holds_the_policy_that_its_option_names_and_one_that_was_mended(shop: Shop) -> None:
    """Requirement 71. Requirement 40. In a process of its own, and without a verb after the file is another one."""
    write(shop, 'version = "1"\n')
    run = shop.start("buy", "o-1")
    shop.worker("--policy", "policy.toml")

    def asks(text: str) -> bool:
        return text in (shop.read("show", run)["ask"] or "")

    eventually(lambda: asks("milepost policy check policy.toml: buy/charge#1 is denied"), saying="it waits")
    assert shop.ledger() == []
    write(shop, GOOD, "policy.new").replace(shop.folder / "policy.toml")
    eventually(lambda: asks("(policy rule 'large')"), saying="the rule asks")
    assert shop.ledger() == []
    shop.ok("approve", shop.read("show", run)["ask"].split()[2].rstrip(","), "--by", "ann")
    eventually(lambda: shop.status(run) == "done", saying="it is done")
    assert shop.ledger() == ["o-1 500"]


def test_the_doctor_says_which_policy_holds(shop: Shop) -> None:
    def found(code: int, *args: str) -> dict[str, Any]:
        result = shop.milepost("doctor", "--json", *args)
        assert result.exit_code == code, result.output
        return next(one for one in json.loads(result.stdout)["findings"] if one["what"] == "policy")

    assert found(0, "--app", "shop:app")["found"].startswith("default: ")
    write(shop, GOOD)
    assert found(0, "--policy", "policy.toml")["found"].startswith("policy.toml, version 7, 4 rules")
    broken = found(1, "--policy", "gone.toml")
    assert (broken["state"], broken["todo"]) == ("wrong", "milepost policy check gone.toml")
