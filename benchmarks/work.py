"""The measured work: tools that do nothing, so that what is timed is Milepost and the disk."""

from dataclasses import dataclass, replace
from decimal import Decimal

import milepost as mp

SCOPE = "bench:act"
AUTHORITY = mp.Authority("bench", scopes={SCOPE})
BUDGET = {"usd": Decimal(1_000_000)}


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


effects = mp.Workflow("effects", version="1", input=Stretch, result=str, tools=[act])
effects_all = mp.Workflow("effects-all", version="1", input=Stretch, result=str, tools=[act_all])
reads = mp.Workflow("reads", version="1", input=Stretch, result=str, tools=[look])
reads_in_threads = mp.Workflow("reads-in-threads", version="1", input=Stretch, result=str, tools=[look_in_thread])
history = mp.Workflow("history", version="1", input=Stretch, result=str, tools=[act, look])
waiting = mp.Workflow("waiting", version="1", input=str, result=str)

WORKFLOWS = (effects, effects_all, reads, reads_in_threads, history, waiting)


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
    """Nine reads and an effect in each segment of ten; then on to a last segment that waits."""
    del run
    for at, number in enumerate(stretch.now):
        await (act(number) if at == 0 else look(number))
    return mp.go(make_history, stretch.rest) if stretch.rest.left else mp.go(wait_after, stretch)


@history.segment
async def wait_after(run: mp.Run, stretch: Stretch) -> mp.Next[str]:
    """One more step, and then the run waits for a person's word."""
    await look(0)
    await run.receive("word", str)
    return mp.done(stretch.name)


@waiting.segment
async def wait(run: mp.Run, name: str) -> mp.Next[str]:
    """Wait for a word."""
    await run.receive("word", str)
    return mp.done(name)


def open_app(store: str) -> mp.App:
    """An app over the SQLite file `store`, with all the measured work."""
    return mp.App(f"sqlite:///{store}", workflows=list(WORKFLOWS))
