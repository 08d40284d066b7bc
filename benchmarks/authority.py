"""What the checks at the edge cost: a call with everything declared, against the same call with nothing declared.

Both calls are made in one process, in turns of a few each, by attached runs, one call at a time: so nothing is shared
between calls that a run alone would have to pay for itself. All effects are planned before and wait: those with
everything for an approval, which is then given, and those with nothing for a switch, which is then lifted. What is
timed is what comes after that, from the gate to the recorded outcome: a person's answer is not counted, and what is
done with it is. On some machines a file that is made first is synced with less work than one that is made after it, so
all is opened anew as often as there are kinds, each of them first once.

*Everything* is: listing, a scope, a cost within the run's budget and within a ceiling that its tenant's runs share, an
approval to consume, a policy of twelve rules of which four fit and two have a condition, and a freeze and an open
breaker, of other tools, that stand in the store. The difference is the cost of all checks together; it is set against
bare commits that take their turns between the calls. What calls have only noted is written to its tables within their
time, once in as many entries as a turn has: sooner than it would be otherwise, which is for their disadvantage.

Throughput is decided where many runs commit together, so the same difference is taken once more for a hundred runs
that each make their calls at once, in one process. There the process is busy and the disk is not, so the difference is
what the checks take of the rate: the target judges it. A call that is alone waits for its two commits, and finds little
in the processor's caches after each: the same instructions take twice as long, while nobody else wants the processor.
Of that one *deciding* is told as well, what of it asks whether the call may go: the time in `gates.gate` (authority,
policy, approval, the run's own budget) and, inside the transaction, in the look at switches, breakers and the shared
budget. The rest is money that is reserved and settled, an approval that is used up, and what of both is written.
"""

import argparse
import asyncio
import contextlib
import math
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import milepost as mp
from benchmarks import baseline
from benchmarks.child import ROOT, TIMEOUT, command
from benchmarks.comparing import Bench, Row, Target, judged
from benchmarks.timing import Slice, Stopwatch
from milepost.runtime import gates
from milepost.stores.pooling import Pools
from milepost.stores.sqlite import writing
from milepost.stores.stopping import Stops

SCOPE = "bench:act"
AUTHORITY = mp.Authority("bench", scopes={SCOPE}, tenant="acme")
BUDGET = {"usd": Decimal(1_000_000)}
PLENTY = {"usd": Decimal(1_000_000_000)}
CALLS = 20
"""Calls of one run: a turn."""

RUNS = 100
EACH = 2
"""Runs that call together, and calls of each."""

TURNS = 100
TOGETHER = 24
"""Turns of single runs, and of runs together."""

COUNTED = 40
"""Calls that are traced."""

TRIES = 6_000
WHY, PERSON = "for the benchmark", "somebody"
BEGIN, END = "counting begins", "counting ends"
SYNCS = (" fdatasync(", " fsync(")
MOST = Target("most", 0.15, "of fresh")

POLICY = """
version = "1"

[[rule]]
name = "small amounts"
verdict = "allow"
tool = "act_checked"
when = "args.cents <= 5000 && budget.left.usd >= 1.0"

[[rule]]
name = "what has the scope"
verdict = "allow"
scopes = "bench:*"

[[rule]]
name = "never so much"
verdict = "deny"
tool = "act_*"
when = "args.cents > 1000000"

[[rule]]
name = "no tenant on the list"
verdict = "deny"
tenant = ["evil", "worse"]

[[rule]]
name = "what has a key"
verdict = "allow"
class = "keyed"
""" + "".join(
    f'\n[[rule]]\nname = "another tool {n}"\nverdict = "ask"\ntool = "other_{n}"\nwhen = "args.cents > {n}"\n'
    for n in range(7)
)


@mp.tool(effect="keyed", key_ttl="24h")
async def act(order: str, cents: int) -> int:
    """An effect with nothing declared."""
    del order
    return cents


@mp.tool(effect="keyed", key_ttl="24h", approval=True)
async def act_approved(order: str, cents: int) -> int:
    """An effect that a person approves."""
    del order
    return cents


@mp.tool(effect="keyed", key_ttl="24h", cost={"usd": Decimal("0.01")})
async def act_paid(order: str, cents: int) -> int:
    """An effect that costs."""
    del order
    return cents


@mp.tool(effect="keyed", key_ttl="24h", scopes=[SCOPE], approval=True)
async def act_checked(order: str, cents: int) -> int:
    """An effect with everything declared that is checked."""
    del order
    return cents


@act_checked.cost
def _(order: str, cents: int) -> mp.Cost:
    del order
    return {"usd": Decimal(cents) / 100}


@mp.tool(effect="read", retry=mp.Retry(1))
async def fail() -> None:
    """A provider that fails."""
    why = "down"
    raise ConnectionError(why)


TOOLS = (act, act_approved, act_paid, act_checked, fail)


@dataclass(frozen=True)
class Kind:
    """What is declared: the tool that is called, and whether the store has a policy, ceilings and things that stand."""

    name: str
    tool: mp.Tool[[str, int], int]
    policy: bool = False
    ceilings: bool = False
    stands: bool = False


NOTHING = Kind("nothing", act)
APPROVAL = Kind("an approval", act_approved)
BUDGETS = Kind("a budget, its own and shared", act_paid, ceilings=True)
EVERYTHING = Kind("everything", act_checked, policy=True, ceilings=True, stands=True)
KINDS = {kind.tool.name: kind for kind in (NOTHING, APPROVAL, BUDGETS, EVERYTHING)}


def unmarked() -> None:
    """Mark no beginning, and no end."""


@dataclass
class Side:
    """One kind's app, open, and how many of its runs there were."""

    app: mp.App
    kind: Kind
    runs: int = 0

    async def turn(
        self, calls: int, *, started: Callable[[], None] = unmarked, ended: Callable[[], None] = unmarked
    ) -> Slice:
        """Plan the calls of a fresh run, let them go, and time how they are made: between `started` and `ended`."""
        async with contextlib.AsyncExitStack() as stack:
            (run,) = await self._planned(stack, 1, calls)
            started()
            watch = Stopwatch()
            await self._make(run, calls)
            done = watch.slice(calls)
            ended()
            await run.finish()
        return done

    async def together(self, runs: int, calls: int) -> Slice:
        """Plan so many calls of each of these fresh runs, let them go, and time how all runs make theirs at once."""
        async with contextlib.AsyncExitStack() as stack:
            planned = await self._planned(stack, runs, calls)
            watch = Stopwatch()
            await asyncio.gather(*(self._make(run, calls) for run in planned))
            done = watch.slice(runs * calls)
            await asyncio.gather(*(run.finish() for run in planned))
        return done

    async def _planned(self, stack: contextlib.AsyncExitStack, runs: int, calls: int) -> list[mp.AttachedRun]:
        tool = self.kind.tool
        asks = tool.approval is not False
        if not asks:
            await self.app._operator().freeze(f"tool:{tool.name}", by=PERSON, why=WHY)  # noqa: SLF001
        keys = [f"run-{self.runs + number}" for number in range(runs)]
        self.runs += runs
        held = [self.app.attach(key=key, authority=AUTHORITY, budget=BUDGET) for key in keys]
        attached = [await stack.enter_async_context(one) for one in held]
        await asyncio.gather(*(self._plan(run, calls) for run in attached))
        if asks:
            await self._approve(runs * calls)
        else:
            await self.app._operator().thaw(f"tool:{tool.name}", by=PERSON, why=WHY)  # noqa: SLF001
        return attached

    async def _plan(self, run: mp.AttachedRun, calls: int) -> None:
        for number in range(calls):
            _expect(await run.attempt(f"call-{number}", self.kind.tool, f"order-{number}", 1), mp.Waiting)

    async def _make(self, run: mp.AttachedRun, calls: int) -> None:
        for number in range(calls):
            _expect(await run.attempt(f"call-{number}", self.kind.tool, f"order-{number}", 1), mp.Confirmed)

    async def _approve(self, calls: int) -> None:
        asked = await self.app.inspect.approvals("asked")
        for one in asked:
            await self.app.approve(one.id, by=PERSON)
        for _ in range(TRIES):
            if len(await self.app.inspect.approvals("approved")) == calls:
                return
            await asyncio.sleep(0.01)
        raise RuntimeError("the answers were not taken in")


def _expect(found: object, kind: type[object]) -> None:
    if type(found) is not kind:
        raise RuntimeError(f"a call of the benchmark is not {kind.__name__}, it is {found}")


@contextlib.asynccontextmanager
async def opened(folder: Path, kind: Kind) -> AsyncIterator[Side]:
    """An app over a fresh store, with what its kind declares set up."""
    rules = folder / f"{kind.tool.name}.toml"
    rules.write_text(POLICY)
    app = mp.App(
        f"sqlite:///{folder / kind.tool.name}.db",
        tools=TOOLS,
        policy=str(rules) if kind.policy else None,
        breaker=mp.Breaker(1, cooldown="24h", most="24h"),
        lease="1h",  # no renewal comes between the calls that are counted
    )
    async with app:
        operator = app._operator()  # noqa: SLF001
        if kind.ceilings:
            await operator.set_ceiling("tenant:acme", PLENTY, per="day", by=PERSON, why=WHY)
        if kind.stands:
            await operator.freeze("tool:another", by=PERSON, why=WHY)
            async with app.attach(key="failing", authority=AUTHORITY) as run:
                await run.attempt("fails", fail)
        yield Side(app, kind)


# ---------------------------------------------------------------- what it takes


def rows(bench: Bench) -> Iterator[Row]:
    """The cost of all checks and of some of them, in bare commits; and the syncs that they ask for."""
    turns = max(3, min(TURNS, bench.amount(TURNS * bench.rounds, least=1) // bench.rounds))
    with tempfile.TemporaryDirectory(dir=bench.folder) as folder:
        taken = asyncio.run(_turns(Path(folder), turns))
    yield from compared(taken)
    with tempfile.TemporaryDirectory(dir=bench.folder) as folder:
        decided = asyncio.run(_deciding(Path(folder), turns))
    yield deciding(decided, statistics.median(_each(taken.fresh, wall=True)))
    turns = max(3, min(TOGETHER, bench.amount(TOGETHER * bench.rounds, least=1) // bench.rounds))
    with tempfile.TemporaryDirectory(dir=bench.folder) as folder:
        taken = asyncio.run(_turns(Path(folder), turns, runs=bench.amount(RUNS, least=5)))
    yield from compared(taken, together=bench.amount(RUNS, least=5))
    yield from _synced(bench)


@dataclass(frozen=True)
class Taken:
    """What each turn took: by kind, and of bare commits on a fresh log and on an extended one."""

    calls: Mapping[str, list[Slice]]
    fresh: list[Slice]
    extended: list[Slice]


def compared(taken: Taken, *, together: int = 0) -> Iterator[Row]:
    """What is declared costs, per call: the median of (declared - not declared), turn by turn, and in bare commits.

    `together` is how many runs made their calls at once, 0 where it is one; of these *everything* is judged.
    """
    how = f"{together} runs together, " if together else ""
    fresh, extended = (statistics.median(_each(turns, wall=True)) for turns in (taken.fresh, taken.extended))
    for kind in (EVERYTHING, APPROVAL, BUDGETS):
        for wall in (False, True):
            pairs = zip(taken.calls[kind.name], taken.calls[NOTHING.name], strict=True)
            cost = statistics.median(
                with_it - without for with_it, without in (_each(pair, wall=wall) for pair in pairs)
            )
            judged_by = MOST if together and kind is EVERYTHING and not wall else None
            yield Row(
                f"checks of {kind.name}, {how}{'wall' if wall else 'CPU'} (declared - not declared)",
                f"{cost:.0f} µs a call",
                fresh=cost / fresh,
                extended=cost / extended,
                cpu_us=None if wall else cost,
                target=judged_by,
                met=None if judged_by is None else judged_by.met(cost / fresh),
            )


def deciding(decided: Sequence[float], fresh: float) -> Row:
    """What it takes to decide whether a call may go, in microseconds by turn, set against a bare commit."""
    cost = statistics.median(decided)
    return Row(f"checks of {EVERYTHING.name}: deciding", f"{cost:.0f} µs a call", fresh=cost / fresh)


def _each(turns: Sequence[Slice], *, wall: bool) -> list[float]:
    """Microseconds of one call, or commit, turn by turn."""
    return [(turn.seconds if wall else turn.cpu) / turn.count * 1e6 for turn in turns]


async def _turns(folder: Path, turns: int, *, runs: int = 1) -> Taken:
    """Let all kinds and both baselines take turns, opened as often as there are kinds, each of them first once."""
    kinds = list(KINDS.values())
    taken = Taken({kind.name: [] for kind in kinds}, [], [])
    for first in range(len(kinds)):
        place = folder / str(first)
        place.mkdir()
        await _in_order(taken, place, kinds[first:] + kinds[:first], math.ceil(turns / len(kinds)), runs)
    return taken


async def _in_order(taken: Taken, folder: Path, kinds: Sequence[Kind], turns: int, runs: int) -> None:
    """Open the kinds in this order, and add what their turns take; the first of each warms up, and does not count."""
    async with contextlib.AsyncExitStack() as stack:
        bare = [
            stack.enter_context(baseline.opened(folder / f"bare-{extended}.db", extended=extended))
            for extended in (False, True)
        ]
        sides = [await stack.enter_async_context(opened(folder, kind)) for kind in kinds]
        stack.enter_context(catching_up(2 * (CALLS if runs == 1 else runs * EACH)))
        for number in range(turns + 1):
            for side in sides:
                done = await (side.turn(CALLS) if runs == 1 else side.together(runs, EACH))
                if number:
                    taken.calls[side.kind.name].append(done)
            for made, commit in zip((taken.fresh, taken.extended), bare, strict=True):
                made.append(commit(CALLS))


@contextlib.contextmanager
def catching_up(entries: int) -> Iterator[None]:
    """Let tables catch up with notes after as many entries as a turn has, where that is sooner than they would."""
    before, writing.BEHIND_MOST = writing.BEHIND_MOST, min(entries, writing.BEHIND_MOST)
    try:
        yield
    finally:
        writing.BEHIND_MOST = before


async def _deciding(folder: Path, turns: int) -> list[float]:
    """Return what deciding took in microseconds a call, turn by turn; the first one warms up, and does not count."""
    clock = Inside()
    with clock.around(gates, "gate"), clock.around(Stops, "concern"), clock.around(Pools, "reserve"):
        async with opened(folder, EVERYTHING) as side:
            taken: list[float] = []
            for _ in range(turns + 1):
                await side.turn(CALLS, started=clock.reset, ended=lambda: taken.append(clock.microseconds / CALLS))
    return taken[1:]


class Inside:
    """A clock that runs inside some functions."""

    def __init__(self) -> None:
        self.nanoseconds = 0

    def reset(self) -> None:
        """Begin anew."""
        self.nanoseconds = 0

    @property
    def microseconds(self) -> float:
        """How long it ran."""
        return self.nanoseconds / 1_000

    @contextlib.contextmanager
    def around(self, owner: Any, name: str) -> Iterator[None]:
        """Let it run whenever this function does."""
        plain = getattr(owner, name)

        def timed(*args: Any) -> Any:
            began = time.perf_counter_ns()
            try:
                return plain(*args)
            finally:
                self.nanoseconds += time.perf_counter_ns() - began

        setattr(owner, name, timed)
        try:
            yield
        finally:
            setattr(owner, name, plain)


# ---------------------------------------------------------------- no transaction of their own


def _synced(bench: Bench) -> Iterator[Row]:
    """Syncs of calls with something declared, in those of as many calls with nothing declared."""
    names = {kind: f"fdatasync calls with {kind.name} against with nothing (strace)" for kind in KINDS.values()}
    if shutil.which("strace") is None:
        yield from (Row(name, "strace is not installed") for kind, name in names.items() if kind is not NOTHING)
        return
    with tempfile.TemporaryDirectory(dir=bench.folder) as folder:
        plain = _syncs(Path(folder), NOTHING)
        for kind in (APPROVAL, BUDGETS, EVERYTHING):
            found = _syncs(Path(folder), kind)
            ratio = found / plain
            figure = f"{found} against {plain} in {COUNTED} calls ({ratio:.2f} times)"
            yield judged(names[kind], figure, ratio, Target("most", 1, "times"))


def _syncs(folder: Path, kind: Kind) -> int:
    """How often the kernel was asked to sync between the marks that the traced process writes."""
    report, place = folder / f"{kind.tool.name}.strace", folder / kind.tool.name
    place.mkdir()
    traced = ["strace", "-f", "-e", "trace=fdatasync,fsync,write", "-s", "64", "-o", str(report)]
    child = command("benchmarks.authority", kind.tool.name, place)
    subprocess.run([*traced, *child], cwd=ROOT, check=True, timeout=TIMEOUT, capture_output=True)
    lines = report.read_text(errors="replace").splitlines()
    (begin,), (end,) = ([at for at, line in enumerate(lines) if mark in line] for mark in (BEGIN, END))
    return sum(any(sync in line for sync in SYNCS) for line in lines[begin:end])


async def _traced(kind: Kind, folder: Path) -> None:
    async with opened(folder, kind) as side:
        await side.turn(COUNTED, started=partial(print, BEGIN, flush=True), ended=partial(print, END, flush=True))


def main() -> None:
    """The traced process: calls of one kind, and a line before and after them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("folder", type=Path)
    chosen = parser.parse_args()
    asyncio.run(_traced(KINDS[chosen.kind], chosen.folder))


if __name__ == "__main__":
    main()
