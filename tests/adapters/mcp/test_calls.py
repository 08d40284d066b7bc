"""Which recorded call a request is: in periods, over failures, and for tools that may be repeated."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

import milepost as mp
from milepost import errors
from milepost.adapters.foreign import foreign
from milepost.adapters.mcp.gateway.calls import Attempted, Calls
from milepost.adapters.mcp.gateway.config import CallerEntry, Config
from milepost.stores.api import Query
from tests.adapters.mcp.town import soon
from tests.runtime.stage import Stage

SCHEMA = {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]}
CALLER = CallerEntry("desk", "", ("mail",), (), None, {})
CONFIG = Config("servers.toml", "", None, None, None, 3_600_000, "127.0.0.1", 0, None, (), {"desk": CALLER})


class Desk:
    """A caller's calls of one tool, on a clock that a test moves."""

    def __init__(self, stage: Stage, **declared: Any) -> None:
        self.stage = stage
        self.sent: list[str] = []
        self.fails: BaseException | None = None
        self.release = asyncio.Event()
        self.release.set()
        self.tool = foreign("mail", SCHEMA, self._send, **declared)
        self.calls: Calls

    async def _send(self, _: mp.Call, arguments: dict[str, Any]) -> Any:
        self.sent.append(arguments["to"])
        await self.release.wait()
        if self.fails is not None:
            raise self.fails
        return {"content": []}

    @asynccontextmanager
    async def started(self, **options: Any) -> AsyncIterator[mp.App]:
        """A gateway's life."""
        app = mp.App(self.stage.url, tools=[self.tool], clock=self.stage.clock, **options)
        async with app:
            self.calls = Calls(app, CALLER, CONFIG)
            yield app

    async def ask(self, to: str = "ann", **meta: str) -> Attempted:
        """Make a request, as a host does."""
        named = {f"milepost/{name}": value for name, value in meta.items()}
        return await self.calls.attempt(self.tool, {"to": to}, named)


async def test_an_equal_call_is_the_same_one_until_the_period_after_the_next(stage: Stage) -> None:
    """Also in the next period, and in a gateway that was started anew there. The run that nobody needs is ended."""
    desk = Desk(stage)

    recorded = []
    for hours in (0, 1, 1):
        stage.clock.advance(f"{hours}h")
        async with desk.started():
            recorded += [(await desk.ask()).recorded for _ in range(2)]
    async with desk.started() as app:
        runs = await app.inspect.runs(Query())

    assert recorded == [False, True, True, True, False, True]
    assert desk.sent == ["ann", "ann"]
    assert [run.status == "done" for run in runs] == [False, True]


async def test_a_call_that_nobody_knows_about_is_found_in_any_period(stage: Stage) -> None:
    """Requirement 46. It is never sent again while it is unknown."""
    desk = Desk(stage)
    desk.fails = RuntimeError("the line broke")
    async with desk.started():
        lost = await desk.ask()
    desk.fails = None
    stage.clock.advance("9h")

    async with desk.started() as app:
        again = await desk.ask()
        other = await desk.ask("bo")
        await app.resolve(lost.run_id, f"@{lost.id}", mp.did_not_happen(), by="ann", why="looked")
        after = await desk.ask()

    assert isinstance(again.outcome, mp.Waiting)
    assert (again.run_id, again.id, again.outcome.reason) == (lost.run_id, lost.id, "unknown")
    assert isinstance(other.outcome, mp.Confirmed)
    assert isinstance(after.outcome, mp.Confirmed)
    assert desk.sent == ["ann", "bo", "ann"]


async def test_what_certainly_failed_may_be_asked_for_again_and_is_a_new_call(stage: Stage) -> None:
    desk = Desk(stage)

    async with desk.started():
        desk.fails = mp.Rejected("no such address")
        refused = await desk.ask()
        named = await desk.ask(call="c-1")
        desk.fails = None
        done = await desk.ask()
        still = await desk.ask(call="c-1")

    assert [type(one.outcome) for one in (refused, named, done, still)] == [
        mp.Failed, mp.Failed, mp.Confirmed, mp.Failed,
    ]  # fmt: skip
    assert refused.id != done.id
    assert (still.id, still.recorded) == ("c-1", True)


@pytest.mark.parametrize("repeatable", [False, True])
async def test_a_repeatable_tool_is_repeated_once_the_last_call_is_confirmed(stage: Stage, *, repeatable: bool) -> None:
    desk = Desk(stage, repeatable=repeatable)

    async with desk.started():
        for _ in range(2):
            await desk.ask()
        desk.fails = RuntimeError("the line broke")
        for _ in range(2):
            unknown = await desk.ask()

    assert desk.sent == (["ann"] * 3 if repeatable else ["ann"])
    assert isinstance(unknown.outcome, mp.Waiting) is repeatable


async def test_a_named_run_has_calls_of_its_own_for_ever(stage: Stage) -> None:
    desk = Desk(stage)

    async with desk.started():
        first, other = await desk.ask(run="a", call="c-1"), await desk.ask(run="b", call="c-1")
        stage.clock.advance("9h")
        again, equal = await desk.ask(run="a", call="c-1"), await desk.ask(run="a", call="c-2")
        with pytest.raises(mp.Diverged):
            await desk.ask("bo", run="a", call="c-1")

    assert (first.run_id == again.run_id == equal.run_id, first.run_id == other.run_id) == (True, False)
    assert [one.recorded for one in (first, other, again, equal)] == [False, False, True, True]
    assert desk.sent == ["ann", "ann"]


async def test_free_reads_are_made_anew_in_runs_that_end(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("milepost.adapters.mcp.gateway.calls.READS_A_RUN", 2)
    desk = Desk(stage, effect="read")

    async with desk.started() as app:
        for _ in range(5):
            await desk.ask()
        runs = await app.inspect.runs(Query())

    assert desk.sent == ["ann"] * 5
    assert sorted(run.status for run in runs)[:2] == ["done", "done"]


async def test_a_caller_has_its_scopes_and_its_budget_and_no_others(stage: Stage) -> None:
    """Requirement 88. In the gateway, and not by the word of the host: each caller by what the file says of it."""
    desk = Desk(stage, scopes=["pay"], cost={"usd": 2})
    granted = {"": (), "pay": ("pay",)}

    outcomes = {}
    async with desk.started() as app:
        for scope, scopes in granted.items():
            for usd in (0, 3):
                caller = replace(CALLER, name=f"desk{scope}{usd}", scopes=scopes, budget={"usd": Decimal(usd)})
                desk.calls = Calls(app, caller, CONFIG)
                came = (await desk.ask()).outcome
                outcomes[scope, usd] = came.reason if isinstance(came, mp.Waiting) else "confirmed"

    assert outcomes == {("", 0): "authority", ("", 3): "authority", ("pay", 0): "budget", ("pay", 3): "confirmed"}


async def test_a_run_that_an_operator_killed_answers_what_it_did_and_begins_nothing(stage: Stage) -> None:
    """Until its period is over. What was unknown stays so."""
    desk = Desk(stage)

    async with desk.started() as app:
        done = await desk.ask("ann")
        desk.fails = RuntimeError("the line broke")
        await desk.ask("bo")
        desk.fails = None
        await app.kill(done.run_id, why="misbehaves", by="cleo")
        again, lost = await desk.ask("ann"), await desk.ask("bo")
        with pytest.raises(errors.RunEnded):
            await desk.ask("dan")
        stage.clock.advance("1h")
        later = await desk.ask("bo")
        new = await desk.ask("dan")

    assert isinstance(again.outcome, mp.Confirmed)
    assert [type(one.outcome) for one in (lost, later)] == [mp.Waiting, mp.Waiting]
    assert isinstance(new.outcome, mp.Confirmed)
    assert desk.sent == ["ann", "bo", "dan"]


async def test_a_gateway_that_began_its_period_early_finds_what_another_did_in_the_last_one(stage: Stage) -> None:
    """Its call was just about to begin when the period ended."""
    desk, other = Desk(stage), Desk(stage)
    async with other.started(), desk.started():
        key = other.calls._key(stage.clock.now() // CONFIG.remember_ms - 1)
        await desk.ask("bo")
        bound = other.tool.arguments.from_json({"to": "ann"})
        await other.calls._held(key, other.tool, bound, None)

        again = await desk.ask("ann")

    assert again.recorded
    assert (desk.sent, other.sent) == (["bo"], ["ann"])


async def test_reads_that_are_made_at_once_are_answered_when_their_run_is_long_enough(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last one that is under way ends the run."""
    monkeypatch.setattr("milepost.adapters.mcp.gateway.calls.READS_A_RUN", 2)
    desk = Desk(stage, effect="read")
    desk.release.clear()

    async with desk.started() as app:
        asking = [asyncio.ensure_future(desk.ask(f"{n}")) for n in range(5)]
        await soon(lambda: len(desk.sent) == 5)
        desk.release.set()
        answers = await asyncio.gather(*asking)
        runs = await app.inspect.runs(Query())

    assert [type(answer.outcome) for answer in answers] == [mp.Confirmed] * 5
    assert sorted(run.status == "done" for run in runs) == [False, True, True]


async def test_a_read_that_waits_for_approval_is_done_once_it_is_approved_and_asked_for_again(stage: Stage) -> None:
    desk = Desk(stage, effect="read", approval=True)

    async with desk.started() as app:
        waits, still = await desk.ask(), await desk.ask()
        asked = await app.inspect.approvals("asked")
        await app.approve(asked[0].id, by="ann")
        done, anew = await desk.ask(), await desk.ask()

    assert isinstance(waits.outcome, mp.Waiting)
    assert (len(asked), waits.id == still.id == done.id) == (1, True)
    assert isinstance(done.outcome, mp.Confirmed)
    assert isinstance(anew.outcome, mp.Waiting)
    assert desk.sent == ["ann"]


async def test_a_read_for_which_the_policy_asks_is_done_once_it_is_approved_and_asked_for_again(stage: Stage) -> None:
    desk = Desk(stage, effect="read")
    policy = stage.folder / "policy.toml"
    policy.write_text('version = "1"\n[[rule]]\nname = "all"\nverdict = "ask"\n')

    async with desk.started(policy=str(policy)) as app:
        await desk.ask("ann")
        await desk.ask("ann")
        asked = await app.inspect.approvals("asked")
        await app.approve(asked[0].id, by="ann")
        done = await desk.ask("ann")

    assert len(asked) == 1
    assert isinstance(done.outcome, mp.Confirmed)


async def test_a_scope_that_the_file_no_longer_gives_is_taken_from_runs_that_began_with_it(stage: Stage) -> None:
    """Requirement 71. What a person granted to a run stays."""
    desk = Desk(stage, scopes=["pay"])
    async with desk.started() as app:
        desk.calls = Calls(app, replace(CALLER, scopes=("pay",)), CONFIG)
        for run in ("a", "b"):
            await desk.ask("ann", run=run)

    async with desk.started() as app:
        outcomes = [(await desk.ask("bo", run=run)).outcome for run in ("a", "b")]
        granted = (await desk.ask("bo", run="b")).run_id
        await app.grant(granted, scopes=["pay"], by="ann", why="for today")
    async with desk.started():
        outcomes += [(await desk.ask("bo", run=run)).outcome for run in ("a", "b")]

    assert [one.reason if isinstance(one, mp.Waiting) else "confirmed" for one in outcomes] == [
        "authority", "authority", "authority", "confirmed",
    ]  # fmt: skip
    assert desk.sent == ["ann", "ann", "bo"]


@pytest.mark.parametrize("declared", [{"repeatable": True}, {"effect": "read"}])
async def test_an_id_that_is_under_way_with_other_arguments_does_not_get_their_answer(
    stage: Stage, declared: dict[str, Any]
) -> None:
    desk = Desk(stage, **declared)
    desk.release.clear()

    async with desk.started():
        one = asyncio.ensure_future(desk.ask("ann", run="r", call="c"))
        await soon(lambda: desk.sent)
        other = asyncio.ensure_future(desk.ask("bo", run="r", call="c"))
        await asyncio.sleep(0)
        desk.release.set()
        answers = await asyncio.gather(one, other, return_exceptions=True)

    assert isinstance(answers[0], Attempted)
    assert isinstance(answers[1], mp.Diverged)
    assert desk.sent == ["ann"]
