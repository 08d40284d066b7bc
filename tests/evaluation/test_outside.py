"""The outside world of the sweep offers what the table of classes says, no more; its ledger tells what happened."""

import json
from typing import Any

import pytest

from evaluation import classes
from evaluation.acting import TOOLS
from evaluation.outside import Outside, RefusedError
from evaluation.task import GroundTruthCall
from tests.evaluation import tiny_outside
from tests.evaluation.tiny_outside import LOOK, MAIL, ORDER, PASSWORD, PAY, Tiny


@pytest.fixture
def outside() -> Outside:
    outside = Outside(Tiny())
    outside.answer({"do": "open", "account": "ann", "task": "tiny/all_classes"})
    return outside


def send(outside: Outside, call: GroundTruthCall, reference: str, based_on: int = 1) -> Any:
    request = {"do": "call", "account": "ann", "function": call.function, "args": call.args}
    return outside.answer({**request, "reference": reference, "based_on": based_on})


def find(outside: Outside, call: GroundTruthCall, reference: str) -> Any:
    return outside.answer({"do": "find", "account": "ann", "function": call.function, "reference": reference})


def applied(outside: Outside) -> list[str]:
    return [line["reference"] for line in outside.answer({"do": "statement", "account": "ann"})["ledger"]]


def test_a_read_leaves_no_line_in_the_ledger(outside: Outside) -> None:
    assert send(outside, LOOK, "") == 100
    assert applied(outside) == []


def test_a_keyed_call_that_comes_twice_is_applied_once_and_answered_alike(outside: Outside) -> None:
    assert send(outside, ORDER, "ref-1") == send(outside, ORDER, "ref-1")
    assert applied(outside) == ["ref-1"]


def test_an_absolute_call_that_comes_twice_is_refused_the_second_time(outside: Outside) -> None:
    send(outside, PASSWORD, "ref-1", based_on=1)

    with pytest.raises(RefusedError, match="at version 2, not 1"):
        send(outside, PASSWORD, "ref-1", based_on=1)

    assert find(outside, PASSWORD, "ref-1") == [{"message": "update_password done"}]
    assert applied(outside) == ["ref-1"]


@pytest.mark.parametrize("call", [PAY, MAIL], ids=lambda call: classes.of(call.function))
def test_what_is_neither_keyed_nor_absolute_happens_as_often_as_it_comes(
    outside: Outside, call: GroundTruthCall
) -> None:
    send(outside, call, "ref-1")
    send(outside, call, "ref-1")

    assert applied(outside) == ["ref-1", "ref-1"]


def test_nobody_can_be_asked_about_what_is_irreversible(outside: Outside) -> None:
    send(outside, MAIL, "ref-1")

    with pytest.raises(RefusedError, match="nobody can be asked about it"):
        find(outside, MAIL, "ref-1")


def test_what_cannot_be_executed_changes_nothing(outside: Outside) -> None:
    with pytest.raises(RefusedError, match="no function share_file"):
        send(outside, tiny_outside.MISTAKE, "ref-1")

    assert applied(outside) == []


def test_a_task_ends_without_us_as_its_calls_say_and_says_so_where_they_cannot() -> None:
    able, _, impossible = Outside(Tiny()).answer({"do": "cases"})

    assert able["useful"]
    assert not able["broken"]
    assert json.loads(able["environment"])["sent"] == [MAIL.args]
    assert "no function share_file" in impossible["broken"]


def test_every_tool_of_the_table_has_a_reason_and_is_made_of_its_class() -> None:
    assert {name: tool.effect for name, tool in TOOLS.items()} == {
        name: classed.effect for name, classed in classes.CLASSES.items()
    }
    assert all(classed.why for classed in classes.CLASSES.values())


def test_a_tool_that_is_not_in_the_table_has_no_class() -> None:
    with pytest.raises(KeyError):
        classes.of("launch_rocket")
