"""Batches that the writer sends, and that land later: the loop goes on meanwhile."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from milepost.errors import StoreBusy, StoreFailed
from milepost.runtime.writer import HALF_LEAST, IN_A_ROW, QUEUE_MAX
from milepost.stores.api import Append, Operation
from tests.runtime.disks import Disk, Far, Refusals, append, writing


async def test_a_batch_that_is_sent_alone_is_under_way_before_the_loop_turns() -> None:
    writer = writing(disk := Far())
    writer.put(append(b"0"), Refusals().append)

    for turn in range(1, 2 * IN_A_ROW):
        future = writer.durable(append(b"1"), alone=True)
        assert (future.done(), len(disk.under_way), writer.turn) == (False, 1, turn)
        disk.land()
        assert future.done()

    assert [len(batch) for batch in disk.batches] == [2, *[1] * (2 * IN_A_ROW - 2)]
    assert writer.commits == 2 * IN_A_ROW - 1
    await writer.close()


async def test_what_is_asked_for_while_a_batch_is_under_way_waits_until_it_has_landed() -> None:
    writer = writing(disk := Far())
    first = writer.durable(append(b"1"), alone=True)

    behind = [writer.durable(append(b"2"), alone=True), writer.durable(append(b"3"))]
    await asyncio.sleep(0.01)

    assert (disk.sizes, disk.batches, [one.done() for one in behind]) == ([1], [], [False, False])
    disk.land()
    assert await first == 0
    await asyncio.sleep(0.01)
    assert disk.sizes == [2]
    disk.land()
    assert [await one for one in behind] == [0, 1]
    assert [len(batch) for batch in disk.batches] == [1, 2]
    await writer.close()


async def test_a_batch_that_was_not_written_on_its_way_is_tried_again_before_all_others() -> None:
    writer = writing(disk := Far())
    disk.writes.clear()
    first = writer.durable(append(b"1"), alone=True)
    turn = writer.turn
    disk.land(StoreBusy("locked"))

    behind = writer.durable(append(b"2"), alone=True)
    await asyncio.sleep(0.01)

    assert (writer.turn, disk.under_way, disk.batches) == (turn, [], [])
    disk.writes.set()
    assert await first == 0
    await asyncio.sleep(0.01)
    disk.land()
    assert await behind == 0
    assert [batch[0].entries for batch in disk.batches if isinstance(batch[0], Append)] == [[b"1"], [b"2"]]
    await writer.close()


@pytest.mark.parametrize("error", [StoreFailed("who knows"), ValueError("who knows")])
async def test_a_batch_that_failed_on_its_way_fails_the_store(error: Exception) -> None:
    writer = writing(disk := Far())
    first = writer.durable(append(b"1"), alone=True)
    behind = writer.durable(append(b"2"), alone=True)

    disk.land(error)

    for future in (first, behind):
        with pytest.raises(StoreFailed, match="who knows"):
            await future
    assert writer.failed is not None
    await writer.close()


async def test_a_writer_is_closed_when_what_is_under_way_has_landed() -> None:
    writer = writing(disk := Far())
    future = writer.durable(append(b"1"), alone=True)
    closing = asyncio.create_task(writer.close())
    await asyncio.sleep(0.01)
    assert not closing.done()

    disk.land()

    await asyncio.wait_for(closing, 1)
    assert await future == 0


async def test_of_many_who_wait_half_are_sent_and_the_others_have_their_turns_meanwhile() -> None:
    writer = writing(disk := Far())
    many = 2 * HALF_LEAST
    first = [writer.durable(append(b"1")) for _ in range(many)]
    await asyncio.sleep(0.01)
    assert disk.sizes == [many]

    disk.land()
    sizes, again = [], []
    for _ in range(many):
        again.append(writer.durable(append(b"2")))
        sizes.append(disk.sizes)

    assert sizes == [*[[]] * (HALF_LEAST - 1), *[[HALF_LEAST]] * (HALF_LEAST + 1)]
    disk.land()
    assert disk.sizes == [HALF_LEAST]
    assert [one.done() for one in again] == [*[True] * HALF_LEAST, *[False] * HALF_LEAST]
    disk.land()
    assert await asyncio.gather(*first) == [*range(many)]
    assert await asyncio.gather(*again) == [*range(HALF_LEAST)] * 2
    await writer.close()


async def test_of_few_who_wait_all_are_sent_together_when_all_had_their_turns() -> None:
    writer = writing(disk := Far())
    few = 2 * HALF_LEAST - 1
    for _ in range(2):
        futures = [writer.durable(append(b"1")) for _ in range(few)]
        assert disk.sizes == []
        await asyncio.sleep(0.01)
        assert disk.sizes == [few]
        disk.land()
        assert await asyncio.gather(*futures) == [*range(few)]
    await writer.close()


async def test_where_less_come_than_were_expected_nobody_waits_for_the_others() -> None:
    writer = writing(disk := Far())
    many = 2 * HALF_LEAST
    first = [writer.durable(append(b"1")) for _ in range(many)]
    await asyncio.sleep(0.01)
    disk.land()
    assert all(one.done() for one in first)

    few = [writer.durable(append(b"2")) for _ in range(HALF_LEAST - 1)]
    await asyncio.sleep(0.01)

    assert disk.sizes == [HALF_LEAST - 1]
    disk.land()
    assert all(one.done() for one in few)
    await writer.close()


class NearAtTimes(Far):
    """A store that sends nothing off any more."""

    near = False

    def depart(self, operations: Sequence[Operation], landed: Callable[[list[Any] | Exception], None]) -> bool:
        return not self.near and super().depart(operations, landed)


async def test_half_of_many_that_cannot_be_sent_is_written_with_the_others() -> None:
    writer = writing(disk := NearAtTimes())
    many = 2 * HALF_LEAST
    first = [writer.durable(append(b"1")) for _ in range(many)]
    await asyncio.sleep(0.01)
    disk.land()
    assert all(one.done() for one in first)
    disk.near = True

    futures = [writer.durable(append(b"2")) for _ in range(many)]
    assert writer.turn == 1

    assert await asyncio.gather(*futures) == [*range(many)]
    assert [len(batch) for batch in disk.batches] == [many, many]
    await writer.close()


class Unsayable(Far):
    """A store that cannot even put together what it is asked to send, or to write."""

    def __init__(self, *, sends: bool) -> None:
        super().__init__()
        self.errors = [ValueError("it cannot be said")]
        self.sends = sends

    def depart(self, operations: Sequence[Operation], landed: Callable[[list[Any] | Exception], None]) -> bool:
        if self.sends:
            self._write(operations)
        return self.sends and super().depart(operations, landed)


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("sends", [True, False])
async def test_a_batch_that_cannot_be_put_together_fails_the_store_and_nobody_waits_for_ever(
    *, alone: bool, sends: bool
) -> None:
    writer = writing(Unsayable(sends=sends))
    refusals = Refusals()
    writer.put(append(b"0"), refusals.append)

    futures = [writer.durable(append(b"1"), alone=alone)]
    if not alone:
        futures.append(writer.durable(append(b"2")))

    for future in futures:
        with pytest.raises(StoreFailed, match="it cannot be said") as told:
            await asyncio.wait_for(future, 1)
        assert type(told.value.__cause__) is ValueError
    assert [type(one) for one in refusals] == [StoreFailed]
    with pytest.raises(StoreFailed):
        writer.put(append(b"3"), refusals.append)
    await asyncio.wait_for(writer.close(), 1)


async def test_what_was_given_back_is_counted_again() -> None:
    writer = writing(Disk(slow=True))
    writer.put(append(*[b"0"] * QUEUE_MAX), Refusals().append)
    assert writer.crowded

    future = writer.durable(append(b"1"), alone=True)

    assert writer.crowded
    assert await asyncio.wait_for(future, 1) == 1
    assert not writer.crowded
    await writer.close()
