"""Two runs side by side: where they part is said in one sentence, and what differs can be read."""

from dataclasses import dataclass, field
from typing import Any

import pytest

import milepost as mp
from milepost.errors import Damaged
from milepost.operations.comparing import Comparison, compare
from tests.runtime.refunds import Money, Outside, desk_of, spending_of
from tests.runtime.stage import Stage, has_entry, parked

WHY: Any = {"by": "ann", "why": "what if"}
PART = "They part at boundary thinking: thinking/ask#1: it answered"
PAID = '{"order":"o-1","cents":5}'


@dataclass
class Model:
    """A model that answers from a list; its answers decide what is called next."""

    answers: list[Any] = field(default_factory=list)


def agent(model: Model) -> mp.Workflow[str, str]:
    """Return a workflow that asks, acts as it is told, and ends."""

    @mp.tool(effect="read")
    async def ask(text: str) -> dict[str, Any]:
        answer: dict[str, Any] = model.answers.pop(0)
        return answer

    @mp.tool(effect="keyed", key_ttl="24h")
    async def pay(order: str, cents: int) -> str:
        return f"paid {order}"

    @mp.tool(effect="keyed", key_ttl="24h")
    async def mail(to: str) -> str:
        raise mp.Rejected("no such address")

    flow = mp.Workflow("agent", version="1", input=str, result=str, tools=[ask, pay, mail])

    @flow.segment
    async def thinking(run: mp.Run, text: str) -> mp.Next[str]:
        run.now()
        return mp.go(acting, await ask(text))

    @flow.segment
    async def acting(run: mp.Run, plan: dict[str, Any]) -> mp.Next[str]:
        await run.sleep("1ms")
        if plan.get("do") == "mail":
            await mail("ann")
        if "cents" in plan:
            await pay("o-1", plan["cents"])
        return mp.done(str(plan.get("say", "done")))

    return flow


async def two(stage: Stage, one: Any, other: Any, *, given: tuple[str, str] = ("x", "x")) -> Comparison:
    """Run the agent twice, with one answer each, and compare."""
    model = Model([one, other])
    flow = agent(model)
    async with stage.app(flow) as app:
        runs = []
        for text, answer in zip(given, (one, other), strict=True):
            handle = await app.start(flow, text)
            await has_entry(app, handle.id, "run_stopped" if "do" in answer else "run_done")
            runs.append(handle.id)
        return await compare(app._need_engine().store, *runs)


async def test_two_runs_that_did_the_same_are_the_same_whatever_their_ids_and_clocks_say(stage: Stage) -> None:
    """Requirement 24."""
    found = await two(stage, {"cents": 5}, {"cents": 5})

    assert found.first is None
    assert [(row.a, row.b, row.differences) for row in found.boundaries] == [
        ("thinking", "thinking", []),
        ("acting", "acting", []),
        ("end", "end", []),
    ]
    assert [row.state_a == row.state_b for row in found.boundaries] == [True, True, True]
    assert found.begins == "at the beginning of both"


@pytest.mark.parametrize(
    ("one", "other", "first", "more"),
    [
        (
            {"cents": 5},
            {"cents": 500},
            'They part at boundary thinking: thinking/ask#1: it answered {"cents":5} in A and {"cents":500} in B.',
            [
                "state.cents: 5 in A, 500 in B",
                'acting/pay#1: A made a call of pay with {"order":"o-1","cents":5}, B with {"order":"o-1","cents":500}',
            ],
        ),
        (
            {"cents": 5},
            {"say": "no"},
            'They part at boundary thinking: thinking/ask#1: it answered {"cents":5} in A and {"say":"no"} in B.',
            [
                "state.cents: only A has it, 5",
                'state.say: only B has it, "no"',
                'acting/pay#1: A made a call of pay with {"order":"o-1","cents":5}, B made none there',
                'result: "done" in A, "no" in B',
            ],
        ),
        (
            {"cents": 5, "do": "mail"},
            {"cents": 5},
            f'{PART} {{"cents":5,"do":"mail"}} in A and {{"cents":5}} in B.',
            [
                f'acting/mail#1: A made a call of mail with {{"to":"ann"}}, B made a call of pay with {PAID}',
                "B comes to boundary end, A does not",
            ],
        ),
    ],
    ids=["arguments", "a step less", "another tool, and a failure"],
)
async def test_the_first_place_where_they_part_is_named_and_what_differs_is_told(
    stage: Stage, one: Any, other: Any, first: str, more: list[str]
) -> None:
    """Requirement 24."""
    found = await two(stage, one, other)
    said = [difference.said for row in found.boundaries for difference in row.differences]

    assert found.first == first
    assert [line for line in more if line not in said] == [], said


async def test_another_input_is_another_state_at_the_first_boundary(stage: Stage) -> None:
    found = await two(stage, {"say": "a"}, {"say": "a"}, given=("x", "y"))

    assert found.first == 'They part at boundary thinking: state: "x" in A, "y" in B.'


async def test_very_many_places_are_counted_and_not_all_shown(stage: Stage) -> None:
    one, other = ({"list": [start + number for number in range(50)]} for start in (0, 100))
    found = await two(stage, one, {"list": [*other["list"], 1]})
    lines = [difference.said for difference in found.boundaries[1].differences if difference.where.startswith("state")]

    assert lines[0] == "state.list[0]: 0 in A, 100 in B"
    assert lines[-1] == "state: 31 more places differ"


async def test_a_fork_is_compared_with_its_origin_from_where_it_was_made(stage: Stage) -> None:
    """Requirement 24."""
    outside = Outside()
    desk = desk_of(outside)
    async with stage.app(desk) as app:
        store = app._need_engine().store
        origin = await app.start(desk, "o")
        await parked(origin, "signal")
        fork = await app.fork(origin.id, at="shipping", **WHY)
        await parked(fork, "signal")
        same = await compare(store, origin.id, fork.id)
        assert (same.first, same.begins) == (None, "at boundary shipping, where B was forked from A")
        assert [row.a for row in same.boundaries] == ["shipping", "closing"]

        await app.send(fork.id, "word", "no")
        await fork.result(timeout="30s")
        found = await compare(store, fork.id, origin.id)
        assert found.begins == "at boundary shipping, where A was forked from B"
        assert found.first == "They part at boundary closing: closing/:0: it is received in A and waiting in B."
        assert (found.status_a, found.status_b) == ("done", "parked")
        assert found.boundaries[-1].differences[0].said == "A comes to boundary end, B does not"

        other = await app.fork(origin.id, at="closing", **WHY)
        await parked(other, "signal")
        siblings = await compare(store, fork.id, other.id)
        assert siblings.begins == f"at boundary 2 of run {origin.id}, from which both were forked"
        assert [row.a for row in siblings.boundaries] == ["closing", "end"]


async def test_what_a_rewind_has_undone_is_left_out_and_a_fork_from_it_still_has_its_place(stage: Stage) -> None:
    outside = Outside()
    desk = desk_of(outside)
    async with stage.app(desk) as app:
        store = app._need_engine().store
        origin = await app.start(desk, "o")
        await parked(origin, "signal")
        fork = await app.fork(origin.id, at="shipping", **WHY)
        twin = await app.start(desk, "o")
        for handle in (fork, twin):
            await parked(handle, "signal")
        await app.rewind(origin.id, to="shipping", **WHY)
        await has_entry(app, origin.id, "rewound")
        await parked(origin, "signal")

        assert [row.a for row in (await compare(store, origin.id, twin.id)).boundaries] == [
            "charging",
            "shipping@2",
            "closing@2",
        ]
        assert (await compare(store, origin.id, twin.id)).first is None
        found = await compare(store, origin.id, fork.id)
        assert [(row.a, row.b) for row in found.boundaries] == [("shipping", "shipping"), (None, "closing")]


async def test_what_each_visit_spent_is_compared(stage: Stage) -> None:
    outside, money = Outside(), Money()
    desk = spending_of(outside, money)
    async with stage.app(desk) as app:
        runs = []
        for _ in range(2):
            authority = mp.Authority("bot", scopes={"charge"})
            handle = await app.start(desk, "o", authority=authority, budget={"usd": 50})
            await parked(handle, "approval")
            [asked] = await app.inspect.approvals("asked")
            await app.approve(asked.id, by="bob")
            await parked(handle, "signal")
            runs.append(handle.id)
        assert (await compare(app._need_engine().store, *runs)).first is None
    dearer = spending_of(outside, Money(charge=money.charge * 2))
    async with stage.app(dearer) as app:
        fork = await app.fork(
            runs[0], at="paying", authority=mp.Authority("bot", scopes={"charge"}), budget={"usd": 50}, **WHY
        )
        await parked(fork, "approval")
        [asked] = await app.inspect.approvals("asked")
        await app.approve(asked.id, by="bob")
        await parked(fork, "signal")
        found = await compare(app._need_engine().store, runs[0], fork.id)
    assert found.first == 'They part at boundary paying: A spent {"usd":"5"}, B spent {"usd":"10"}.'


@pytest.mark.sqlite("it changes the file behind its back")
async def test_a_record_that_does_not_verify_is_compared_with_nothing(stage: Stage) -> None:
    found = await two(stage, {"cents": 5}, {"cents": 5})
    stage.write("UPDATE mp_heads SET hash = zeroblob(32) WHERE run = 2")
    async with stage.app().client() as app:
        with pytest.raises(Damaged):
            await compare(app._need_engine().store, found.a, found.b)
