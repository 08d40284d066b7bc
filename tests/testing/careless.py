"""Workflows with one mistake each, as it is made in good faith. What `crash_everywhere` says of them is the test."""

import asyncio
import random
import uuid
from collections import Counter

import milepost as mp
from tests.testing.books import Book, book

REMEMBERED: Counter[str] = Counter()  # what a process keeps to itself


@mp.tool(effect="read")
async def look(order: str) -> int:
    return 500


@mp.tool(effect="read")
def charge_as_read(call: mp.Call, order: str) -> str:
    book(call).write("charge_as_read", order=order)
    return "receipt"


@mp.tool(effect="keyed", key_ttl="24h")
async def charge_without_key(call: mp.Call, order: str) -> str:
    book(call).once("charge_without_key", "", order=order, nonce=str(call.attempt))
    return "receipt"


@mp.tool(effect="keyed", key_ttl="24h")
async def charge_with_own_key(call: mp.Call, order: str) -> str:
    book(call).once("charge_with_own_key", uuid.uuid4().hex, order=order)
    return "receipt"


@mp.tool(effect="keyed", key_ttl="24h")
async def charge_twice_known(call: mp.Call, order: str) -> str:
    book(call).write("charge_twice_known", call.key, order=order)  # this provider does not look at keys
    return "receipt"


@mp.tool(effect="keyed", key_ttl="24h")
async def charge_and_tell(call: mp.Call, order: str) -> str:
    book(call).write("telling", order=order)  # a second, hidden effect, without the key
    book(call).once("charge_and_tell", call.key, order=order)
    return "receipt"


@mp.tool(effect="read")
async def look_and_charge(call: mp.Call, order: str) -> int:
    book(call).write("charge", order=order, cents=1)  # what it changes stands under another tool's name
    return 500


@mp.tool(effect="read")
async def look_and_tell(call: mp.Call, order: str) -> int:
    book(call).write("audit", order=order)
    return 500


@mp.tool(effect="absolute")
async def publish_unconditionally(call: mp.Call, page: str) -> str:
    book(call).write("publish_unconditionally", call.key, page=page)
    return page


@mp.tool(effect="queryable", visible_within="0s")
async def ship_unseen(call: mp.Call, parcel: str) -> str:
    book(call).write("ship_unseen", call.key, parcel=parcel)
    return parcel


@ship_unseen.reconcile
async def _looks_in_the_wrong_place(parcel: str) -> mp.Finding[str]:
    return mp.did_not_happen()


@mp.tool(effect="queryable", visible_within="0s")
async def ship_believed(call: mp.Call, parcel: str) -> str:
    book(call).write("ship_believed", call.key, parcel=parcel)
    return parcel


@ship_believed.reconcile
async def _finds_any(parcel: str) -> mp.Finding[str]:
    return mp.happened(parcel)


@mp.tool(effect="queryable", visible_within="0s")
async def ship_unsettled(call: mp.Call, parcel: str) -> str:
    book(call).write("ship_unsettled", call.key, parcel=parcel)
    return parcel


@ship_unsettled.reconcile
async def _always_fails(parcel: str) -> mp.Finding[str]:
    msg = "the password has expired"
    raise PermissionError(msg)


@mp.tool(effect="keyed", key_ttl="24h")
async def charge(call: mp.Call, order: str, cents: int) -> str:
    book(call).once("charge", call.key, order=order, cents=cents)
    return "receipt"


@mp.tool
async def hang(call: mp.Call, order: str) -> str:
    await asyncio.Event().wait()
    return order


@mp.workflow(version="1", tools=[look, charge_as_read])
async def charges_as_read(run: mp.Run, order: str) -> str:
    await look(order)
    return await charge_as_read(order)


@mp.workflow(version="1", tools=[charge_without_key])
async def forgets_the_key(run: mp.Run, order: str) -> str:
    return await charge_without_key(order)


@mp.workflow(version="1", tools=[charge_with_own_key])
async def makes_its_own_key(run: mp.Run, order: str) -> str:
    return await charge_with_own_key(order)


@mp.workflow(version="1", tools=[charge_twice_known])
async def trusts_the_provider(run: mp.Run, order: str) -> str:
    return await charge_twice_known(order)


@mp.workflow(version="1", tools=[charge_and_tell])
async def tells_beside(run: mp.Run, order: str) -> str:
    return await charge_and_tell(order)


@mp.workflow(version="1", tools=[look_and_charge, charge])
async def reads_under_another_name(run: mp.Run, order: str) -> str:
    return await charge(order, await look_and_charge(order))


@mp.workflow(version="1", tools=[look_and_tell])
async def reads_and_tells(run: mp.Run, order: str) -> int:
    return await look_and_tell(order)


@mp.workflow(version="1", tools=[publish_unconditionally])
async def publishes_unconditionally(run: mp.Run, page: str) -> str:
    return await publish_unconditionally(page)


@mp.workflow(version="1", tools=[ship_unseen])
async def looks_in_the_wrong_place(run: mp.Run, parcel: str) -> str:
    return await ship_unseen(parcel)


@mp.workflow(version="1", tools=[ship_believed])
async def believes_too_much(run: mp.Run, parcel: str) -> str:
    return await ship_believed(parcel)


@mp.workflow(version="1", tools=[ship_unsettled])
async def never_knows(run: mp.Run, parcel: str) -> str:
    return await ship_unsettled(parcel)


@mp.workflow(version="1", tools=[charge])
async def draws_its_own_chance(run: mp.Run, order: str) -> str:
    return await charge(order, random.randrange(10**9))


@mp.workflow(version="1", tools=[look, charge])
async def remembers_in_memory(run: mp.Run, order: str) -> int:
    REMEMBERED[order] += 1
    await look(order)
    await run.sleep("1h")  # the run rests, and is entered again: in the same process, or in the next one
    return REMEMBERED[order]


@mp.workflow(version="1", tools=[look])
async def returns_chance(run: mp.Run, order: str) -> str:
    return f"{await look(order)} {random.random()}"


@mp.workflow(version="1", tools=[look])
async def waits_for_a_word(run: mp.Run, order: str) -> str:
    await look(order)
    return await run.receive("word", str)


@mp.workflow(version="1", tools=[hang])
async def hangs(run: mp.Run, order: str) -> str:
    return await hang(order)


def writes_between_steps(outside: Book) -> mp.Workflow[str, str]:
    """Return a workflow whose segment acts on the world itself."""

    @mp.workflow(version="1", tools=[charge])
    async def writes(run: mp.Run, order: str) -> str:
        outside.write("log", order=order)
        return await charge(order, 500)

    return writes
