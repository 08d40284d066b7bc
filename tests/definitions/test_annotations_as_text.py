"""Every annotation of this module is text, and some name types that only a function knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

import milepost.definitions.call as mp
from milepost.definitions.call import Call, Finding, Tx, did_not_happen
from milepost.definitions.run import Run
from milepost.definitions.tools import tool
from milepost.definitions.workflows import Next, Workflow, done, workflow
from milepost.errors import InvalidDeclaration

if TYPE_CHECKING:
    from decimal import Decimal


@dataclass
class Receipt:
    order: str


def test_the_call_is_recognised_by_any_of_its_names() -> None:
    @tool
    async def one(call: Call, order: str) -> Receipt:
        return Receipt(order)

    @tool
    async def two(call: mp.Call, order: str) -> Receipt:
        return Receipt(order)

    @tool(effect="transactional")
    def three(tx: Tx, order: str) -> Receipt:
        return Receipt(order)

    assert (one.takes, two.takes, three.takes) == ("call", "call", "tx")
    assert one.result.kind is Receipt


def test_types_of_the_function_around_are_found() -> None:
    @dataclass
    class Local:
        number: int

    @tool(effect="queryable")
    async def pay(call: Call, what: Local) -> Local:
        return what

    @pay.reconcile
    async def look(call: Call, what: Local) -> Finding[Local]:
        return did_not_happen()

    flow = Workflow("flow", version="1", input=Local, result=Local)

    @flow.segment
    async def first(run: Run, state: Local) -> Next[Local]:
        return done(state)

    @workflow(version="1")
    async def single(run: Run, given: Local) -> Local:
        return given

    assert pay.result.kind is Local
    assert pay.arguments.bind((Local(3),), {}).value("what") == Local(3)
    assert pay.reconciler is not None
    assert pay.reconciler.takes_call
    assert first.state.kind is Local
    assert (single.input.kind, single.result.kind) == (Local, Local)


def test_a_name_that_does_not_exist_at_run_time_does_not_hide_the_call() -> None:
    @tool
    def reads(call: mp.Call, order: str) -> None: ...

    def unresolved(call: mp.Call, amount: Decimal) -> Any:
        raise NotImplementedError

    assert reads.takes == "call"
    with pytest.raises(InvalidDeclaration, match=r"parameter amount of unresolved: the annotation 'Decimal'"):
        tool(unresolved)


def test_a_call_whose_own_name_cannot_be_resolved_is_recognised_by_its_text() -> None:
    def outer() -> Any:
        import milepost.definitions.call as inner  # noqa: PLC0415

        async def pay(call: inner.Call, order: str) -> str:
            return order

        return pay

    assert tool(outer()).takes == "call"


def test_an_unresolved_state_or_result_is_refused_by_name() -> None:
    flow = Workflow("flow", version="1", input=int, result=int)

    async def first(run: Run, state: Decimal) -> Next[int]:
        raise NotImplementedError

    async def single(run: Run, given: int) -> Decimal:
        raise NotImplementedError

    with pytest.raises(InvalidDeclaration, match="state of segment first of flow: the annotation 'Decimal'"):
        flow.segment(first)
    with pytest.raises(InvalidDeclaration, match="result of single: the annotation 'Decimal'"):
        workflow(version="1")(single)
