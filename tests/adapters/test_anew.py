"""Calls of a host whose ids do not survive a crash: a new id with the same arguments sends nothing again."""

import asyncio
from typing import Any

import pytest

import milepost as mp
from milepost.adapters.anew import Calls, Said, refused
from milepost.adapters.foreign import foreign
from milepost.adapters.threads import Threads
from milepost.errors import EpochLost, InvalidArguments
from tests.runtime.stage import Stage

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
mail = foreign("mail", SCHEMA)
look = foreign("look", SCHEMA, effect="read")
beep = foreign("beep", SCHEMA, repeatable=True)


class Sender:
    """Who sends: it counts, and answers or raises what it is told to."""

    def __init__(self, answer: Any = "sent") -> None:
        self.sent = 0
        self.answer = answer

    async def __call__(self, _call: mp.Call, _arguments: dict[str, Any]) -> Any:
        self.sent += 1
        await asyncio.sleep(0)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def calls(stage: Stage) -> Calls:
    return Calls(Threads(mp.App(stage.url, tools=[mail, look, beep])))


async def test_a_new_id_with_the_same_arguments_is_told_the_recorded_result(calls: Calls) -> None:
    """Requirement 53. Whoever has lost its transcript is told from the record."""
    send = Sender({"n": 1})

    first = await calls.told("s", "toolu_1", mail, {"text": "a"}, send)
    again = await calls.told("s", "toolu_1", mail, {"text": "a"}, send)
    anew = await calls.told("s", "toolu_2", mail, {"text": "a"}, send)
    other = await calls.told("s", "toolu_3", mail, {"text": "b"}, send)

    assert first == again == other == Said('{"n":1}')
    assert anew.text.endswith('as toolu_1, and it is done. Nothing was done now. The result of that call: {"n":1}')
    assert not anew.is_error
    assert send.sent == 2


async def test_an_unknown_outcome_is_no_error_and_stays_unknown_under_every_id(calls: Calls) -> None:
    """Requirement 11."""
    send = Sender(OSError("reset"))

    told = [await calls.told("s", id_, mail, {"text": "a"}, send) for id_ in ("toolu_1", "toolu_2", "toolu_1")]

    assert {one.is_error for one in told} == {False}
    assert all("may have happened" in one.text for one in told)
    assert send.sent == 1


async def test_what_certainly_did_not_happen_is_an_error_and_may_be_made_again_under_a_new_id(calls: Calls) -> None:
    send = Sender(mp.Rejected("no such person"))

    refusal = await calls.told("s", "toolu_1", mail, {"text": "a"}, send)
    send.answer = "sent"
    repeated = await calls.told("s", "toolu_2", mail, {"text": "a"}, send)

    assert refusal.is_error
    assert "certainly did not happen" in refusal.text
    assert repeated == Said("sent")


async def test_equal_calls_of_one_batch_are_one_call(calls: Calls) -> None:
    send = Sender()

    told = await asyncio.gather(*(calls.told("s", f"toolu_{n}", mail, {"text": "a"}, send) for n in range(5)))

    assert send.sent == 1
    assert all(one.text.endswith("sent") and not one.is_error for one in told)


@pytest.mark.parametrize("tool", [look, beep], ids=lambda tool: tool.name)
async def test_reads_and_repeatable_tools_begin_anew_under_a_new_id(tool: mp.Tool[..., Any], calls: Calls) -> None:
    send = Sender()

    for id_ in ("toolu_1", "toolu_2", None, None):
        assert await calls.told("s", id_, tool, {"text": "a"}, send) == Said("sent")

    assert send.sent == 4


async def test_without_an_id_equal_calls_are_one(calls: Calls) -> None:
    send = Sender()

    told = [await calls.told("s", None, mail, {"text": text}, send) for text in ("a", "a", "b")]

    assert [one.text for one in told] == ["sent"] * 3
    assert send.sent == 2


async def test_arguments_that_do_not_fit_are_an_error_that_the_model_can_mend(calls: Calls) -> None:
    told = await calls.told("s", "toolu_1", mail, {"txt": "a"}, Sender())

    assert told.is_error
    assert "text" in told.text


def test_an_error_after_which_nobody_knows_is_told_as_not_known() -> None:
    lost, wrong = refused(EpochLost("run-1", 2), mail), refused(InvalidArguments("mail", "no text"), mail)

    assert (lost.is_error, wrong.is_error) == (False, True)
    assert "It is not known whether mail happened" in lost.text
