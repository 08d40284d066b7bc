"""The measured work: tools that do nothing, so that what is timed is Milepost and the disk."""

import asyncio
from dataclasses import dataclass, replace
from decimal import Decimal

import milepost as mp

SCOPE = "bench:act"
AUTHORITY = mp.Authority("bench", scopes={SCOPE})
BUDGET = {"usd": Decimal(1_000_000)}
STALLED = "stalled"


@dataclass(frozen=True)
class Stretch:
    """So many steps left, so many of them in each segment; `name` keeps business identities of runs apart."""

    name: str
    left: int
    per_segment: int

    @property
    def now(self) -> range:
        """The numbers of the steps of this segment."""
        return range(self.left, max(0, self.left - self.per_segment), -1)

    @property
    def rest(self) -> "Stretch":
        """What is left after this segment."""
        return replace(self, left=max(0, self.left - self.per_segment))


@mp.tool(effect="keyed", key_ttl="24h")
async def act(number: int) -> int:
    """An effect."""
    return number


@mp.tool(effect="keyed", key_ttl="24h", scopes=[SCOPE], once="order")
async def act_all(order: str, number: int) -> int:
    """An effect with everything that is checked at the edge: a key, a scope, a business identity, a cost."""
    del order
    return number


@act_all.cost
def _(order: str, number: int) -> mp.Cost:
    del order, number
    return {"usd": Decimal("0.01")}


@mp.tool(effect="read")
async def look(number: int) -> int:
    """A free read, as a coroutine."""
    return number


@mp.tool(effect="read")
def look_in_thread(number: int) -> int:
    """A free read, as a plain function (it runs in a thread)."""
    return number


@mp.tool(effect="keyed", key_ttl="24h")
async def stall() -> None:
    """An effect that says that it was sent, and gets no answer."""
    print(STALLED, flush=True)
    await asyncio.Event().wait()


effects = mp.Workflow("effects", version="1", input=Stretch, result=str, tools=[act])
effects_all = mp.Workflow("effects-all", version="1", input=Stretch, result=str, tools=[act_all])
reads = mp.Workflow("reads", version="1", input=Stretch, result=str, tools=[look])
reads_in_threads = mp.Workflow("reads-in-threads", version="1", input=Stretch, result=str, tools=[look_in_thread])
history = mp.Workflow("history", version="1", input=Stretch, result=str, tools=[act, look, stall])
waiting = mp.Workflow("waiting", version="1", input=str, result=str)
sleeping = mp.Workflow("sleeping", version="1", input=str, result=str)

WORKFLOWS = (effects, effects_all, reads, reads_in_threads, history, waiting, sleeping)


@effects.segment
async def act_on(run: mp.Run, stretch: Stretch) -> mp.Next[str]:
    """Effects, one after the other."""
    del run
    for number in stretch.now:
        await act(number)
    return mp.go(act_on, stretch.rest) if stretch.rest.left else mp.done(stretch.name)


@effects_all.segment
async def act_on_all(run: mp.Run, stretch: Stretch) -> mp.Next[str]:
    """Fully checked effects, one after the other."""
    del run
    for number in stretch.now:
        await act_all(f"{stretch.name}-{number}", number)
    return mp.go(act_on_all, stretch.rest) if stretch.rest.left else mp.done(stretch.name)


@reads.segment
async def look_on(run: mp.Run, stretch: Stretch) -> mp.Next[str]:
    """Free reads, one after the other."""
    del run
    for number in stretch.now:
        await look(number)
    return mp.go(look_on, stretch.rest) if stretch.rest.left else mp.done(stretch.name)


@reads_in_threads.segment
async def look_on_in_threads(run: mp.Run, stretch: Stretch) -> mp.Next[str]:
    """Free reads by plain functions, one after the other."""
    del run
    for number in stretch.now:
        await look_in_thread(number)
    return mp.go(look_on_in_threads, stretch.rest) if stretch.rest.left else mp.done(stretch.name)


@history.segment
async def make_history(run: mp.Run, stretch: Stretch) -> mp.Next[str]:
    """Nine reads and an effect in each segment of ten; then on to a last segment, which never ends."""
    del run
    for at, number in enumerate(stretch.now):
        await (act(number) if at == 0 else look(number))
    return mp.go(make_history, stretch.rest) if stretch.rest.left else mp.go(stall_after, stretch)


@history.segment
async def stall_after(run: mp.Run, stretch: Stretch) -> mp.Next[str]:
    """One more step, and then an effect under which the process can be killed."""
    del run
    await look(0)
    await stall()
    return mp.done(stretch.name)


@sleeping.segment
async def sleep(run: mp.Run, name: str) -> mp.Next[str]:
    """Sleep for a month."""
    await run.sleep("30d")
    return mp.done(name)


@waiting.segment
async def wait(run: mp.Run, name: str) -> mp.Next[str]:
    """Wait for a word."""
    await run.receive("word", str)
    return mp.done(name)


def open_app(store: str) -> mp.App:
    """An app over the SQLite file `store`, with all the measured work."""
    return mp.App(f"sqlite:///{store}", workflows=list(WORKFLOWS))
