"""One scenario for every adapter's tests: what the host's model asks for, a world that counts, and a real kill.

Two calls, `reserve` (keyed) and `refund` (irreversible), in one batch. `refund` waits until `reserve` is done and on
record; then it is applied outside and, where the test said so, the process is killed before it can answer (SIGKILL,
from inside: it hits exactly there). What truly happened stands in a ledger outside of the store (`tests.crash.world`: a
line is one system call, so it is there whole or not at all). Then the host is started again.

A batch of three, `note`, `publish` and `note`, where a person has to approve `publish`. Each `note` is applied, waits
until the objection to `publish` is on record, lets the loop turn many times, and then writes `noted`: a sibling that is
cancelled by an exception leaves `note` without `noted`.

How to use it. Write the host as a program, `tests/adapters/NAME/host.py`, which builds its agent on the tools below and
prints one line of JSON (`say`); `model` notes each call of the model:

    app = outside.app(tools)         # the store lies in the folder too; set before a tool is called
    ...                              # outside.TWO, or outside.THREE where sys.argv says so, as the model's calls

and in the test:

    HOST = "tests.adapters.NAME.host"
    outside.run(HOST, tmp_path, "two", kill=True)         # it asserts that the kill hit there
    outside.run(HOST, tmp_path, "two").said               # parked: it is not known, and said so
    outside.applied(tmp_path) == ["reserve", "refund"]    # and not sent again
    asyncio.run(outside.settle(tmp_path))                 # a person looks, and says
    outside.run(HOST, tmp_path, "two").said               # goes on with the result

The tools, each in the forms that hosts need: `TOOLS` are Milepost tools by name. `HANDLERS` are the host's own
functions by name, plain `async def` with typed parameters, to be decorated as the framework wants it and then declared
with `SCHEMAS[name]` and `DECLARED[name]` (what `foreign` takes); `HANDLERS_SYNC` are the same as `def`. `plain_host`
and `test_outside` are an example of all of it.

Without Milepost (no `app`) there is no record to wait for: `stored` says how the host finds out that its framework has
stored the result of `reserve`, where it stores any before the batch is done; and `publish` objects as a guard of one's
own would, by an exception. `benchmarks/adapters` compares the two.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import milepost as mp
from milepost.operations.inspection import Inspector
from milepost.stores.api import Query
from tests.crash.killing import environment
from tests.crash.world import CRASH_AT, World, here, point
from tests.runtime.stage import WITHIN_S, until

KILL = "refund:applied"
TURNS = 100
SECONDS_MOST = 120

TWO: list[tuple[str, str, dict[str, Any]]] = [
    ("call_1", "reserve", {"order": "o-1"}),
    ("call_2", "refund", {"order": "o-1", "cents": 500}),
]
THREE: list[tuple[str, str, dict[str, Any]]] = [
    ("call_1", "note", {"text": "one"}),
    ("call_2", "publish", {"text": "two"}),
    ("call_3", "note", {"text": "three"}),
]
RESULTS = {"reserve": "reserved", "refund": "refunded", "note": "noted", "publish": "published"}

_open: list[mp.App] = []
_stored: list[Callable[[], Awaitable[bool]]] = []
_world = World()


# ---------------------------------------------------------------- in the host's process


def app(tools: Sequence[mp.Tool[..., Any]], **options: Any) -> mp.App:
    """Return the app of this process, on a store in its folder."""
    _open[:] = [mp.App(url(here()), tools=tools, **options)]
    return _open[0]


def recording() -> bool:
    """Whether this process has an app."""
    return bool(_open)


def stored(asks: Callable[[], Awaitable[bool]]) -> None:
    """Let `refund` wait for this, in a host without Milepost."""
    _stored[:] = [asks]


def model() -> None:
    """Note that the model was called."""
    _world.apply("model", "", 1, {})


def say(what: Any) -> None:
    """Print what the host has to say, as one line of JSON."""
    sys.stdout.write(json.dumps(what) + "\n")


async def reserve(order: str) -> str:
    """Reserve the money of an order."""
    _world.apply("reserve", "", 1, {"order": order})
    return RESULTS["reserve"]


async def refund(order: str, cents: int) -> str:
    """Refund an order. It can be neither repeated nor looked up."""
    await reserved()
    _world.apply("refund", "", 1, {"order": order, "cents": cents})
    point("refund", "applied")
    return RESULTS["refund"]


async def note(text: str) -> str:
    """Write a note, slowly."""
    _world.apply("note", "", 1, {"text": text})
    await _until(_objected, "the objection is on record")
    for _ in range(TURNS):
        await asyncio.sleep(0)
    _world.apply("noted", "", 1, {"text": text})
    return RESULTS["note"]


async def publish(text: str) -> str:
    """Publish a text."""
    if not _open:
        raise PermissionError("a person has to approve it first")
    _world.apply("publish", "", 1, {"text": text})
    return RESULTS["publish"]


HANDLERS: dict[str, Callable[..., Awaitable[str]]] = {
    "reserve": reserve,
    "refund": refund,
    "note": note,
    "publish": publish,
}


def _blocking(handler: Callable[..., Awaitable[str]]) -> Callable[..., str]:
    """Return a handler for a thread: what it waits for, it asks of the store through the loop in which that is open."""

    def blocks(**arguments: Any) -> str:
        loop = _open[0].loop
        assert loop is not None
        return asyncio.run_coroutine_threadsafe(handler(**arguments), loop).result(WITHIN_S)  # type: ignore[arg-type]

    blocks.__name__, blocks.__doc__ = handler.__name__, handler.__doc__
    return blocks


HANDLERS_SYNC: dict[str, Callable[..., str]] = {name: _blocking(handler) for name, handler in HANDLERS.items()}
DECLARED: dict[str, dict[str, Any]] = {
    "reserve": {"effect": "keyed", "key_ttl": "1h"},
    "refund": {},
    "note": {},
    "publish": {"approval": True},
}
TOOLS: dict[str, mp.Tool[..., Any]] = {name: mp.tool(**DECLARED[name])(HANDLERS[name]) for name in HANDLERS}
SCHEMAS: dict[str, dict[str, Any]] = {name: {**tool.parameters} for name, tool in TOOLS.items()}


async def reserved() -> None:
    """Wait until `reserve` is on record, in Milepost's or in the framework's own."""
    for asks in [] if _open else _stored:
        await until(asks, "reserve is stored")
    await _until(_reserved, "reserve is on record")


async def _reserved(inspect: Inspector) -> bool:
    runs = await inspect.runs(Query())
    effects = [effect for run in runs for effect in await inspect.effects(run.id)]
    return any((plain(effect.tool), effect.outcome) == ("reserve", "confirmed") for effect in effects)


async def _objected(inspect: Inspector) -> bool:
    return bool(await inspect.approvals())


async def _until(holds: Callable[[Inspector], Awaitable[bool]], saying: str) -> None:
    """Wait until something is on record; a host without Milepost has no record to wait for."""
    if _open:
        await until(lambda: holds(_open[0].inspect), saying)


# ---------------------------------------------------------------- in the test


@dataclass(frozen=True)
class Ended:
    """How a host ended: what it printed, as JSON where it is, and its code (minus the signal that killed it)."""

    code: int
    said: Any


def plain(tool: str) -> str:
    """Return the name of a tool without that of the server that offers it."""
    return tool.removeprefix("bank_")


def url(folder: Path) -> str:
    """Return the URL of the store in a folder."""
    return f"sqlite:///{folder / 'store.db'}"


def run(module: str, folder: Path, *arguments: str, kill: bool = False, warnings: Sequence[str] = ("error",)) -> Ended:
    """Run a host on a folder until it ends. With `kill` it must die as `refund` was applied, and of nothing else.

    `warnings` are filters as `python -W` takes them: a peer's own warning is let pass by one more, as narrow as can be.
    """
    surroundings = environment(folder, **({CRASH_AT: KILL} if kill else {}))
    ended = subprocess.run(
        [sys.executable, *(f"-W{one}" for one in warnings), "-m", module, *arguments],
        env=surroundings,
        capture_output=True,
        timeout=SECONDS_MOST,
        check=False,
    )
    out, err = ended.stdout.decode(), ended.stderr.decode()
    if kill:
        assert ended.returncode == -9, f"it was not killed, but ended with {ended.returncode}: {out}{err}"
        assert applied(folder)[-1] == "refund", "it was killed somewhere else"
        return Ended(ended.returncode, None)
    assert ended.returncode == 0, f"{out}{err}"
    return Ended(ended.returncode, json.loads(out.splitlines()[-1]) if out.strip() else None)


def applied(folder: Path) -> list[str]:
    """Return what was really applied, in order; calls of the model are no effects."""
    return [line.tool for line in World(folder).lines() if line.tool != "model"]


def model_calls(folder: Path) -> int:
    """Return how often the model was called, in all lives together."""
    return sum(line.tool == "model" for line in World(folder).lines())


async def outcomes(folder: Path) -> dict[str, str]:
    """Return the outcome of each call on record, by the host's id of it and its tool: `call_1 reserve`."""
    looking = mp.App(url(folder))
    async with looking.client():
        found = [
            effect for run in await looking.inspect.runs(Query()) for effect in await looking.inspect.effects(run.id)
        ]
    return {f"{effect.path.removeprefix('@')} {effect.tool}": effect.outcome for effect in found}


async def settle(folder: Path) -> None:
    """Be the person who looks into the ledger, and says of each unknown effect whether it happened."""
    deciding, world = mp.App(url(folder), tools=list(TOOLS.values())), World(folder)
    async with deciding.client():
        for run_ in await deciding.inspect.runs(Query()):
            for effect in await deciding.inspect.effects(run_.id):
                if effect.outcome == "unknown":
                    found = world.find(plain(effect.tool), **(effect.args or {}))
                    answer = mp.happened(RESULTS[plain(effect.tool)]) if found else mp.did_not_happen()
                    await deciding.resolve(run_.id, effect.path, answer, by="ann", why="looked into the ledger")


async def approve(folder: Path) -> None:
    """Be the person who says yes to whatever waits for an approval."""
    deciding = mp.App(url(folder), tools=list(TOOLS.values()))
    async with deciding.client():
        for asked in await deciding.inspect.approvals():
            await deciding.approve(asked.id, by="ann")
