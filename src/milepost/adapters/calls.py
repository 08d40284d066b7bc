"""What hosts of whole agents share: the call that is being made right now, and questions to a model.

A question to a model is a recorded read. It is known by what is asked, not by its place: a host that starts its loop
again from the first line asks the same question, and gets the recorded answer, as long as it asks in the same words.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec

import milepost as mp
from milepost.adapters.foreign import Send, foreign, through

MOMENT_S = 2.0  # how long a question that failed may have to wait before it is asked again
_QUESTION = {"type": "object", "properties": {"question": {"type": "string"}}, "required": ["question"]}
_CALL: ContextVar[mp.Call | None] = ContextVar("milepost_adapter_call", default=None)


def current_call() -> mp.Call:
    """Return the attempt that the host's tool is being called for: its `key` is what a provider drops duplicates by.

    Raises NoRun outside one.
    """
    call = _CALL.get()
    if call is None:
        raise mp.NoRun("current_call")
    return call


@contextmanager
def made(call: mp.Call) -> Iterator[None]:
    """Let `current_call` answer inside the block."""
    token = _CALL.set(call)
    try:
        yield
    finally:
        _CALL.reset(token)


def sending(work: Callable[[], Awaitable[Any]]) -> Send:
    """Return `work` as what sends a call, with the call to be had from `current_call` meanwhile."""

    async def send(call: mp.Call, _: dict[str, Any]) -> Any:
        with made(call):
            return await work()

    return send


def sending_sync(work: Callable[[], Any]) -> Send:
    """Return `work`, which blocks, as what sends a call: in a thread."""

    def send(call: mp.Call, _: dict[str, Any]) -> Any:
        with made(call):
            return work()

    return send


def numbered(id_: str, times: int) -> str:
    """Return the id of a call that a model has given `times` times by now: where it gives one again, it is another."""
    return id_ if times < 2 else f"{id_}#{times}"  # noqa: PLR2004  its second time


# ---------------------------------------------------------------- questions to a model


def asking(name: str, *, cost: mp.Cost | None = None, timeout: mp.Duration = "10m") -> mp.Tool[..., Any]:
    """Return the tool that a host's questions to its model are recorded as: a read, with what one costs at worst.

    The host retries in its own way, so what fails is raised to it at once; asked again, it is tried again.
    """
    retry = mp.Retry(100, first="10ms", most="1s")
    return foreign(name, _QUESTION, effect="read", cost=cost, timeout=timeout, retry=retry)


def digest_of(*said: Any) -> str:
    """Return the sha256, in hex, of what is asked: JSON values."""
    return hashlib.sha256(msgspec.json.encode(said, order="sorted")).hexdigest()


class Questions:
    """The questions that a host asks through one attachment. Asked once more, the same question is another one.

    A run of the host that ends otherwise than with its result is to be made again: what it asked is `forget`ten, so
    that it is asked in the same way once more, and answered from the record.
    """

    def __init__(self, run: mp.AttachedRun) -> None:
        self.run = run
        self._taken: dict[str, dict[int, str]] = {}

    async def answer(
        self, tool: mp.Tool[..., Any], question: str, ask: Callable[[], Awaitable[Any]], asker: str = ""
    ) -> Any:
        """Return the recorded answer to a question, or ask and record. `asker` is the host's own name of its run.

        Raises what `ask` raises, Parked where the question has to wait (a budget, a breaker), StepFailed.
        """
        taken = self._taken.setdefault(question, {})
        number = next(n for n in range(len(taken) + 1) if n not in taken)
        taken[number] = asker
        try:
            return await self._answer(tool, f"{tool.name}/{question[:16]}#{number + 1}", question, ask)
        except BaseException:
            taken.pop(number, None)  # it has no answer: asked again, it is the same question
            raise

    def forget(self, asker: str) -> None:
        """Let the questions of a run be asked in the same way again."""
        for taken in self._taken.values():
            for number in [number for number, of in taken.items() if of == asker]:
                del taken[number]

    async def _answer(self, tool: mp.Tool[..., Any], id_: str, question: str, ask: Callable[[], Awaitable[Any]]) -> Any:
        raised: list[Exception] = []

        async def asked() -> Any:
            try:
                return await ask()
            except Exception as error:
                raised.append(error)
                raise

        arguments = {"question": question}
        while True:
            with through(tool, sending(asked), arguments):
                outcome = await self.run.attempt(id_, tool, **arguments)
            if isinstance(outcome, mp.Confirmed):
                return outcome.value
            if raised:
                raise raised[-1]
            if isinstance(outcome, mp.Failed):
                raise mp.StepFailed(f"@{id_}", outcome.why)
            pause = (outcome.until - datetime.now(UTC)).total_seconds() if outcome.until else MOMENT_S
            if outcome.reason != "time" or pause >= MOMENT_S:
                raise mp.Parked(self.run.id, outcome)
            await asyncio.sleep(max(pause, 0.0) + 0.001)


def settle(tool: mp.Tool[..., Any], measured: Mapping[str, Decimal | int]) -> None:
    """Say what the current call really cost, where that was measured; the worst case stands for the rest."""
    if tool.fixed_cost:
        current_call().spent(**{unit: measured.get(unit, most) for unit, most in tool.fixed_cost.items()})
