"""The outside world of the model: it applies what it is sent, late if a test says so, and shows it later still.

How a call goes is a `Way`: how long the code takes before its bytes leave, what comes back, how long the request is
under way, and how long what was applied stays invisible to whoever asks. The world is honest about what the tools
declare: what is under way lands and shows within `visible_within` of the moment at which its bytes left. Within that it
may lie: asked too early, it says that nothing happened.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import milepost as mp
from milepost.testing.check import Applied
from tests.faults.simulated import Threads, Time

VISIBLE_MS = 2_000
KEY_TTL_MS = 40_000

Answer = Literal["answered", "lost", "hangs", "not_sent", "rejected"]


@dataclass(frozen=True)
class Way:
    """How one call of a tool goes. Spans are in milliseconds; `lands` and `shows` together stay below the bound.

    What is answered has landed; what is lost or hangs may land later.
    """

    answer: Answer = "answered"
    thinks: int = 0
    lands: int = 0
    shows: int = 0
    answers: int = 0


SMOOTH = Way()


@dataclass
class Sent:
    """A request whose bytes left. `lands_at` is when it is applied, `shows_at` when whoever asks can see it."""

    tool: str
    key: str
    attempt: int
    args: dict[str, Any]
    lands_at: float
    shows_at: float
    landed: bool = False


@dataclass
class Town:
    """Everybody outside. `on_send` hears of each attempt before its bytes leave."""

    time: Time
    ways: deque[Way] = field(default_factory=deque)
    sent: list[Sent] = field(default_factory=list)
    ledger: list[Applied] = field(default_factory=list)
    endings: dict[tuple[str, int], str] = field(default_factory=dict)
    begun: dict[str, list["Port"]] = field(default_factory=dict)
    ports: list["Port"] = field(default_factory=list)
    answers: int = 0
    on_send: Callable[[str, str, int], None] | None = None

    def way(self) -> Way:
        return self.ways.popleft() if self.ways else SMOOTH

    # ------------------------------------------------------------ what is applied

    def settle(self) -> None:
        """Let what has arrived by now be applied, in the order of arrival."""
        now = self.time.now()
        for sent in sorted(
            (one for one in self.sent if not one.landed and one.lands_at <= now), key=lambda one: one.lands_at
        ):
            sent.landed = True
            if not self._refused(sent):
                self.ledger.append(Applied(sent.tool, sent.key, sent.attempt, int(sent.lands_at), sent.args))

    def _refused(self, sent: Sent) -> bool:
        same = [line for line in self.ledger if (line.tool, line.key) == (sent.tool, sent.key)]
        if sent.tool == "charge":
            return any(sent.lands_at < line.at + KEY_TTL_MS for line in same)
        if sent.tool == "publish":
            return any(
                line.tool == "publish" and (line.args or {})["page"] == sent.args["page"] for line in self.ledger
            )
        return False

    def visible(self, tool: str, args: dict[str, Any]) -> int:
        """Return how many effects with these arguments can be seen now."""
        self.settle()
        now = self.time.now()
        shown = {(one.key, one.attempt) for one in self.sent if one.shows_at <= now}
        return sum((line.key, line.attempt) in shown for line in self.ledger if (line.tool, line.args) == (tool, args))

    def truth(self, tool: str, key: str) -> Literal["happened", "did_not_happen", "open"]:
        """Return what a careful person finds out who knows that nothing is under way any more, or that something is."""
        self.settle()
        if any((line.tool, line.key) == (tool, key) for line in self.ledger):
            return "happened"
        under_way = any((one.tool, one.key) == (tool, key) and not one.landed for one in self.sent)
        at_work = any(port.alive for port in self.begun.get(key, [])) or any(
            port.alive and port.threads is not None and port.threads.waiting for port in self.ports
        )
        return "open" if under_way or at_work else "did_not_happen"


class Port:
    """One process's way to the town: what a dead process would still send does not leave."""

    def __init__(self, town: Town) -> None:
        self.town = town
        self.alive = True
        self.threads: Threads | None = None
        town.ports.append(self)

    def begin(self, tool: str, call: mp.Call) -> Way:
        """Note that an attempt's code has begun; nothing of it has left."""
        if self.town.on_send is not None and self.alive:
            self.town.on_send(tool, call.key, call.attempt)
        self.town.begun.setdefault(call.key, []).append(self)
        return self.town.way()

    def end(self, call: mp.Call, how: str) -> None:
        """Note how an attempt's code ended."""
        self.town.begun[call.key].remove(self)
        if self.alive:
            self.town.endings[call.key, call.attempt] = how

    async def call(self, tool: str, call: mp.Call, args: dict[str, Any]) -> None:
        """Go through an attempt. Raises NotSent, Rejected or ConnectionError, as its way says."""
        way = self.begin(tool, call)
        how = "cancelled"
        try:
            await asyncio.sleep(way.thinks / 1000)
            how = way.answer
            self.leave(way, tool, call, args)
            how = "cancelled"
            await asyncio.sleep(3_600 if way.answer == "hangs" else way.answers / 1000)
            how = way.answer
        finally:
            self.end(call, how)
        self.come_back(way)

    def leave(self, way: Way, tool: str, call: mp.Call, args: dict[str, Any]) -> None:
        """Let the bytes leave, or not."""
        if way.answer == "not_sent":
            raise mp.NotSent("the line is dead")
        if way.answer == "rejected":
            raise mp.Rejected("the form is wrong")
        if self.alive:
            lands = self.town.time.now() + (0 if way.answer == "answered" else way.lands)
            self.town.sent.append(Sent(tool, call.key, call.attempt, args, lands, lands + way.shows))
            self.town.settle()

    @staticmethod
    def come_back(way: Way) -> None:
        """Bring the answer, or lose it."""
        if way.answer == "lost":
            raise ConnectionError("the line broke")


# ---------------------------------------------------------------- the tools, one of every class


def found(call: mp.Call, tool: str, args: dict[str, Any]) -> mp.Finding[str]:
    count = call.resource(Port).town.visible(tool, args)
    if count > 1:
        return mp.conflict(f"{count} of {args}")
    return mp.happened("it is there") if count else mp.did_not_happen()


@mp.tool(effect="read")
async def look(case: str) -> str:
    return f"{case} looks fine"


@mp.tool(effect="read", cost={"tokens": 1}, timeout="3s")
async def ask(call: mp.Call, case: str) -> str:
    port = call.resource(Port)
    port.town.answers += 1
    answer = f"answer {port.town.answers}"
    await port.call("ask", call, {"case": case})
    return answer


@mp.tool(effect="keyed", key_ttl=f"{KEY_TTL_MS}ms", visible_within=f"{VISIBLE_MS}ms", scopes=["pay"], timeout="3s")
async def charge(call: mp.Call, order: str) -> str:
    await call.resource(Port).call("charge", call, {"order": order})
    return "charged"


@charge.reconcile
async def _charged(call: mp.Call, order: str) -> mp.Finding[str]:
    return found(call, "charge", {"order": order})


@mp.tool(effect="absolute", visible_within=f"{VISIBLE_MS}ms", timeout="3s")
async def publish(call: mp.Call, page: str) -> str:
    port = call.resource(Port)
    port.town.settle()
    if any(line.tool == "publish" and line.args == {"page": page} for line in port.town.ledger):
        raise mp.Rejected("412 Precondition Failed")
    await port.call("publish", call, {"page": page})
    return "published"


@publish.reconcile
async def _published(call: mp.Call, page: str) -> mp.Finding[str]:
    return found(call, "publish", {"page": page})


@mp.tool(effect="queryable", visible_within=f"{VISIBLE_MS}ms", timeout="3s")
async def ship(call: mp.Call, parcel: str) -> str:
    await call.resource(Port).call("ship", call, {"parcel": parcel})
    return "shipped"


@ship.reconcile
async def _shipped(call: mp.Call, parcel: str) -> mp.Finding[str]:
    return found(call, "ship", {"parcel": parcel})


@mp.tool(effect="queryable", visible_within=f"{VISIBLE_MS}ms", timeout="3s")
def stamp(call: mp.Call, paper: str) -> str:
    """Run in a thread: it takes as long as it takes, and nobody can cancel it."""
    port = call.resource(Port)
    way = port.begin("stamp", call)
    way = replace(way, answer="answered") if way.answer == "hangs" else way  # it ends: how late is drawn elsewhere
    try:
        port.leave(way, "stamp", call, {"paper": paper})
        port.come_back(way)
    finally:
        port.end(call, way.answer)
    return "stamped"


@stamp.reconcile
async def _stamped(call: mp.Call, paper: str) -> mp.Finding[str]:
    return found(call, "stamp", {"paper": paper})


@mp.tool(effect="transactional")
def enter(tx: mp.Tx, text: str) -> str:
    tx.execute("CREATE TABLE IF NOT EXISTS book (text TEXT)")
    tx.execute("INSERT INTO book VALUES (?)", (text,))
    return "entered"


@mp.tool(approval=True, timeout="3s")
async def mail(call: mp.Call, to: str) -> str:
    await call.resource(Port).call("mail", call, {"to": to})
    return "mailed"


@mp.tool(timeout="3s")
async def phone(call: mp.Call, whom: str) -> str:
    await call.resource(Port).call("phone", call, {"whom": whom})
    return "phoned"


TOOLS: dict[str, Any] = {tool.name: tool for tool in (look, ask, charge, publish, ship, stamp, enter, mail, phone)}
SENDING = ("ask", "charge", "publish", "ship", "stamp", "enter", "mail", "phone")
round_ = mp.Workflow("round", version="1", input=list[list[str]], result=list, tools=list(TOOLS.values()))


async def one(tool: str, case: str) -> str:
    """Call a tool; a failure that is proven is an answer like another."""
    try:
        return str(await TOOLS[tool](case))
    except mp.StepFailed as failed:
        return f"failed: {failed.why}"


@round_.segment
async def first(run: mp.Run, groups: list[list[str]]) -> mp.Next[Any]:
    """Ask which way to go, then go through all groups but the last: the tools of a group at the same time."""
    case = str(run.uuid())
    answer = await one("ask", case)
    done = [await look(case)]
    for number, group in enumerate(groups[:-1]):
        calls = (one(tool, f"{case}, {answer}, {number}.{place}") for place, tool in enumerate(group))
        done.extend(await run.gather(*calls))
    return mp.go(last, [case, answer, done, groups[-1]])


@round_.segment
async def last(run: mp.Run, state: list[Any]) -> mp.Next[Any]:
    case, answer, done, group = state
    for place, tool in enumerate(group):
        done.append(await one(tool, f"{case}, {answer}, last.{place}"))
    return mp.done(done)
