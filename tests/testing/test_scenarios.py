"""Each scenario passes a workflow that is declared as its world behaves, and names the mistake of another."""

import shutil
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

import milepost as mp
from milepost.testing import Account, Report, World, answer_lost, late_commit, long_outage, slow_owner
from tests.testing.books import Books

TLS = ssl.create_default_context()  # made once: a client would load every certificate again, for a world without any


@dataclass(frozen=True)
class Shop:
    """A user's own client."""

    account: Account
    http: httpx.AsyncClient

    async def do(self, call: mp.Call, kind: str, tool: str, order: str, **headers: str) -> str:
        url = self.account.url(kind, tool, order)
        told = {"Effect-Key": call.key, **headers}
        answer = await self.http.request(METHODS[kind], url, json={"order": order}, headers=told)
        answer.raise_for_status()
        return str(answer.json()["receipt"])

    async def find(self, kind: str, tool: str, order: str) -> mp.Finding[str]:
        found = (await self.http.get(self.account.url(kind, tool, order))).raise_for_status().json()["found"]
        if len(found) > 1:
            return mp.conflict(found)
        return mp.happened(found[0]["receipt"]) if found else mp.did_not_happen()


METHODS = {"keyed": "POST", "queryable": "POST", "absolute": "PUT", "irreversible": "POST"}


def shop(account: Account) -> Mapping[type[Any], Callable[[], AbstractAsyncContextManager[Any]]]:
    @asynccontextmanager
    async def opened() -> AsyncIterator[Shop]:
        async with httpx.AsyncClient(trust_env=False, verify=TLS, timeout=5) as client:
            yield Shop(account, client)

    return {Shop: opened}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with World(tmp_path_factory.mktemp("world"), mail=False) as running:
        yield running


def charging(key_ttl: str = "24h") -> mp.Tool[[str], str]:
    @mp.tool(effect="keyed", key_ttl=key_ttl)
    async def charge(call: mp.Call, order: str) -> str:
        return await call.resource(Shop).do(call, "keyed", "charge", order, **{"Idempotency-Key": call.key})

    return charge


def shipping(visible_within: str) -> mp.Tool[[str], str]:
    @mp.tool(effect="queryable", visible_within=visible_within)
    async def ship(call: mp.Call, order: str) -> str:
        return await call.resource(Shop).do(call, "queryable", "ship", order)

    @ship.reconcile
    async def shipped(call: mp.Call, order: str) -> mp.Finding[str]:
        return await call.resource(Shop).find("queryable", "ship", order)

    return ship


def publishing() -> mp.Tool[[str], str]:
    @mp.tool(effect="absolute")
    async def publish(call: mp.Call, order: str) -> str:
        return await call.resource(Shop).do(call, "queryable", "publish", order)  # no precondition is looked at here

    return publish


def pressing() -> mp.Tool[[str], str]:
    @mp.tool
    async def press(call: mp.Call, order: str) -> str:
        return await call.resource(Shop).do(call, "irreversible", "press", order)

    return press


def reporting_too_soon() -> mp.Tool[[str], str]:
    @mp.tool(effect="irreversible")
    async def press(call: mp.Call, order: str) -> str:
        try:
            return await call.resource(Shop).do(call, "irreversible", "press", order)
        except httpx.HTTPError as error:
            raise mp.NotSent(str(error)) from error

    return press


def of(*tools: mp.Tool[[str], str]) -> mp.Workflow[str, list[str]]:
    @mp.workflow(version="1", tools=tools)
    async def orders(run: mp.Run, order: str) -> list[str]:
        return [await tool(order) for tool in tools]

    return orders


def kept(report: Report) -> Report:
    for broken in report.broken:
        if broken.store is not None:
            shutil.rmtree(broken.store.parent, ignore_errors=True)
    return report


def repeated(report: Report) -> str:
    assert {broken.rule for broken in report.broken} == {"repeated"}, report
    return report.broken[0].why


# ---------------------------------------------------------------- answers that are lost


def test_a_workflow_survives_the_loss_of_each_answer(world: World) -> None:
    """Requirement 51."""
    flow = of(charging(), shipping("30s"), pressing())
    report = kept(answer_lost(flow, "o-1", world, resources=shop, seed=1))

    assert report.ok, report
    assert len(report.points) == report.equal == 3 + 3 * 3
    assert "exchange 1, POST keyed/charge/o-1" in report.points[3]
    assert report.asked == ("orders/press#1",)


def test_a_tool_that_says_not_sent_of_a_lost_answer_is_named(world: World) -> None:
    report = kept(answer_lost(of(reporting_too_soon()), "o-1", world, resources=shop, seed=1))

    assert "said mp.NotSent or mp.Rejected of an attempt that had been applied" in repeated(report)
    assert {broken.point for broken in report.broken} >= {
        "exchange 1, POST irreversible/press/o-1: reset after the origin",
        "exchange 1, POST irreversible/press/o-1: 504 after the origin",
    }


# ---------------------------------------------------------------- requests that land late


def test_a_request_that_lands_late_is_waited_for_by_who_declared_it(world: World) -> None:
    """Requirement 51."""
    flow = of(charging(), shipping("90s"), pressing())
    report = kept(late_commit(flow, "o-1", world, after="60s", resources=shop, seed=1))

    assert report.ok, report
    assert report.equal == 3
    assert report.points[1] == "exchange 2, POST queryable/ship/o-1: lands 60s late"


def test_a_bound_that_is_too_short_for_a_late_request_is_named(world: World) -> None:
    report = kept(late_commit(of(shipping("5s")), "o-1", world, after="60s", resources=shop, seed=1))

    assert "visible_within='5s' was taken for long enough" in repeated(report)
    assert 'ship {"order": "o-1"} was applied 2 times instead of once.' in str(report)


def test_a_world_without_proxies_cannot_hold_a_request_back(books: Books) -> None:
    with pytest.raises(TypeError, match=r"needs a milepost\.testing\.World"):
        late_commit(of(charging()), "o-1", books)  # type: ignore[arg-type]


# ---------------------------------------------------------------- a slow owner


def test_two_owners_come_to_one_effect(world: World) -> None:
    """Requirement 51. The first one freezes, loses its lease with its request under way, and wakes."""
    flow = of(charging(), shipping("30s"), pressing())
    report = kept(slow_owner(flow, "o-1", world, resources=shop, seed=1, most=9))

    assert report.ok, report
    assert report.equal == 9


def test_an_effect_that_is_not_absolute_is_done_by_both_owners(world: World) -> None:
    report = kept(slow_owner(of(publishing()), "o-1", world, resources=shop, seed=1))

    assert "doing it twice was not the same as doing it once" in repeated(report)
    assert "publish#1: returned" in {broken.point for broken in report.broken}


# ---------------------------------------------------------------- a long outage


def test_a_key_that_has_expired_is_not_sent_again_after_a_long_outage(world: World) -> None:
    """Requirement 51."""
    flow = of(charging("12h"), shipping("30s"))
    report = kept(long_outage(flow, "o-1", world, lasts="3d", keys_last="24h", resources=shop, seed=1, most=9))

    assert report.ok, report
    assert report.equal == 9


def test_a_key_that_the_provider_forgets_sooner_than_declared_is_named(world: World) -> None:
    report = kept(long_outage(of(charging("30d")), "o-1", world, lasts="3d", keys_last="24h", resources=shop, seed=1))

    assert "the provider applied the same key twice" in repeated(report)
    assert "for key_ttl='30d'" in str(report)
