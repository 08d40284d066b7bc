"""Readiness for production: each reason by its code, and a worker that does not start while there is one."""

import json
from dataclasses import replace

import milepost as mp
from milepost.operations.readiness import Setup, unready
from milepost.stores.api import Check
from tests.cli.shop_floor import Shop

READY = Setup(tools=(), policy="", sealed=True, signed=True, own_secrets=True)
READY_PROGRAM = """
import milepost as mp


@mp.tool(effect="keyed", key_ttl="24h", visible_within="30s", risk="high")
async def charge(call: mp.Call, order: str) -> str:
    return "paid"


@charge.reconcile
async def find(call: mp.Call, order: str) -> mp.Finding[str]:
    return mp.did_not_happen()


@mp.workflow(version="1", tools=[charge])
async def flow(run: mp.Run, order: str) -> str:
    return await charge(order)


app = mp.App(
    "sqlite:///shop.db",
    workflows=[flow],
    secrets=lambda name: "from a vault",
    policy="policy.toml",
    seal="store.seal",
    trust="operators.toml",
)
"""


def codes(setup: Setup, *checks: Check) -> list[tuple[str, str]]:
    return [(one.code, one.about) for one in unready(setup, checks)]


@mp.tool
async def fax(to: str) -> None: ...


@mp.tool(approval=True)
async def mail(to: str) -> None: ...


@mp.tool(effect="keyed")
async def charge(order: str) -> None: ...


@mp.tool(effect="queryable")
async def ship(order: str) -> None: ...


@ship.reconcile
async def find(order: str) -> mp.Finding[None]:
    return mp.still_unknown()


def test_a_program_that_lacks_nothing_is_ready() -> None:
    assert codes(READY) == []


def test_each_thing_that_is_missing_has_a_code_of_its_own() -> None:
    assert codes(replace(READY, policy=None)) == [("no_policy", "")]
    assert codes(replace(READY, policy="it is no TOML")) == [("policy_unreadable", "")]
    assert codes(replace(READY, policy_open=True)) == [("policy_open", "")]
    assert codes(replace(READY, sealed=False)) == [("no_seal", "")]
    assert codes(replace(READY, signed=False)) == [("unsigned_approvals", "")]
    assert codes(replace(READY, own_secrets=False)) == [("secrets_in_environment", "")]


def test_what_a_tool_does_not_declare_is_named_with_the_tool() -> None:
    assert codes(replace(READY, tools=(charge,))) == [("no_key_ttl", "charge"), ("missing_reconciler", "charge")]
    assert codes(replace(READY, tools=(ship,))) == [("no_visibility_bound", "ship")]
    assert codes(replace(READY, tools=(mail,), policy=None)) == [("no_policy", "")]
    assert ("unsafe_tool", "fax") in codes(replace(READY, tools=(fax,), policy=None))
    assert codes(replace(READY, tools=(fax,))) == [], "a policy decides about it"


def test_what_durability_rests_on_is_read_back_from_the_store() -> None:
    good, bad = (Check("synchronous", ok, "1 (2 is FULL)", "mend it") for ok in (True, False))

    assert codes(READY, good) == []
    assert codes(READY, bad) == [("durability", "synchronous")]


def test_the_doctor_reports_what_the_app_lacks_and_ends_with_1(shop: Shop) -> None:
    told = shop.milepost("doctor", "--production", "--json")

    found = {one["what"] for one in json.loads(told.stdout)["findings"] if one["state"] == "wrong"}
    assert told.exit_code == 1
    assert {"no_policy", "no_seal", "unsigned_approvals", "secrets_in_environment", "unsafe_tool fax"} <= found
    assert "missing_reconciler pay" in found
    assert "unsafe_tool mail" not in found, "a person is asked about it"


def test_a_worker_for_production_does_not_start_while_something_is_lacking(shop: Shop) -> None:
    run = shop.start("buy", "one")

    assert shop.refused("worker", "--production") == (5, "not_ready")
    assert "no_seal" in shop.milepost("worker", "--production").stderr
    assert shop.ledger() == []
    assert shop.status(run) == "ready"


def test_a_worker_for_production_starts_where_nothing_is_lacking(shop: Shop) -> None:
    (shop.folder / "good.py").write_text(READY_PROGRAM)
    (shop.folder / "policy.toml").write_text('version = "1"\n[[rule]]\nname = "all"\nverdict = "allow"\n')
    shop.ok("keys", "new", "ada", "--folder", "keys")
    shop.ok("keys", "trust", "keys/ada.pub", "--may", "seal", "--may", "approve")
    shop.ok("seal", "--to", "store.seal", "--key", "keys/ada.key")

    assert "nothing is wrong" in shop.ok("doctor", "--production", "--app", "good:app")
    (shop.folder / "policy.toml").chmod(0o666)
    assert "policy_open" in shop.milepost("doctor", "--production", "--app", "good:app").output
    (shop.folder / "policy.toml").chmod(0o644)
    worker = shop.worker("--production", "--app", "good:app")
    worker.terminate()
    assert worker.wait(timeout=60) == 0, shop.log(worker)
