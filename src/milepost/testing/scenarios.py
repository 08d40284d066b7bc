"""Ready-made scenarios: what goes wrong between a worker and the world, put to a user's own workflow in one line each.

  answer_lost    each answer in turn is lost, after what was asked for was done
  late_commit    each request in turn is held back, and lands after its worker is dead and the reconciler found nothing
  slow_owner     a worker freezes in each call, loses its lease, another one takes the run, and it wakes again
  long_outage    a worker dies in each call, and nobody starts another one for days

Each takes the options of `crash_everywhere` and returns the same report: two undisturbed runs are the measure, and each
point is tried in a fresh store and a fresh part of the outside world. Time passes in leaps, so an hour costs nothing.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable
from functools import partial
from typing import Any, TypeVar, Unpack

import msgspec

from milepost.core.duration import Duration, parse_ms
from milepost.core.lease import LEASE_MS, needed_until
from milepost.definitions.workflows import Workflow
from milepost.testing.crashing.everywhere import Options, tried
from milepost.testing.crashing.report import Report
from milepost.testing.crashing.tries import Scene, Try, Waiting
from milepost.testing.crashing.worker import Outsides
from milepost.testing.world import Account, Rules, Toxic, World

I = TypeVar("I")  # noqa: E741 - "input", as in the documentation
R = TypeVar("R")

LOST = (Toxic("reset", forward=True), Toxic("gateway", status=504, forward=True), Toxic("truncate"))
TAKES_OVER_AFTER = 12  # so many leaps tell that a worker waits for another one
LANDS_MOST_S = 30.0
WAKES_MOST_S = 30.0
MARGIN_MS = 5_000
LATE_BY_MS = 50
RETURNED = ": returned"


# ---------------------------------------------------------------- answers that are lost


def answer_lost(workflow: Workflow[I, R], input: I, world: Outsides[Any], /, **options: Unpack[Options]) -> Report:
    """Lose the answer to each call of a tool in turn, after it did all its work; the worker lives.

    The tool ends in a ConnectionResetError instead of its result. In the outside world of `milepost.testing.world` each
    exchange of a tool is broken on its way back as well: a reset, a 504 from nowhere, half an answer. What a tool makes
    of these errors is its own, and is tried with it.
    """

    def scenes(undisturbed: Try, points: tuple[str, ...]) -> Iterable[tuple[str, Scene]]:
        for point in calls_done(undisturbed, points):
            yield point.replace(RETURNED, ": its answer is lost"), partial(_loses, point=point)
        for place, what in enumerate(exchanges(undisturbed)):
            for toxic in LOST:
                yield f"{what}: {toxic.name}", partial(_broken, place=place, toxic=toxic)

    return tried("answer_lost", workflow, input, world, options, scenes)


def _loses(one: Try, point: str) -> Waiting:
    life = one.start(fuse=point, burn="lose")
    yield from one.lived(life)
    one.missed = life.burnt is None
    yield from _rest_of(one)


def _broken(one: Try, place: int, toxic: Toxic) -> Waiting:
    account: Account = one.place.outside
    account.obey(msgspec.structs.replace(account.rules, script=(*(Toxic(),) * place, toxic)))
    yield from one.lived(one.start())
    one.missed = toxic.name not in account.met()
    yield from _rest_of(one)


def _rest_of(one: Try) -> Waiting:
    """Go on where the life that was disturbed did not come to the end by itself."""
    if one.ended.how == "waits":
        yield from one.finish()


# ---------------------------------------------------------------- requests that land late


def late_commit(
    workflow: Workflow[I, R], input: I, world: World, /, *, after: Duration = "60s", **options: Unpack[Options]
) -> Report:
    """Hold each request in turn back, kill its worker, and let it land `after` that span, when it is least expected.

    The next worker asks its reconciler, which truthfully says that nothing happened. It may believe that as soon as
    `visible_within` has passed. So what must hold is that `visible_within` is longer than the longest that a request
    may be on its way; give that as `after`. Needs a `World`, whose proxies hold the requests.
    """
    late_ms = parse_ms(after)

    def scenes(undisturbed: Try, _: tuple[str, ...]) -> Iterable[tuple[str, Scene]]:
        for place, what in enumerate(exchanges(undisturbed)):
            yield f"{what}: lands {after} late", partial(_late, place=place, late_ms=late_ms)

    return tried("late_commit", workflow, input, _with_proxies(world), options, scenes)


def _late(one: Try, place: int, late_ms: int) -> Waiting:
    account: Account = one.place.outside
    account.obey(Rules(script=(*(Toxic(),) * place, Toxic("late", ms=late_ms))))
    life = one.start()
    while len(account.met()) <= place and life.running():
        yield
    if not life.running():
        one.missed = True
        one.ended = life.ended
        yield from _rest_of(one)
        return
    lands = Landing(account, account.clock.now() + late_ms + LATE_BY_MS)
    life.end()
    yield from one.still()
    one.advance = lands.advance
    one.before_a_person = lands.come
    yield from one.finish()
    yield from lands.come()


class Landing:
    """Knows when a request that is held back is due to land, and lets no time pass over that without it.

    Time is only moved while every run rests: so what arrives in the meantime is the request.
    """

    def __init__(self, account: Account, at: int) -> None:
        self._account = account
        self._at = at

    def advance(self, ms: int) -> None:
        """Move the clock; where the request lands on the way, wait there until it has."""
        account, now = self._account, self._account.clock.now()
        if now < self._at <= now + ms:
            before, most = len(account.requests()), time.monotonic() + LANDS_MOST_S
            account.advance(self._at - now)
            while len(account.requests()) == before and time.monotonic() < most:
                time.sleep(0.005)
            ms -= self._at - now
        account.advance(ms)

    def come(self) -> Waiting:
        """Let time pass until it has landed."""
        now = self._account.clock.now()
        if now < self._at:
            self.advance(self._at - now)
        yield


def _with_proxies(world: World) -> World:
    if not isinstance(world, World):
        raise TypeError(
            f"late_commit needs a milepost.testing.World, whose proxies hold requests back; {world!r} is none"
        )
    return world


# ---------------------------------------------------------------- a slow owner


def slow_owner(workflow: Workflow[I, R], input: I, world: Outsides[Any], /, **options: Unpack[Options]) -> Report:
    """Freeze a worker (SIGSTOP) at each place inside its tools; let another take the run; wake the first.

    The lease of the frozen worker lapses, so the run is taken from it, and its call is unknown: it may still act, and
    it does, as soon as it wakes. What must hold is that this comes to one effect. Both are real processes.
    """

    def scenes(undisturbed: Try, points: tuple[str, ...]) -> Iterable[tuple[str, Scene]]:
        tools = undisturbed.setting.tools.values()
        lapses_ms = LEASE_MS + max((needed_until(0, tool.timeout_ms) for tool in tools), default=0) + MARGIN_MS
        for point in inside_effects(undisturbed, points):
            yield point, partial(_frozen, point=point, lapses_ms=lapses_ms)

    return tried("slow_owner", workflow, input, world, options, scenes)


def _frozen(one: Try, point: str, lapses_ms: int) -> Waiting:
    slow = one.start(fuse=point, burn="freeze")
    while slow.running() and not slow.stopped:
        yield
    if not slow.running():
        one.missed = True
        one.ended = slow.ended
        yield from _rest_of(one)
        return
    one.place.clock.advance(lapses_ms)
    yield from one.lived(one.start(leaps=TAKES_OVER_AFTER))
    slow.send(signal.SIGCONT)
    most = time.monotonic() + WAKES_MOST_S
    while slow.running() and time.monotonic() < most:
        yield
    slow.end()  # what it was to tell, it has told
    yield from one.finish()


# ---------------------------------------------------------------- a long outage


def long_outage(
    workflow: Workflow[I, R],
    input: I,
    world: Outsides[Any],
    /,
    *,
    lasts: Duration = "3d",
    keys_last: Duration | None = None,
    **options: Unpack[Options],
) -> Report:
    """Kill a worker at each place inside its tools, and start the next one only after a long while.

    `keys_last` is how long the provider remembers an idempotency key, in a `World`: what must hold is that `key_ttl` is
    not longer. A world of your own has its own memory; the clock that moves is then Milepost's alone.
    """
    ms = parse_ms(lasts)
    keys_ms = None if keys_last is None else parse_ms(keys_last)

    def scenes(undisturbed: Try, points: tuple[str, ...]) -> Iterable[tuple[str, Scene]]:
        for point in inside_effects(undisturbed, points):
            yield point, partial(_away, point=point, ms=ms, keys_ms=keys_ms)

    return tried("long_outage", workflow, input, world, options, scenes)


def _away(one: Try, point: str, ms: int, keys_ms: int | None) -> Waiting:
    outside = one.place.outside
    if keys_ms is not None and isinstance(outside, Account):
        outside.obey(msgspec.structs.replace(outside.rules, knows_keys_ms=keys_ms))
    yield from one.killed(point)
    one.place.clock.advance(ms)
    yield from one.finish()


# ---------------------------------------------------------------- where a scenario plays


def inside_effects(undisturbed: Try, points: Iterable[str]) -> list[str]:
    """Return the points inside the code of tools that are not free reads and not part of the store's transaction."""
    tools = undisturbed.setting.tools
    acting = {name for name, tool in tools.items() if tool.costed or tool.effect not in {"read", "transactional"}}
    return [point for point in points if ": " in point and point.partition("#")[0] in acting]


def calls_done(undisturbed: Try, points: Iterable[str]) -> list[str]:
    """Return the points at which such a tool has done its work."""
    return [point for point in inside_effects(undisturbed, points) if point.endswith(RETURNED)]


def exchanges(undisturbed: Try) -> list[str]:
    """Return what was asked in the exchanges that a proxy can break, in order; none where the world has no proxies."""
    outside: Any = undisturbed.place.outside
    if not isinstance(outside, Account):
        return []
    passed = len(outside.met())
    return [f"exchange {place + 1}, {request.what}" for place, request in enumerate(outside.requests()[:passed])]
