import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from milepost.core.retry import Retry
from milepost.definitions.run import Run
from milepost.definitions.tools import tool
from milepost.definitions.workflows import Next, Segment, Workflow, done, fail, go, prompt, workflow
from milepost.errors import InvalidDeclaration


@dataclass(frozen=True)
class Case:
    text: str


@dataclass(frozen=True)
class Paying:
    case: Case
    cents: int


@tool
def mail(to: str) -> None: ...


def desk(**options: Any) -> Workflow[Case, str]:
    return Workflow("refund-desk", version="1", input=Case, result=str, **options)


def test_a_workflow_is_made_of_typed_segments_and_the_first_declared_is_first() -> None:
    """Requirement 1."""
    flow = desk(tools=[mail], prompts=[prompt("system", "Be kind.")], compatible_with=["0"])

    def paid_once(paying: Paying, following: Next[str]) -> bool:
        return following.failure is None

    def worth_it(paying: Paying) -> bool:
        return paying.cents > 0

    @flow.segment
    async def triage(run: Run, case: Case) -> Next[str]:
        return go(pay, Paying(case, 5))

    @flow.segment(ensures=paid_once, requires=worth_it, retry=Retry(2))
    async def pay(run: Run, paying: Paying) -> Next[str]:
        return done("paid")

    assert flow.first is triage
    assert list(flow.segments) == ["triage", "pay"]
    assert (pay.name, pay.ensures, pay.requires, pay.retry) == ("pay", paid_once, worth_it, Retry(2))
    assert (triage.ensures, triage.requires, triage.retry) == (None, None, None)
    assert (triage.state.kind, pay.state.kind, flow.result.kind) == (Case, Paying, str)
    assert (flow.tools, flow.compatible_with) == ({"mail": mail}, frozenset({"0"}))
    assert flow.prompts["system"].text == "Be kind."
    assert asyncio.run(triage.fn(NO_RUN, Case("x"))) == Next("pay", Paying(Case("x"), 5), None)
    assert (repr(flow), repr(pay)) == ("<workflow refund-desk version 1>", "<segment pay>")


NO_RUN: Any = None


def test_a_segment_ends_in_one_of_three_ways() -> None:
    flow = desk()

    @flow.segment
    async def triage(run: Run, case: Case) -> Next[str]:
        return done("")

    assert go(triage, Case("x")) == Next("triage", Case("x"), None, None)
    assert done("ok") == Next(None, None, "ok", None)
    assert done(None) == Next(None, None, None, None)
    assert fail("no money") == Next(None, None, None, "no money")


def test_one_function_is_a_workflow_of_one_segment() -> None:
    @workflow(version="2", name="shop.buy", tools=[mail], compatible_with=["1"])
    async def buy(run: Run, order: str) -> int:
        return len(order)

    @workflow(version="1")
    async def tick(run: Run) -> None:
        return None

    assert (buy.name, buy.version, list(buy.segments), buy.compatible_with) == (
        "shop.buy",
        "2",
        ["buy"],
        frozenset({"1"}),
    )
    assert (buy.input.kind, buy.result.kind, buy.first.state.kind) == (str, int, str)
    assert asyncio.run(buy.first.fn(NO_RUN, "abc")) == done(3)
    assert (tick.name, tick.input.kind, tick.result.kind) == ("tick", type(None), type(None))
    assert tick.input.write(None) == b"null"
    assert asyncio.run(tick.first.fn(NO_RUN, None)) == done(None)


def test_a_migration_is_declared_for_each_older_version() -> None:
    flow = desk()

    @flow.migration(from_="0")
    def onwards(segment: str, state: Any) -> Next[str]:
        return fail(segment)

    assert flow.migrations == {"0": onwards}
    with pytest.raises(InvalidDeclaration, match="each older version once"):
        flow.migration(from_="0")
    with pytest.raises(InvalidDeclaration, match="each older version once"):
        flow.migration(from_="1")

    async def slow(segment: str, state: Any) -> Next[str]:
        raise NotImplementedError

    with pytest.raises(InvalidDeclaration, match="plain def"):
        flow.migration(from_="0.5")(slow)  # type: ignore[arg-type]


def ends(segment: str, state: Any) -> Next[str]:
    return fail(segment)


def test_migrations_lead_from_version_to_version_as_people_count() -> None:
    """Requirement 35."""
    flow: Workflow[Case, str] = Workflow("w", version="2.0", input=Case, result=str)
    for version in ("1.10", "1.2", "beta", "1"):
        flow.migration(from_=version)(ends)

    assert flow.migration_paths() == {
        "1": ("1", "1.2", "1.10", "beta", "2.0"),
        "1.2": ("1.2", "1.10", "beta", "2.0"),
        "1.10": ("1.10", "beta", "2.0"),
        "beta": ("beta", "2.0"),
    }


def test_a_migration_may_say_where_it_leads() -> None:
    flow: Workflow[Case, str] = Workflow("w", version="3", input=Case, result=str)
    flow.migration(from_="1", to="3")(ends)
    flow.migration(from_="2")(ends)

    assert flow.migration_paths() == {"1": ("1", "3"), "2": ("2", "3")}


def test_a_migration_that_leads_nowhere_is_refused() -> None:
    flow = desk()
    flow.migration(from_="0", to="0.5")(ends)

    with pytest.raises(InvalidDeclaration, match=r"leads to '0\.5' and no further"):
        flow.migration_paths()


def test_a_prompt_has_a_version_and_a_fingerprint() -> None:
    """Requirement 34."""
    first, second = prompt("p", "a"), prompt("p", "b", version="2")

    assert (first.version, second.version) == ("1", "2")
    assert first.fingerprint != second.fingerprint
    with pytest.raises(InvalidDeclaration, match="write it as text"):
        prompt("p", "a", version="")


def test_a_fingerprint_changes_with_the_code_and_with_the_types() -> None:
    """Requirement 44."""

    def built(kind: Any, *, more: bool) -> Workflow[Any, str]:
        flow: Workflow[Any, str] = Workflow("w", version="1", input=kind, result=str)

        async def first(run: Run, state: Any) -> Next[str]:
            return done("")

        first.__annotations__["state"] = kind
        flow.segment(first)
        if more:

            @flow.segment
            async def second(run: Run, state: int) -> Next[str]:
                return done("")

        return flow

    prints = [built(Case, more=False), built(Case, more=True), built(Paying, more=False)]

    assert built(Case, more=False).fingerprint == prints[0].fingerprint
    assert len({flow.fingerprint for flow in prints}) == 3
    assert prompt("p", "a").fingerprint != prompt("p", "b").fingerprint


def test_segments_of_another_form_are_refused() -> None:
    flow = desk()

    async def no_state(run: Run) -> Next[str]:
        raise NotImplementedError

    async def three(run: Run, case: Case, more: int) -> Next[str]:
        raise NotImplementedError

    async def other_input(run: Run, case: Paying) -> Next[str]:
        raise NotImplementedError

    def plain(run: Run, case: Case) -> Next[str]:
        raise NotImplementedError

    for fn, why in (
        (no_state, "give it both parameters"),
        (three, "give it both parameters"),
        (other_input, "Make them the same"),
        (plain, "must be an 'async def'"),
    ):
        declare: Any = flow.segment
        with pytest.raises(InvalidDeclaration, match=why):
            declare(fn)
    with pytest.raises(InvalidDeclaration, match="has no segment"):
        _ = flow.first


def test_two_segments_of_one_name_are_refused() -> None:
    flow = desk()

    def declared() -> Segment[Case, str]:
        @flow.segment
        async def triage(run: Run, case: Case) -> Next[str]:
            return done("")

        return triage

    declared()
    with pytest.raises(InvalidDeclaration, match="two segments named triage"):
        declared()


def test_workflows_of_another_form_are_refused() -> None:
    async def none() -> int:
        raise NotImplementedError

    async def three(run: Run, one: int, two: int) -> int:
        raise NotImplementedError

    def plain(run: Run) -> int:
        raise NotImplementedError

    for fn, why in ((none, "use a dataclass"), (three, "use a dataclass"), (plain, "must be an 'async def'")):
        declare: Any = workflow(version="1")
        with pytest.raises(InvalidDeclaration, match=why):
            declare(fn)


@tool(name="mail")
def another_mail(to: str) -> None: ...


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"tools": [mail, another_mail]}, "two are named mail"),
        ({"tools": [mail.fn]}, r"is no Tool. Decorate it with @mp\.tool"),
        ({"prompts": ["Be kind."]}, r"is no Prompt. Make it with mp\.prompt"),
        ({"prompts": [prompt("p", "a"), prompt("p", "b")]}, "two are named p"),
        ({"compatible_with": "10"}, "'10' is no list of names"),
        ({"version": ""}, "write it as text"),
        ({"models": ["a-model"]}, "is no mapping"),
        ({"models": {"triage": ""}}, "is no mapping"),
        ({"name": "a b"}, "workflow name 'a b'"),
        ({"input": object()}, "input of w"),
        ({"result": list[asyncio.Lock]}, "result of w: Lock cannot be stored"),
    ],
)
def test_what_a_workflow_cannot_hold_is_refused(options: dict[str, Any], why: str) -> None:
    make: Any = Workflow

    with pytest.raises(InvalidDeclaration, match=why):
        make(**{"name": "w", "version": "1", "input": Case, "result": str, **options})


def test_a_tool_listed_twice_is_listed_once() -> None:
    assert desk(tools=[mail, mail]).tools == {"mail": mail}
