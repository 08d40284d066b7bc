"""A worker that may die: what the forked process of one life does, from its fork to its end.

It starts the run, or finds it, and drives it until it has ended or nothing moves it any more without somebody outside.
Then it writes down how that went. It says yes to every approval itself. If its fuse burns, it never comes so far.
"""

from __future__ import annotations

import asyncio
import random
import sys
import traceback
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from milepost.app import App
from milepost.core.authority import Authority
from milepost.definitions.tools import Cost, Tool
from milepost.definitions.workflows import Workflow
from milepost.errors import MilepostError, RunBlocked, RunEnded, UnknownApproval, WrongStatus
from milepost.testing.check import Applied
from milepost.testing.crashing import tooling
from milepost.testing.crashing.points import Fuse
from milepost.testing.crashing.watching import Leaps, WatchedApp
from milepost.testing.world import Account

KEY = "crash"
BY = "milepost.testing"
PERSON = "a person of milepost.testing"  # nobody approves what they asked for themselves
LEAPS_MOST = 40
Resources = Mapping[type[Any], Callable[[], AbstractAsyncContextManager[Any]]]
How = Literal["done", "failed", "cancelled", "killed", "blocked", "waits", "worn out", "broke"]


class Outside(Protocol):
    """One place in the outside world, to which nothing was done yet, with its own books."""

    def applied(self) -> Sequence[Applied]:
        """Return what was really applied here so far, oldest first."""
        ...


A_co = TypeVar("A_co", bound=Outside, covariant=True)


class Outsides(Protocol[A_co]):
    """An outside world that gives each try a place of its own. `milepost.testing.World` is one."""

    def account(self, name: str, /) -> A_co:
        """Return the place of this name; the first time, nothing has been done to it."""
        ...


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What all tries have in common."""

    workflow: Workflow[Any, Any]
    input: Any
    also: tuple[Workflow[Any, Any], ...] = ()
    resources: Callable[[Any], Resources] | None = None
    secrets: Callable[[str], str] | None = None
    authority: Authority | None = None
    budget: Cost | None = None
    signals: Mapping[str, object] = field(default_factory=dict)
    seed: int = 0

    @property
    def tools(self) -> dict[str, Tool[..., Any]]:
        """The tools of all workflows, by name."""
        return {tool.name: tool for flow in (self.workflow, *self.also) for tool in flow.tools.values()}

    @property
    def acts_for(self) -> Authority:
        """The authority of the run: the one that was given, or one that may do all that the tools ask for."""
        scopes = {scope for tool in self.tools.values() for scope in tool.scopes}
        return self.authority or Authority(BY, scopes=scopes)


@dataclass(frozen=True)
class Place:
    """Where one try plays: its folder, and its part of the outside world."""

    folder: Path
    outside: Any

    @property
    def url(self) -> str:
        """The URL of the store."""
        return f"sqlite:///{self.folder}/store.db"

    @property
    def clock(self) -> Account:
        """Whoever moves the clock that worker and outside share; where the outside has none, one beside the store."""
        return self.outside if isinstance(self.outside, Account) else Account(self.folder, "clock", 0, 0)


class Ended(msgspec.Struct, frozen=True):
    """How a life ended that nobody took: how the run stands, with its result or its reason, and the points passed."""

    how: How
    result: msgspec.Raw = msgspec.Raw(b"null")
    code: str = ""
    why: str = ""
    points: tuple[str, ...] = ()


@dataclass(frozen=True)
class Leap:
    """How the clock is set forward, by milliseconds, and how often in a row at most while a run comes no further."""

    advance: Callable[[int], None]
    most: int


def live(setting: Setting, place: Place, fuse: Fuse, about: str, leap: Leap) -> Ended:
    """Be a worker, in a process that exists for nothing else.

    `about` names the life: chance is seeded by it, so that it is the same when the try is repeated, and another one in
    the next life, as it is in a process that was started again.
    """
    random.seed(f"{setting.seed} {about}")
    tooling.instrument(setting.tools.values(), fuse, type(place.outside).__module__)
    watch = Leaps(place.clock.clock.now, leap.advance, leap.most)
    try:
        ended = asyncio.run(_drive(setting, place, fuse, watch))
    except Exception:  # noqa: BLE001  whatever stopped it is what this life came to
        ended = Ended("broke", why=traceback.format_exc(limit=-6))
    sys.settrace(None)
    return msgspec.structs.replace(ended, points=tuple(fuse.points))


async def _drive(setting: Setting, place: Place, fuse: Fuse, watch: Leaps) -> Ended:
    async with _app(setting, place, fuse, watch) as app:
        handle = await app.start(
            setting.workflow, setting.input, key=KEY, authority=setting.acts_for, budget=setting.budget
        )
        for name, value in setting.signals.items():
            with suppress(WrongStatus):  # it has ended in an earlier life
                await app.send(handle.id, name, value, id=name)
        ended = asyncio.ensure_future(handle.result())
        try:
            while not ended.done():
                resting = asyncio.ensure_future(watch.rested.wait())
                await asyncio.wait([ended, resting], return_when=asyncio.FIRST_COMPLETED)
                resting.cancel()
                if ended.done():
                    break
                watch.rested.clear()
                if watch.worn_out:
                    return Ended("worn out", why=await _waits_for(app, handle.id))
                if await _approve(app):
                    continue
                watch.leap(serve=False)
                if watch.rested.is_set() and (await app.inspect.detail(handle.id)).row.status == "parked":
                    return Ended("waits", why=await _waits_for(app, handle.id))
            return _ending(setting, ended)
        finally:
            ended.cancel()


def _ending(setting: Setting, ended: asyncio.Future[Any]) -> Ended:
    try:
        return Ended("done", msgspec.Raw(setting.workflow.result.write(ended.result())))
    except RunBlocked as error:
        return Ended("blocked", code=error.reason, why=error.why)
    except RunEnded as error:
        how: Any = error.status
        return Ended(how, code=error.code, why=error.why)
    except MilepostError as error:
        return Ended("broke", code=error.code, why=str(error))


async def _approve(app: App) -> bool:
    """Say yes to whatever asks; return whether anything did."""
    asked = await app.inspect.approvals("asked")
    answered = 0
    for approval in asked:
        with suppress(UnknownApproval):  # answered before, and not taken yet
            await app.approve(approval.id, by=PERSON)
            answered += 1
    return bool(answered)


async def _waits_for(app: App, run_id: str) -> str:
    """Say what a run waits for, and what each effect waits for that nobody can settle."""
    row = (await app.inspect.detail(run_id)).row
    parts = [f"{row.reason or row.status}: {row.ask or row.why or 'nothing moves it'}"]
    parts += [f"{effect.path}: {effect.person}" for effect in await app.inspect.open_effects() if effect.person]
    return "; ".join(parts)


def _app(setting: Setting, place: Place, fuse: Fuse, watch: Leaps) -> App:
    outside = place.outside

    @asynccontextmanager
    async def itself() -> AsyncIterator[Any]:
        yield outside

    own = setting.resources(outside) if setting.resources is not None else {}
    return WatchedApp(
        place.url,
        fuse,
        watch,
        workflows=(setting.workflow, *setting.also),
        resources={type(outside): partial(itself), **own},
        secrets=setting.secrets,
        clock=place.clock.clock,
    )
