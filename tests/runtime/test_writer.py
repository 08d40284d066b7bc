"""The writer itself, on a disk that is busy, slow or broken when a test says so."""

import asyncio

import pytest

from milepost.errors import StoreBusy, StoreError, StoreFailed
from milepost.runtime.writer import BUSY_TRIES, IN_A_ROW, QUEUE_MAX, SLOW_COMMIT_S, STUCK_S
from milepost.stores.api import Append, Create, Created, Emit, Head, NewRun
from tests.runtime.disks import Answering, Disk, Refusals, append, writing
from tests.runtime.stage import until


async def test_a_commit_that_is_made_at_once_is_made_before_the_loop_turns() -> None:
    writer = writing(disk := Disk())

    future = writer.durable(append(b"1"), alone=True)

    assert (future.done(), len(disk.batches), writer.turn, writer.commits) == (True, 1, 1, 1)

    await writer.durable(append(b"2"), alone=True)

    assert (writer.turn, writer.commits) == (2, 2)
    await writer.close()


async def test_unless_it_is_alone_a_commit_waits_for_others_to_join_it() -> None:
    writer = writing(disk := Disk())

    one, two = writer.durable(append(b"1")), writer.durable(append(b"2"))

    assert (one.done(), two.done()) == (False, False)
    assert (await one, await two) == (0, 1)
    assert len(disk.batches) == 1
    await writer.durable(append(b"3"))
    assert (writer.commits, len(disk.batches)) == (2, 2)
    await writer.close()


async def test_after_some_commits_at_once_the_loop_gets_its_turn_and_then_it_begins_anew() -> None:
    writer = writing(Disk())
    at_once = []
    for _ in range(2 * (IN_A_ROW + 1)):
        future = writer.durable(append(b"1"), alone=True)
        at_once.append(future.done())
        await future

    assert at_once == [*[True] * IN_A_ROW, False] * 2
    await writer.close()


async def test_nothing_is_written_at_once_while_a_commit_is_under_way() -> None:
    writer = writing(disk := Disk())
    disk.writes.clear()
    slow = writer.durable(append(b"1"))
    await asyncio.sleep(0.01)

    behind = writer.durable(append(b"2"), alone=True)

    assert (slow.done(), behind.done(), disk.batches) == (False, False, [])
    disk.writes.set()
    assert (await slow, await behind) == (0, 0)
    assert [batch[0].entries for batch in disk.batches if isinstance(batch[0], Append)] == [[b"1"], [b"2"]]
    await writer.close()


@pytest.mark.parametrize("disk", [Disk(StoreBusy("locked")), Disk(slow=True)], ids=["busy", "slow"])
async def test_a_batch_that_could_not_be_written_at_once_was_not_taken(disk: Disk) -> None:
    """What a session counts by turns is still to be written; it is written a moment later, and once."""
    writer = writing(disk)
    writer.put(append(b"0"), Refusals().append)

    future = writer.durable(append(b"1"), alone=True)

    assert (future.done(), writer.turn) == (False, 0)
    assert await future == 1
    assert (writer.turn, [len(batch) for batch in disk.batches]) == (1, [2])
    await writer.close()


async def test_what_must_be_written_now_is_written_now_however_slow_the_disk_is() -> None:
    writer = writing(disk := Disk(slow=True))
    writer.put(append(b"1"), Refusals().append)

    writer.write_now()

    assert len(disk.batches) == 1
    await writer.close()


async def test_a_busy_disk_is_tried_a_few_times_and_then_the_store_has_failed() -> None:
    writer = writing(disk := Disk(*[StoreBusy("locked")] * BUSY_TRIES))
    refused = Refusals()
    writer.put(append(b"1"), refused.append)

    with pytest.raises(StoreFailed, match="locked"):
        await writer.durable(append(b"2"))

    assert disk.tries == BUSY_TRIES
    assert [type(error) for error in refused] == [StoreFailed]
    await writer.close()


async def test_a_disk_that_is_busy_for_a_moment_is_waited_for() -> None:
    writer = writing(disk := Disk(*[StoreBusy("locked")] * (BUSY_TRIES - 1)))

    assert await writer.durable(append(b"1")) == 0

    assert disk.tries == BUSY_TRIES
    await writer.close()


@pytest.mark.parametrize("error", [StoreFailed("the disk is gone"), StoreError("the disk is gone")])
async def test_a_store_that_failed_takes_nothing_more_and_tells_everybody(error: StoreError) -> None:
    writer = writing(Disk(error))
    told: list[Exception] = []
    refused = Refusals()
    writer.on_failed = told.append
    writer.put(append(b"1"), refused.append)

    with pytest.raises(StoreFailed, match="the disk is gone") as failed:
        await writer.durable(append(b"2"))

    assert (refused, told) == ([failed.value], [failed.value])
    assert (failed.value is error) == isinstance(error, StoreFailed)
    for late in (lambda: writer.put(append(b"3"), refused.append), lambda: writer.durable(append(b"3"))):
        with pytest.raises(StoreFailed):
            late()
    await writer.close()


async def test_a_run_that_never_waits_for_the_world_waits_for_the_disk() -> None:
    writer = writing(disk := Disk())
    writer.put(append(*[b"x"] * (QUEUE_MAX - 1)), Refusals().append)
    assert not writer.crowded
    await asyncio.wait_for(writer.room(), 30)
    assert disk.batches == []

    writer.put(append(b"y"), Refusals().append)

    assert writer.crowded
    await asyncio.wait_for(writer.room(), 30)
    assert [len(batch) for batch in disk.batches] == [2]
    assert not writer.crowded
    writer.put(append(b"z"), Refusals().append)
    writer.more(QUEUE_MAX - 2)
    assert not writer.crowded
    writer.more(1)
    assert writer.crowded
    await writer.close()


async def test_nobody_waits_for_room_in_a_store_that_failed() -> None:
    writer = writing(Disk(StoreFailed("gone")))
    with pytest.raises(StoreFailed):
        await writer.durable(append(b"1"))
    writer.more(QUEUE_MAX)

    await asyncio.wait_for(writer.room(), 30)

    assert writer.crowded
    await writer.close()


async def test_events_are_written_after_a_moment_even_if_nothing_else_is() -> None:
    writer = writing(disk := Disk())

    writer.events([("run-1", 1, b"{}")])

    async def written() -> bool:
        return bool(disk.batches)

    await until(written)
    assert disk.batches == [[Emit([("run-1", 1, b"{}")])]]
    await writer.close()


async def test_events_that_come_when_the_writer_is_closed_arm_no_timer() -> None:
    writer = writing(disk := Disk())
    await writer.close()

    writer.events([("run-1", 1, b"{}")])

    assert (writer._lazy, disk.batches) == (None, [])


async def test_who_asks_for_a_commit_of_a_closed_writer_is_told_at_once() -> None:
    """A future of it could never be done, and as it cannot be cancelled, not even the loop could end."""
    writer = writing(disk := Disk(slow=True))
    await writer.close()

    for alone in (True, False):
        with pytest.raises(StoreError, match="closed the store already"):
            await writer.durable(append(b"1"), alone=alone)

    assert disk.batches == []


async def test_whoever_watches_is_told_to_whose_record_something_was_added() -> None:
    refusal, created = StoreError("refused"), Created("run-7", fresh=True, workflow="flow", digest="")
    writer = writing(Answering(refusal, None, created, None))
    told: list[set[str]] = []
    writer.on_written = told.append
    refused = Refusals()
    writer.put(append(b"1"), refused.append)
    writer.put(Append(Head(2, "run-2", 1, 0, 0, b""), [b"1"], 0), refused.append)
    answer = writer.durable(Create(NewRun("run-7", "flow", "1", "", b"", None, 0, None)))
    writer.events([("run-8", 1, b"{}")])

    assert await answer == created
    assert (told, refused) == ([{"run-2", "run-7"}], [refusal])
    await writer.close()


async def test_an_answer_that_is_a_refusal_is_raised() -> None:
    writer = writing(Answering(refusal := StoreError("refused")))

    with pytest.raises(StoreError) as raised:
        await writer.durable(append(b"1"))

    assert (raised.value, writer.failed) == (refusal, None)
    await writer.close()


async def test_a_store_that_leaves_an_answer_out_is_found_out() -> None:
    writer = writing(Answering())

    with pytest.raises(ValueError, match="zip"):
        await asyncio.wait_for(writer.durable(append(b"1"), alone=True), 30)

    await writer.close()


async def test_a_commit_that_hangs_is_stuck_and_one_that_is_slow_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    writer = writing(disk := Disk())
    disk.writes.clear()
    assert not writer.stuck
    future = writer.durable(append(b"1"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    loop = asyncio.get_running_loop()
    began = writer._since
    assert began > 0

    for after, stuck in ((STUCK_S, False), (STUCK_S + 1, True)):
        with monkeypatch.context() as patch:
            patch.setattr(loop, "time", lambda after=after: began + after)
            assert writer.stuck is stuck
    disk.writes.set()
    await future
    with monkeypatch.context() as patch:
        patch.setattr(loop, "time", lambda: began + STUCK_S + 1)
        assert not writer.stuck
    await writer.close()


class Measured(Disk):
    """A disk that says how long its commits take."""

    commit_seconds = 0.0


@pytest.mark.parametrize(
    ("seconds", "tools", "threaded"),
    [
        (SLOW_COMMIT_S * 2, 1, True),
        (SLOW_COMMIT_S * 2, 0, False),
        (SLOW_COMMIT_S, 1, False),
        (0.0, 1, False),
        (None, 1, False),
    ],
)
async def test_a_slow_commit_is_made_in_a_thread_while_a_tool_has_something_to_do_meanwhile(
    *, seconds: float | None, tools: int, threaded: bool
) -> None:
    disk = Disk() if seconds is None else Measured()
    if seconds is not None:
        disk.commit_seconds = seconds  # type: ignore[attr-defined]
    writer = writing(disk)
    writer.tools_in_flight = tools

    await writer.durable(append(b"1"))

    assert disk.threaded == [threaded]
    await writer.close()
